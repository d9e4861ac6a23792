#include "directory/embedded.hpp"

#include <unordered_map>

#include "base/log.hpp"
#include "directory/codec.hpp"
#include "directory/directory_service.hpp"
#include "directory/state.hpp"
#include "directory/view.hpp"
#include "fabric/task.hpp"
#include "penstock/error.hpp"
#include "rpc/channel.hpp"

namespace penstock::directory {
namespace {

using namespace std::chrono_literals;
using base::Deadline;
using std::chrono::milliseconds;

constexpr milliseconds connect_timeout = 5s;
constexpr milliseconds shortest_pause = 20ms, longest_pause = 500ms;
constexpr milliseconds poll_time = 20s;
constexpr milliseconds poll_grace = 5s;
constexpr milliseconds list_timeout = 30s;
constexpr std::uint64_t page_entries = 4096;

struct Lease {
  milliseconds ttl{};
  std::function<void()> lost;
  fabric::Timer timer;
};

// The connection, and what hangs on it. Lives as long as the directory, a watch or a call of it. Engine thread.
struct Core : std::enable_shared_from_this<Core> {
  Core(std::shared_ptr<Progress> p, LocateDirectory l, std::string w, std::string r)
      : progress(std::move(p)), locate(std::move(l)), where(std::move(w)), role(std::move(r)), changed(*progress) {}

  void close() {
    closed = true;
    leases.clear();
    if (channel) channel->close();
    channel.reset();
    changed.notify_all();
  }

  // The channel as soon as there is one.
  static Task<std::shared_ptr<rpc::Channel>> link(std::shared_ptr<Core> core, Deadline deadline) {
    while (true) {
      if (core->closed) throw Error(Errc::cancelled, core->where + " was closed");
      if (core->channel && core->channel->open()) co_return core->channel;
      core->start_connecting();
      const bool ended = co_await core->changed.wait(deadline);
      if (core->refused) throw core->refused->in(core->where);
      if (!ended) throw core->unreachable();
    }
  }
  void start_connecting() {
    if (connecting) return;
    connecting = true;
    fabric::spawn(*progress, connect_once(shared_from_this()));
  }
  Error unreachable() const {
    if (failure.empty()) return Error(Errc::timeout, where + " does not answer");
    if (unregistered) return Error(Errc::peer_lost, failure + "; a pool's servers start one (penstock pool serve)");
    return Error(Errc::peer_lost, where + " cannot be reached: " + failure);
  }

  // Connects once, then waits a little after a failure, whoever asks meanwhile.
  static Task<void> connect_once(std::shared_ptr<Core> core) {
    try {
      const DirectoryLocation at = core->locate();
      const std::string realm = "directory/" + core->role;
      const Deadline deadline(connect_timeout);
      auto made = co_await rpc::connect(core->progress, at.endpoint, at.token, realm, nullptr, deadline);
      if (core->closed) made->close();
      else core->channel = std::move(made);
      core->pause = shortest_pause;
      core->failure.clear();
      core->refused.reset();
      core->token_may_be_wrong = false;
    } catch (const Error& error) {
      core->failure = error.what();
      core->unregistered = error.code() == Errc::not_found;
      const bool wrong_token = error.code() == Errc::authentication && core->token_may_be_wrong;
      if (error.code() == Errc::unsupported || wrong_token) core->refused = error;
      else core->refused.reset();
    }
    if (core->refused) core->changed.notify_all();  // whoever waits now hears it now
    if (!core->failure.empty() && !core->closed) {
      co_await fabric::pause_for(*core->progress, core->pause);
      core->pause = std::min(2 * core->pause, longest_pause);
    }
    core->connecting = false;
    core->changed.notify_all();
  }

