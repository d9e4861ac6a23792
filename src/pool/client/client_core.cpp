#include "pool/client/client_core.hpp"

#include "directory/open.hpp"
#include "pool/keys/server_status.hpp"
#include "stream/api/open.hpp"
#include "transport/carrier.hpp"

namespace penstock::pool {

Task<std::set<std::string>> pool_names(std::shared_ptr<directory::Directory> directory, base::Deadline deadline) {
  std::set<std::string> names;
  std::string after;
  for (;;) {
    std::string prefix = "/pools/";
    auto entries = co_await directory->list(std::move(prefix), after, 1000, deadline);
    for (const auto& entry : entries) {
      const auto end = entry.path.find('/', 7);
      if (end != std::string::npos) names.insert(entry.path.substr(7, end - 7));
    }
    if (entries.size() < 1000) break;
    after = entries.back().path;
  }
  co_return names;
}

namespace {

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

constexpr auto look_again = std::chrono::milliseconds(50);

// The pool's name, and the token of the role asked for. A directory that knows no pool yet is one whose first server is still
// coming up; wait_for_it: one that knows others is asked again, too.
Task<std::pair<std::string, fabric::Token>> find_pool(std::shared_ptr<fabric::Progress> progress,
                                                      std::shared_ptr<directory::Directory> at, PoolOptions options,
                                                      std::string role, bool wait_for_it, base::Deadline deadline) {
  auto& directory = *at;
  for (;;) {
    std::set<std::string> names;
    std::string pool = options.pool;
    if (pool.empty()) {
      names = co_await pool_names(at, deadline);
      if (names.size() == 1) pool = *names.begin();
    }
    if (!pool.empty()) {
      if (!options.token.empty()) co_return std::pair(std::move(pool), fabric::Token::from_hex(options.token));
      auto path = pool_path(pool, "secret");
      auto secret = co_await directory.get(std::move(path), deadline);
      if (secret) co_return std::pair(std::move(pool), role_token(fabric::Token::from_hex(secret->value), role));
      names = co_await pool_names(at, deadline);
    }
    if (names.contains(pool) && deadline.remaining() <= look_again)
      throw Error(Errc::forbidden,
                  "pool " + pool + " at " + directory.describe() +
                      ": this address shows no secret, so a role and its token must be given (penstock "
                      "pool token --role read)");
    const bool several = pool.empty() && !names.empty();
    const bool others = !names.empty() && !names.contains(pool);
    if (several || (others && !wait_for_it) || deadline.remaining() <= look_again)
      throw Error(Errc::not_found, (pool.empty() ? "name a pool: " + directory.describe() + " knows "
                                                 : "no pool " + pool + " at " + directory.describe() + "; it knows ") +
                                       joined(names));
    co_await fabric::pause_for(*progress, look_again);
  }
}

}  // namespace

std::shared_ptr<PoolClient> PoolClient::open(std::shared_ptr<fabric::Progress> progress, const PoolOptions& options,
                                             const std::string& registration_directory, Deadline deadline,
                                             bool wait_for_it) {
  const std::string where = directory::resolve_directory_service(options.directory);
  std::shared_ptr<directory::Directory> directory = directory::open_directory(progress, where, registration_directory);
  const std::string role = options.role.empty() ? "admin" : options.role;
  if (role_rank(role) < 0 || role == "server")
    throw Error(Errc::invalid_argument, "role " + role + ": choose read, write, compute or admin");
  if (options.data_plane == DataPlane::shm)
    throw Error(Errc::invalid_argument,
                "data_plane=shm: a pool's servers may be anywhere; choose automatic, tcp or ucx");
  const auto* plane = transport::bulk_plane(stream::plane_name(options.data_plane));
  auto finding = fabric::spawn(*progress, find_pool(progress, directory, options, role, wait_for_it, deadline));
  auto [pool, token] = finding.get(Deadline::never());  // it ends by its deadline, and says why
  Members::Options member_options;
  member_options.pool = pool;
  member_options.role = role;
  member_options.token = token;
  member_options.plane = plane;
  auto members = std::make_shared<Members>(progress, directory, std::move(member_options));
  members->start();
  auto first_view = fabric::spawn(*progress, members->at_least(1, deadline));
  first_view.get(deadline, "pool " + pool + ": no server came");
  return std::make_shared<PoolClient>(std::move(progress), std::move(directory), std::move(members), pool);
}

PoolClient::PoolClient(std::shared_ptr<fabric::Progress> progress, std::shared_ptr<directory::Directory> directory,
                       std::shared_ptr<Members> members, std::string pool)
    : progress_(std::move(progress)),
      directory_(std::move(directory)),
      members_(std::move(members)),
      pool_(std::move(pool)) {}

PoolClient::~PoolClient() { close(); }

void PoolClient::close() { members_->close(); }

Task<std::string> PoolClient::status_text(Member member, Deadline deadline) {
  auto self = shared_from_this();
  auto channel = co_await members_->channel(std::move(member), deadline);
  fb::StatusRequestT request;
  rpc::CallOptions options{deadline};
  auto reply = co_await fb::ObjectsClient(channel).status(std::move(request), options);
  co_return std::move(reply.json);
}

Task<PoolStatus> PoolClient::status(Deadline deadline) {
  auto self = shared_from_this();
  const auto placement = co_await members_->at_least(1, deadline);
  PoolStatus status = status_of(placement->view());
  status.name = pool_;
  // All at once: one that does not answer takes no other's time.
  std::vector<fabric::Future<std::string>> asked;
  for (const auto& member : placement->view().members)
    asked.push_back(fabric::spawn(*progress_, status_text(member, earlier(deadline, Deadline(Timeout(3000))))));
  for (std::size_t i = 0; i < asked.size(); ++i) {
    std::optional<std::string> text;
    try {
      text = co_await std::move(asked[i]);
    } catch (const Error&) {
      status.servers[i].state = "lost";
    }
    if (text) read_status(*text, status.servers[i]);
  }
  co_return status;
}

void release_leases(const std::shared_ptr<rpc::Channel>& channel, std::vector<std::uint64_t> leases) {
  if (leases.empty() || !channel->open()) return;
  try {
    fb::ReleaseRequestT request;
    request.leases = std::move(leases);
    (void)fb::ObjectsClient(channel).start_release(request, rpc::CallOptions{});
  } catch (const std::exception& error) {
    base::log(base::Level::debug, "leases were not given back",
              {{"server", channel->peer_name()}, {"why", error.what()}});
  }
}

// With a replica to ask instead, a server that does not even answer the connection is not waited for long.
base::Deadline PoolClient::connect_deadline(Deadline deadline, bool alternatives) {
  return alternatives ? earlier(deadline, Deadline(Timeout(2000))) : deadline;
}

Task<void> PoolClient::before_retry(std::uint64_t view, Attempt attempt, const Error& error, Deadline deadline) {
  const Timeout pause(std::min<std::uint32_t>(500, 10u << std::min<Attempt>(attempt, 6)));
  const auto soon = earlier(deadline, Deadline(pause));
  if (error.code() == Errc::stale_view) {
    // The server knows a newer one: the directory does too.
    if (members_->placement()->view().number == view) {
      try {
        co_await members_->at_least(view + 1, soon);
      } catch (const Error&) {
      }
    }
    co_return;
  }
  co_await members_->newer_than(view, soon);
}

}  // namespace penstock::pool
