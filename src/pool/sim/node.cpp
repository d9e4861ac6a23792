#include "pool/sim/node.hpp"

namespace penstock::pool::sim {
namespace {

// The peers' service as it is, or with a defect.
class Peers final : public fb::PeersService {
 public:
  Peers(std::shared_ptr<ServerCore> core, Bug bug, Random& random) : real_(core, {}), bug_(bug), random_(random) {}

  Task<fb::ReplicateReplyT> replicate(rpc::Call& call, fb::ReplicateRequestT request) override {
    const bool drops = !request.dropped.empty() && request.dropped[0];
    const bool lose =
        (bug_ == Bug::replica_lost && !drops && random_.chance(0.2)) || (bug_ == Bug::drop_untold && drops);
    if (!lose) co_return co_await real_.replicate(call, std::move(request));
    fb::ReplicateReplyT reply;
    reply.view = request.view;
    co_return reply;
  }
  Task<fb::GetReplyT> fetch(rpc::Call& call, fb::FetchRequestT request) override {
    return real_.fetch(call, std::move(request));
  }
  Task<fb::HaveReplyT> have(rpc::Call& call, fb::HaveRequestT request) override {
    return real_.have(call, std::move(request));
  }
  Task<fb::MissingReplyT> missing(rpc::Call& call, fb::MissingRequestT request) override {
    auto reply = co_await real_.missing(call, std::move(request));
    if (bug_ == Bug::nothing_missing) reply.missing.clear();
    co_return reply;
  }
  Task<fb::PullReplyT> pull(rpc::Call& call, fb::PullRequestT request) override {
    return real_.pull(call, std::move(request));
  }

 private:
  PeerService real_;
  Bug bug_;
  Random& random_;
};

void settle_early(const std::string& path, std::string& value) {
  if (path != pool_path(pool_name, "view")) return;
  auto view = view_from_json(value);
  view.settled = true;
  value = to_json(view);
}

void forget_absences(const std::string& path, std::string& value) {
  if (path != pool_path(pool_name, "view")) return;
  auto view = view_from_json(value);
  for (auto& member : view.members) member.since = 1;
  value = to_json(view);
}

std::shared_ptr<DirectoryHandle> open_directory(const Surroundings& around) {
  DirectoryHandle::Mutate mutate;
  if (around.bug == Bug::settled_early) mutate = settle_early;
  if (around.bug == Bug::absence_forgotten) mutate = forget_absences;
  return std::make_shared<DirectoryHandle>(*around.directory, std::move(mutate));
}

}  // namespace

fabric::Endpoint endpoint_of(Node node) {
  fabric::Endpoint endpoint;
  endpoint.unix_name = "node-" + std::to_string(node);
  return endpoint;
}

Node node_at(const fabric::Endpoint& endpoint) { return static_cast<Node>(std::stoul(endpoint.unix_name.substr(5))); }

Members::Connect connect_from(const Surroundings& around, Node from) {
  return [network = around.network, from](Member server, std::string role, base::Deadline) {
    return network->connect(from, node_at(server.endpoint), std::move(role));
  };
}

SimServer::SimServer(const Surroundings& around, Node at, std::uint64_t own_id, const Plan& plan)
    : node(at), id(own_id), directory(open_directory(around)), around_(around) {
  ServerOptions options;
  options.pool = pool_name;
  options.name = "server-" + std::to_string(node);
  options.id = id;
  options.servers = plan.servers;
  options.replication = plan.replication;
  options.lease_ms = plan.lease_ms;
  options.workers = 0;
  options.store.memory_bytes = 64 << 20;
  core = std::make_shared<ServerCore>(around.progress, directory, options, fabric::Token{}, connect_from(around, node));
  services_->add(std::make_shared<ObjectService>(core, Compute{}, Admin{}));
  services_->add(std::make_shared<Peers>(core, around.bug, *around.random));
  around.network->serve(node, [this](std::shared_ptr<fabric::Connection> connection, const std::string& role) {
    served_.push_back(rpc::Channel::adopt(around_.progress, std::move(connection), services_, pool_name + "/" + role));
  });
}

fabric::Task<void> SimServer::start() {
  const base::Deadline deadline(Timeout(60'000));
  co_await core->start(endpoint_of(node), deadline);
  started = true;
}

// Every other server is drained by an administrator's command (ServerCore::begin_drain). If that fails, and in all other
// cases, its process is told to end (PoolServer::drain).
fabric::Task<void> SimServer::drain() {
  leaving = true;
  const base::Deadline deadline(Timeout(60'000));
  if (around_.bug != Bug::drain_at_once) {
    if (node % 2 == 0) co_await drain_by_command(deadline);
    if (!drained_by_command) co_await core->leave(deadline);
  }
  co_await core->stop(deadline);
  kill();
}

fabric::Task<void> SimServer::drain_by_command(base::Deadline deadline) {
  using State = ServerCore::DrainState;
  try {
    core->begin_drain([] {});
  } catch (const Error& error) {
    if (error.code() != Errc::wrong_state) throw;
    co_return;  // no other server is active
  }
  const auto state = [this] { return core->drain_status().state; };
  while (!gone && !deadline.passed() && (state() == State::handing_on || state() == State::handed_on))
    co_await core->drain_moved(deadline);
  drained_by_command = state() == State::left;
}

void SimServer::kill() {
  if (std::exchange(gone, true)) return;
  around_.network->kill(node);
  directory->kill();
  fabric::spawn(*around_.progress, core->stop(base::Deadline(Timeout(2000))));
  for (const auto& channel : served_) channel->close();
}

SimClient::SimClient(const Surroundings& around, Node at) : node(at), directory(open_directory(around)) {
  Members::Options options;
  options.pool = pool_name;
  options.role = "admin";
  options.connect = connect_from(around, node);
  members = std::make_shared<Members>(around.progress, directory, std::move(options));
  members->start();
  pool = std::make_shared<Pool::Impl>();
  pool->progress = around.progress;
  pool->client = std::make_shared<PoolClient>(around.progress, directory, members, pool_name);
  pool->workers = std::make_unique<fabric::Workers>(*around.progress, 0);
}

void SimClient::close() {
  directory->kill();
  pool->client->close();
}

}  // namespace penstock::pool::sim