  std::shared_ptr<Progress> progress;
  LocateDirectory locate;
  std::string where, role;
  std::shared_ptr<rpc::Channel> channel;
  bool connecting = false, closed = false;
  std::string failure;        // of the last attempt to connect
  bool unregistered = false;  // it failed because nobody knows where the directory is
  bool token_may_be_wrong = false;
  std::optional<Error> refused;  // it is of another version, or refuses the token: no waiting mends that
  milliseconds pause = shortest_pause;
  fabric::Signal changed;  // connecting has ended
  std::unordered_map<std::uint64_t, Lease> leases;
};

using CorePtr = std::shared_ptr<Core>;

// Makes a call until it is answered; repeated: it was made more than once.
template <class Reply, class Request>
Task<Reply> ask(CorePtr core, Task<Reply> (fb::DirectoryClient::*method)(Request, rpc::CallOptions), Request request,
                Deadline deadline, bool* repeated = nullptr) {
  while (true) {
    auto channel = co_await Core::link(core, deadline);
    fb::DirectoryClient client(channel);
    rpc::CallOptions options;
    options.deadline = deadline;
    Request copy = request;
    try {
      co_return co_await (client.*method)(std::move(copy), options);
    } catch (const Error& error) {
      const bool lost = !channel->open() || error.code() == Errc::peer_lost;
      if (!lost || deadline.passed() || core->closed) throw error.in(core->where);
      if (repeated != nullptr) *repeated = true;
      if (channel->open()) channel->close();  // its directory is closing
    }
  }
}

Task<std::optional<DirectoryEntry>> get_now(CorePtr core, std::string path, Deadline deadline) {
  check_path(path);
  fb::GetRequestT request;
  request.path = std::move(path);
  auto reply = co_await ask(core, &fb::DirectoryClient::get, std::move(request), deadline);
  if (!reply.entry) co_return std::nullopt;
  co_return from_wire(reply.entry);
}

Task<std::optional<std::uint64_t>> put_now(CorePtr core, std::string path, std::string value,
                                           std::optional<std::uint64_t> expected, std::uint64_t lease,
                                           Deadline deadline) {
  check_path(path);
  check_value(path, value);
  fb::PutRequestT request;
  request.path = path;
  request.value.assign(value.begin(), value.end());
  request.conditional = expected.has_value();
  request.expected = expected.value_or(0);
  request.lease = lease;
  bool repeated = false;
  const auto reply = co_await ask(core, &fb::DirectoryClient::put, std::move(request), deadline, &repeated);
  if (reply.done) co_return reply.revision;
  if (!repeated) co_return std::nullopt;
  auto current = co_await get_now(core, path, deadline);
  if (lease != 0 && current && current->lease == lease && current->value == value) co_return current->revision;
  throw Error(Errc::peer_lost, core->where + " did not say whether " + path + " was changed: read it back");
}

Task<bool> remove_now(CorePtr core, std::string path, std::optional<std::uint64_t> expected, Deadline deadline) {
  check_path(path);
  fb::RemoveRequestT request;
  request.path = path;
  request.conditional = expected.has_value();
  request.expected = expected.value_or(0);
  bool repeated = false;
  const auto reply = co_await ask(core, &fb::DirectoryClient::remove, std::move(request), deadline, &repeated);
  if (reply.done || !repeated) co_return reply.done;
  // Asked twice and nothing there: the first time removed it, as far as anybody can tell.
  const auto current = co_await get_now(core, path, deadline);
  co_return !current.has_value();
}

Task<std::vector<DirectoryEntry>> list_now(CorePtr core, std::string prefix, std::string after, std::size_t limit,
                                           Deadline deadline, std::uint64_t* tree, std::uint64_t* revision) {
  check_prefix(prefix);
  std::vector<DirectoryEntry> entries;
  for (bool more = true, first = true; more && entries.size() < limit; first = false) {
    fb::ListRequestT request;
    request.prefix = prefix;
    request.after = after;
    request.limit = std::min<std::uint64_t>(page_entries, limit - entries.size());
    auto reply = co_await ask(core, &fb::DirectoryClient::list, std::move(request), deadline);
    if (first && tree != nullptr) *tree = reply.tree;
    if (first && revision != nullptr) *revision = reply.revision;
    // Another directory took over between two pages.
    if (tree != nullptr && *tree != reply.tree) throw Error(Errc::peer_lost, core->where + " began anew");
    for (auto& entry : reply.entries) entries.push_back(from_wire(entry));
    more = reply.more && !reply.entries.empty();
    if (more) after = entries.back().path;
  }
  co_return entries;
}

// --------------------------------------------------------------------------------------------------------------- leases

void schedule_heartbeat(const CorePtr& core, std::uint64_t id, milliseconds delay);

Task<void> heartbeat(CorePtr core, std::uint64_t id) {
  const auto at = core->leases.find(id);
  if (at == core->leases.end()) co_return;
  const milliseconds ttl = at->second.ttl;
  const Deadline deadline(std::max<milliseconds>(ttl / 2, 1ms));
  bool alive = true, answered = false;
  try {
    fb::LeaseRequestT request;
    request.lease = id;
    const auto reply = co_await ask(core, &fb::DirectoryClient::heartbeat, std::move(request), deadline);
    alive = reply.alive;
    answered = true;
  } catch (const Error& error) {
    base::log(base::Level::debug, "directory heartbeat failed", {{"lease", id}, {"error", error.what()}});
    // Connected and silent: it hangs, or the network between was cut.
    if (error.code() == Errc::timeout && core->channel) core->channel->close();
  }
  const auto now = core->leases.find(id);
  if (now == core->leases.end()) co_return;
  if (alive) {
    schedule_heartbeat(core, id, answered ? ttl / 3 : std::min<milliseconds>(ttl / 10, shortest_pause));
    co_return;
  }
  const auto lost = std::move(now->second.lost);
  core->leases.erase(now);
  if (lost) lost();
}

void schedule_heartbeat(const CorePtr& core, std::uint64_t id, milliseconds delay) {
  core->leases.at(id).timer = core->progress->after(delay, [weak = std::weak_ptr(core), id] {
    if (const auto strong = weak.lock()) fabric::spawn(*strong->progress, heartbeat(strong, id));
  });
}

Task<std::uint64_t> grant_now(CorePtr core, milliseconds ttl, std::function<void()> lost, Deadline deadline) {
  check_ttl(ttl);
  fb::GrantRequestT request;
  request.ttl_ms = static_cast<std::uint32_t>(ttl.count());
  const auto reply = co_await ask(core, &fb::DirectoryClient::grant, std::move(request), deadline);
  if (core->closed) co_return reply.lease;
  Lease& lease = core->leases[reply.lease];
  lease.ttl = ttl;
  lease.lost = std::move(lost);
  schedule_heartbeat(core, reply.lease, ttl / 3);
  co_return reply.lease;
}

Task<void> revoke_now(CorePtr core, std::uint64_t id, Deadline deadline) {
  core->leases.erase(id);
  fb::LeaseRequestT request;
  request.lease = id;
  co_await ask(core, &fb::DirectoryClient::revoke, std::move(request), deadline);
}

// ---------------------------------------------------------------------------------------------------------------- watch

struct Watcher {
  explicit Watcher(Progress& progress) : stopped(progress) {}
  std::string prefix;
  std::function<void(const std::vector<DirectoryEvent>&)> on_events;
  bool live = true;
  fabric::Signal stopped;
  DirectoryView view;
  bool listed = false, told = false;
  std::uint64_t tree = 0, revision = 0;

