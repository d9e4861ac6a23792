#include "pool/node/server.hpp"

#include "base/log.hpp"
#include "directory/open.hpp"
#include "directory/server.hpp"
#include "fabric/handshake.hpp"
#include "pool/coordinator/stream_service.hpp"
#include "pool/server/compute_service.hpp"
#include "transport/carrier.hpp"

namespace penstock::pool {

struct PoolServer::Embedded {
  directory::DirectoryHost host;
};

PoolServer::PoolServer(std::shared_ptr<fabric::Progress> progress, PoolServerOptions options, Admin admin)
    : progress_(std::move(progress)), options_(std::move(options)), admin_(std::move(admin)) {
  if (options_.server.name.empty()) options_.server.name = fabric::process_name();
  if (options_.server.id == 0) throw Error(Errc::invalid_argument, "a server needs an id");
}

PoolServer::~PoolServer() {
  try {
    if (!stopped_ && core_) stop(Timeout(2000));
  } catch (const std::exception& error) {
    base::log(base::Level::warn, "the server did not stop well", {{"why", error.what()}});
  }
}

// The pool's secret lies in the directory; the first server makes it.
fabric::Token PoolServer::find_secret(base::Deadline deadline) {
  const auto path = pool_path(options_.server.pool, "secret");
  for (;;) {
    auto there = fabric::run_task(*progress_, directory_->get(path, deadline), base::Deadline::never());
    if (there) return fabric::Token::from_hex(there->value);
    const auto secret = fabric::Token::random();
    const auto made =
        fabric::run_task(*progress_, directory_->put(path, secret.hex(), 0, 0, deadline), base::Deadline::never());
    if (made) return secret;
  }
}

void PoolServer::start(Timeout timeout) {
  const base::Deadline deadline(timeout);
  if (options_.directory == "embedded") {
    embedded_ = std::unique_ptr<Embedded>(
        new Embedded{directory::DirectoryHost(progress_, {}, options_.server.listen, options_.registration_directory)});
    directory_ = directory::open_directory(progress_, embedded_->host.address(), options_.registration_directory);
  } else {
    // What the environment tells clients does not count: it may name the one that ran here before.
    const std::string where = options_.directory == "registered" ? "embedded" : options_.directory;
    directory_ = directory::open_directory(progress_, where, options_.registration_directory);
  }
  secret_ = find_secret(deadline);
  core_ = std::make_shared<ServerCore>(progress_, directory_, options_.server, secret_);
  compute_ = std::make_shared<compute::ComputeWorkers>(*progress_, core_->workers(), options_.compute);
  auto streams = streams_ = StreamService::create(core_);
  auto pull = [streams](rpc::Call& call, fb::PullRequestT request) { return streams->pull(call, std::move(request)); };
  services_ = std::make_shared<rpc::ServiceTable>();
  Extension extension;
  if (options_.extend) extension = options_.extend(core_);
  services_->add(
      std::make_shared<ObjectService>(core_, make_compute(core_, compute_), admin_, std::move(extension.guard)));
  if (extension.service) services_->add(std::move(extension.service));
  services_->add(std::make_shared<PeerService>(core_, std::move(pull)));
  services_->add(streams);
  const std::string realm = options_.server.pool + "/";
  auto token_of = [realm, secret = secret_](const std::string& name) -> std::optional<fabric::Token> {
    if (!name.starts_with(realm)) return std::nullopt;
    const auto role = name.substr(realm.size());
    if (role_rank(role) < 0) return std::nullopt;
    return role_token(secret, role);
  };
  rpc::ServerOptions calls;
  calls.max_calls = options_.server.max_calls;
  calls.memory_bytes = options_.server.call_memory;
  calls.plane = transport::bulk_plane(options_.server.data_plane);
  server_ = std::make_unique<rpc::Server>(progress_, services_, std::move(token_of), options_.server.listen, calls);
  fabric::run_task(*progress_, core_->start(server_->endpoint(), deadline), base::Deadline::never());
}

void PoolServer::drain(Timeout timeout) {
  const base::Deadline deadline(timeout);
  fabric::run_task(*progress_, core_->leave(deadline), base::Deadline::never());
  stop(timeout);
}

void PoolServer::stop(Timeout timeout) {
  if (std::exchange(stopped_, true)) return;
  const base::Deadline deadline(timeout);
  if (streams_) progress_->call([this] { streams_->stop(); });
  if (core_) fabric::run_task(*progress_, core_->stop(deadline), base::Deadline::never());
  server_.reset();
  directory_.reset();
  embedded_.reset();
}

const fabric::Endpoint& PoolServer::endpoint() const { return server_->endpoint(); }

fabric::Token PoolServer::token(std::string_view role) const { return role_token(secret_, role); }

}  // namespace penstock::pool