  void tell(std::vector<DirectoryEvent> events) {
    if (!live) return;
    if (events.empty() && told) return;
    told = true;
    const auto call = on_events;  // it may end the watch
    call(events);
  }
};

Task<void> watch_once(CorePtr core, std::shared_ptr<Watcher> watcher) {
  if (!watcher->listed) {
    std::uint64_t tree = 0, revision = 0;
    const Deadline deadline(list_timeout);
    auto entries = co_await list_now(core, watcher->prefix, "", SIZE_MAX, deadline, &tree, &revision);
    watcher->tree = tree;
    watcher->revision = revision;
    watcher->listed = true;
    watcher->tell(watcher->view.reset(std::move(entries), revision));
    co_return;
  }
  fb::WatchRequestT request;
  request.prefix = watcher->prefix;
  request.tree = watcher->tree;
  request.revision = watcher->revision;
  request.wait_ms = static_cast<std::uint32_t>(poll_time.count());
  const Deadline deadline(poll_time + poll_grace);
  auto reply = co_await ask(core, &fb::DirectoryClient::watch, std::move(request), deadline);
  if (reply.reset) {
    watcher->listed = false;
    co_return;
  }
  watcher->revision = reply.revision;
  std::vector<DirectoryEvent> events;
  for (auto& event : reply.events) {
    if (!event) throw Error(Errc::protocol, "the directory sent an event that is not there");
    events.push_back({event->removed, from_wire(event->entry)});
  }
  watcher->tell(watcher->view.apply(std::move(events)));
}

Task<void> watch_on(CorePtr core, std::shared_ptr<Watcher> watcher) {
  bool reported = false;
  while (watcher->live && !core->closed) {
    try {
      co_await watch_once(core, watcher);
      reported = false;
      continue;
    } catch (const Error& error) {
      if (watcher->live && !core->closed && !std::exchange(reported, true))
        base::log(base::Level::warn, "directory watch: trying again",
                  {{"prefix", watcher->prefix}, {"error", error.what()}});
    }
    const Deadline pause(longest_pause);
    if (watcher->live && !core->closed) co_await watcher->stopped.wait(pause);
  }
}

class EmbeddedWatch final : public Directory::Watch {
 public:
  EmbeddedWatch(CorePtr core, std::shared_ptr<Watcher> watcher)
      : core_(std::move(core)), watcher_(std::move(watcher)) {}
  ~EmbeddedWatch() override {
    core_->progress->call([this] {
      watcher_->live = false;
      watcher_->on_events = nullptr;
      watcher_->stopped.notify_all();
    });
  }

 private:
  CorePtr core_;
  std::shared_ptr<Watcher> watcher_;
};

class EmbeddedDirectory final : public Directory {
 public:
  explicit EmbeddedDirectory(CorePtr core) : core_(std::move(core)) {}
  ~EmbeddedDirectory() override {
    core_->progress->call([this] { core_->close(); });
  }

  std::string describe() const override { return core_->where; }
  Task<std::uint64_t> grant(milliseconds ttl, std::function<void()> lost, Deadline deadline) override {
    return grant_now(core_, ttl, std::move(lost), deadline);
  }
  Task<void> revoke(std::uint64_t lease, Deadline deadline) override { return revoke_now(core_, lease, deadline); }
  Task<std::optional<std::uint64_t>> put(std::string path, std::string value, std::optional<std::uint64_t> expected,
                                         std::uint64_t lease, Deadline deadline) override {
    return put_now(core_, std::move(path), std::move(value), expected, lease, deadline);
  }
  Task<std::optional<DirectoryEntry>> get(std::string path, Deadline deadline) override {
    return get_now(core_, std::move(path), deadline);
  }
  Task<std::vector<DirectoryEntry>> list(std::string prefix, std::string after, std::size_t limit,
                                         Deadline deadline) override {
    return list_now(core_, std::move(prefix), std::move(after), limit, deadline, nullptr, nullptr);
  }
  Task<bool> remove(std::string path, std::optional<std::uint64_t> expected, Deadline deadline) override {
    return remove_now(core_, std::move(path), expected, deadline);
  }
  std::unique_ptr<Watch> watch(std::string prefix,
                               std::function<void(const std::vector<DirectoryEvent>&)> on_events) override {
    check_prefix(prefix);
    auto watcher = std::make_shared<Watcher>(*core_->progress);
    watcher->prefix = std::move(prefix);
    watcher->on_events = std::move(on_events);
    fabric::spawn(*core_->progress, watch_on(core_, watcher));
    return std::make_unique<EmbeddedWatch>(core_, std::move(watcher));
  }

 private:
  CorePtr core_;
};

}  // namespace

std::unique_ptr<Directory> open_embedded_directory(std::shared_ptr<fabric::Progress> progress, LocateDirectory locate,
                                                   std::string where, std::string role, bool fixed) {
  auto core = std::make_shared<Core>(std::move(progress), std::move(locate), std::move(where), std::move(role));
  core->token_may_be_wrong = fixed;
  return std::make_unique<EmbeddedDirectory>(std::move(core));
}

}  // namespace penstock::directory
