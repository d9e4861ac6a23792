#include "directory/etcd/directory.hpp"

#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/uri.hpp"
#include "directory/etcd/codec.hpp"
#include "directory/etcd/http.hpp"
#include "directory/etcd/part.hpp"
#include "directory/state.hpp"
#include "directory/view.hpp"
#include "penstock/error.hpp"
#include "penstock/version.hpp"

namespace penstock::directory {
namespace {

using namespace std::chrono_literals;
using base::Deadline;
using fabric::Progress;
using fabric::Task;

constexpr unsigned call_threads = 4;
constexpr unsigned heartbeat_threads = 2;
// Entries in one answer; halved when etcd says that they are too large together.
constexpr std::size_t etcd_page_entries = 512;
constexpr auto watch_idle = 15s;
constexpr auto watch_list_timeout = 10s;
constexpr std::size_t max_waiting_events = 65'536;
constexpr int grpc_not_found = 5;
constexpr int grpc_exhausted = 8;

// What the threads need; they never hold the directory itself.
struct Remote {
  Remote(std::vector<etcd::Member> members, const std::string& name, std::string root)
      : http(std::move(members), name), root(std::move(root)) {}
  etcd::Http http;
  std::string root;

  etcd::Reply call(const char* path, const std::string& body, Deadline deadline) {
    auto reply = http.post(path, body, deadline);
    if (reply.status == 200) return reply;
    const auto refusal = etcd::decode_refusal(reply.body);
    const std::string message =
        http.name() + ": " + (refusal.message.empty() ? "status " + std::to_string(reply.status) : refusal.message);
    if (refusal.code == grpc_not_found) throw Error(Errc::not_found, message);
    if (refusal.code == grpc_exhausted) throw Error(Errc::overloaded, message);
    throw Error(Errc::protocol, message);
  }

  // A page: all that etcd gives at once, up to limit.
  etcd::Range range(const std::string& prefix, const std::string& after, std::size_t limit, Deadline deadline) {
    for (limit = std::min(limit, etcd_page_entries);; limit /= 2) {
      try {
        const auto reply = call("/v3/kv/range", etcd::list_request(root, prefix, after, limit), deadline);
        return etcd::decode_range(root, reply.body);
      } catch (const Error& error) {
        if (error.code() != Errc::overloaded || limit <= 1) throw;
      }
    }
  }
  std::vector<DirectoryEntry> list(const std::string& prefix, std::string after, std::size_t limit, Deadline deadline,
                                   std::uint64_t* revision = nullptr) {
    std::vector<DirectoryEntry> entries;
    for (bool more = true, first = true; more && entries.size() < limit; first = false) {
      auto page = range(prefix, after, limit - entries.size(), deadline);
      if (first && revision != nullptr) *revision = page.revision;
      more = page.more && !page.entries.empty();
      if (more) after = page.entries.back().path;
      std::move(page.entries.begin(), page.entries.end(), std::back_inserter(entries));
    }
    return entries;
  }
};

std::string tree_prefix(std::string prefix) { return prefix.empty() ? "/" : prefix; }

std::optional<std::uint64_t> etcd_put(Remote& remote, const std::string& path, const std::string& value,
                                      std::optional<std::uint64_t> expected, std::uint64_t lease, Deadline deadline) {
  const auto body = etcd::put_request(remote.root, path, value, expected, lease);
  const auto reply = remote.call(expected ? "/v3/kv/txn" : "/v3/kv/put", body, deadline);
  const auto written = etcd::decode_put(remote.root, reply.body, expected.has_value());
  if (written.done) return written.revision;
  if (!reply.repeated) return {};
  if (lease != 0 && written.current && written.current->lease == lease && written.current->value == value)
    return written.current->revision;
  throw Error(Errc::peer_lost, remote.http.name() + " did not say whether " + path + " was changed: read it back");
}

bool etcd_remove(Remote& remote, const std::string& path, std::optional<std::uint64_t> expected, Deadline deadline) {
  const auto body = etcd::remove_request(remote.root, path, expected);
  const auto reply = remote.call(expected ? "/v3/kv/txn" : "/v3/kv/deleterange", body, deadline);
  const auto removed = etcd::decode_remove(remote.root, reply.body, expected.has_value());
  // Asked twice and nothing there: the first time removed it, as far as anybody can tell.
  return removed.done || (reply.repeated && !removed.current);
}

// ---------------------------------------------------------------------------------------------------------------- watch

// Shared by the watch's thread and its owner.
struct EtcdWatcher {
  etcd::Stop stop;
  std::string prefix;
  std::function<void(const std::vector<DirectoryEvent>&)> on_events;  // engine thread
  bool live = true;                                                   // engine thread
  std::mutex mutex;                                                   // guards what follows
  std::condition_variable room;
  std::size_t waiting = 0;  // events posted to the engine and not taken yet
  bool finished = false;

  void end() {
    {
      std::lock_guard lock(mutex);
      finished = true;
    }
    room.notify_all();
  }
};

class WatchThread {
 public:
  WatchThread(std::shared_ptr<EtcdWatcher> watcher, std::shared_ptr<Remote> remote, Progress& progress)
      : watcher_(std::move(watcher)), remote_(std::move(remote)), progress_(progress) {}

  void run() {
    bool reported = false;
    for (auto pause = 50ms; !watcher_->stop.requested(); pause = std::min<std::chrono::milliseconds>(2 * pause, 1s)) {
      try {
        if (!listed_) list();
        remote_->http.stream(
            "/v3/watch", etcd::watch_request(remote_->root, watcher_->prefix, from_),
            [this](std::string_view line) { return take(line); }, watch_idle, watcher_->stop);
        if (took_) {
          took_ = reported = false;
          pause = 25ms;
          continue;
        }
      } catch (const Error& error) {
        if (error.code() == Errc::cancelled) break;
        if (!std::exchange(reported, true))
          base::log(base::Level::warn, "directory watch: trying again",
                    {{"prefix", watcher_->prefix}, {"error", error.what()}});
      }
      if (watcher_->stop.wait_for(pause)) break;
    }
  }

 private:
  void list() {
    std::uint64_t revision = 0;
    auto entries = remote_->list(watcher_->prefix, "", SIZE_MAX, Deadline(watch_list_timeout), &revision);
    auto events = view_.reset(std::move(entries), revision);
    from_ = revision + 1;
    listed_ = true;
    if (!events.empty() || !std::exchange(told_, true)) tell(std::move(events));
  }
  // One message; false ends the stream.
  bool take(std::string_view line) {
    auto message = etcd::decode_watched(remote_->root, line);
    took_ = !message.cancelled;
    if (message.compacted) listed_ = false;
    if (message.cancelled) return false;
    // Changes of one revision may come in several messages: it is asked for again, and what is known is left out.
    from_ = std::max(from_, message.revision);
    auto events = view_.apply(std::move(message.events));
    if (!events.empty()) tell(std::move(events));
    return true;
  }
  void tell(std::vector<DirectoryEvent> events) {
    const std::size_t count = events.size();
    {
      std::unique_lock lock(watcher_->mutex);
      while (watcher_->waiting > max_waiting_events && !watcher_->stop.requested())
        watcher_->room.wait_for(lock, 100ms);
      watcher_->waiting += count;
    }
    progress_.post([watcher = watcher_, events = std::move(events), count] {
      {
        std::lock_guard lock(watcher->mutex);
        watcher->waiting -= count;
      }
      watcher->room.notify_all();
      if (watcher->live) watcher->on_events(events);
    });
  }

  std::shared_ptr<EtcdWatcher> watcher_;
  std::shared_ptr<Remote> remote_;
  Progress& progress_;
  DirectoryView view_;
  bool listed_ = false, told_ = false, took_ = false;
  std::uint64_t from_ = 0;
};

// ----------------------------------------------------------------------------------------------------------------- core

struct EtcdLease {
  std::chrono::milliseconds ttl{};
  std::function<void()> lost;
  fabric::Timer timer;
};

// Lives as long as the directory or a call of it.
struct EtcdCore : std::enable_shared_from_this<EtcdCore> {
  EtcdCore(std::shared_ptr<Progress> p, std::vector<etcd::Member> members, const std::string& name, std::string root)
      : progress(std::move(p)),
        remote(std::make_shared<Remote>(std::move(members), name, std::move(root))),
        callers(std::make_unique<fabric::Workers>(*progress, call_threads, "etcd")),
        heartbeats(std::make_unique<fabric::Workers>(*progress, heartbeat_threads, "etcd-lease")) {}

  ~EtcdCore() {
    remote->http.stop();
    for (auto& [watcher, thread] : watches) {
      watcher->stop.request();
      std::unique_lock lock(watcher->mutex);
      // A stop may come between two steps of the connection; it is repeated until it is noticed.
      while (!watcher->room.wait_for(lock, 20ms, [&] { return watcher->finished; })) watcher->stop.request();
      lock.unlock();
      thread.join();
    }
  }

  // f(remote) on a thread; its caller waits until the deadline at most.
  template <class F>
  static Task<std::invoke_result_t<F, Remote&>> run(std::shared_ptr<EtcdCore> core, F function, Deadline deadline) {
    using R = std::invoke_result_t<F, Remote&>;
    auto promise = std::make_shared<fabric::Promise<R>>(*core->progress);
    auto future = promise->future();
    fabric::Timer timer;
    if (!deadline.is_never())
      timer = core->progress->after(deadline.remaining() + 200ms, [promise, remote = core->remote] {
        promise->set_error(Error(Errc::timeout, remote->http.name() + " did not answer in time"));
      });
    core->callers->submit([promise, remote = core->remote, function = std::move(function)]() mutable {
      try {
        if constexpr (std::is_void_v<R>) {
          function(*remote);
          promise->set();
        } else {
          promise->set(function(*remote));
        }
      } catch (...) {
        promise->set_error(std::current_exception());
      }
    });
    promise.reset();
    co_return co_await std::move(future);
  }

  static Task<std::uint64_t> grant(std::shared_ptr<EtcdCore> core, std::chrono::milliseconds ttl,
                                   std::function<void()> lost, Deadline deadline) {
    check_ttl(ttl);
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(ttl);
    auto ask = [seconds, deadline](Remote& remote) {
      return etcd::decode_grant(remote.call("/v3/lease/grant", etcd::grant_request(seconds.count()), deadline).body);
    };
    const auto id = co_await run(core, std::move(ask), deadline);
    core->leases[id] = {seconds, std::move(lost), {}};
    core->schedule(id);
    co_return id;
  }

  static Task<void> revoke(std::shared_ptr<EtcdCore> core, std::uint64_t lease, Deadline deadline) {
    core->leases.erase(lease);
    auto ask = [lease, deadline](Remote& remote) {
      try {
        remote.call("/v3/lease/revoke", etcd::lease_request(lease), deadline);
      } catch (const Error& error) {
        if (error.code() != Errc::not_found) throw;
      }
    };
    co_await run(core, std::move(ask), deadline);
  }

  void schedule(std::uint64_t id) {
    auto& lease = leases.at(id);
    lease.timer = progress->after(lease.ttl / 3, [weak = weak_from_this(), id] {
      const auto core = weak.lock();
      if (core) core->heartbeat(id);
    });
  }

  void heartbeat(std::uint64_t id) {
    const auto at = leases.find(id);
    if (at == leases.end()) return;
    const Deadline deadline(at->second.ttl * 2 / 3);
    heartbeats->submit([weak = weak_from_this(), remote = remote, &progress = *progress, id, deadline] {
      bool alive = true;  // as long as the directory does not say otherwise
      try {
        alive = etcd::decode_keepalive(remote->call("/v3/lease/keepalive", etcd::lease_request(id), deadline).body);
      } catch (const Error& error) {
        base::log(base::Level::debug, "directory heartbeat failed", {{"lease", id}, {"error", error.what()}});
      }
      progress.post([weak, id, alive] {
        const auto core = weak.lock();
        if (core) core->heartbeat_done(id, alive);
      });
    });
  }

  void heartbeat_done(std::uint64_t id, bool alive) {
    const auto at = leases.find(id);
    if (at == leases.end()) return;
    if (alive) return schedule(id);
    const auto lost = std::move(at->second.lost);
    leases.erase(at);
    if (lost) lost();
  }

  void start_watch(const std::shared_ptr<EtcdWatcher>& watcher) {
    for (auto at = watches.begin(); at != watches.end();) {
      std::unique_lock lock(at->first->mutex);
      const bool finished = at->first->finished;
      lock.unlock();
      if (finished) at->second.join();
      at = finished ? watches.erase(at) : std::next(at);
    }
    std::thread thread([watcher, remote = remote, &progress = *progress] {
      WatchThread(watcher, remote, progress).run();
      watcher->end();
    });
    watches.emplace_back(watcher, std::move(thread));
  }

  std::shared_ptr<Progress> progress;
  std::shared_ptr<Remote> remote;
  std::unordered_map<std::uint64_t, EtcdLease> leases;  // engine thread
  std::list<std::pair<std::shared_ptr<EtcdWatcher>, std::thread>> watches;
  std::unique_ptr<fabric::Workers> callers, heartbeats;
};

class EtcdWatch final : public Directory::Watch {
 public:
  EtcdWatch(std::shared_ptr<EtcdCore> core, std::shared_ptr<EtcdWatcher> watcher)
      : core_(std::move(core)), watcher_(std::move(watcher)) {}
  ~EtcdWatch() override {
    core_->progress->call([this] { watcher_->live = false; });
    watcher_->stop.request();
  }

 private:
  std::shared_ptr<EtcdCore> core_;
  std::shared_ptr<EtcdWatcher> watcher_;
};

class EtcdDirectory final : public Directory {
 public:
  explicit EtcdDirectory(std::shared_ptr<EtcdCore> core) : core_(std::move(core)) {}
  ~EtcdDirectory() override {
    // Calls that are under way may outlive this; heartbeats must not.
    core_->progress->call([this] { core_->leases.clear(); });
  }

  std::string describe() const override { return core_->remote->http.name(); }
  Task<std::uint64_t> grant(std::chrono::milliseconds ttl, std::function<void()> lost, Deadline deadline) override {
    return EtcdCore::grant(core_, ttl, std::move(lost), deadline);
  }
  Task<void> revoke(std::uint64_t lease, Deadline deadline) override {
    return EtcdCore::revoke(core_, lease, deadline);
  }
  Task<std::optional<std::uint64_t>> put(std::string path, std::string value, std::optional<std::uint64_t> expected,
                                         std::uint64_t lease, Deadline deadline) override {
    auto ask = [=, path = std::move(path), value = std::move(value)](Remote& remote) {
      check_path(path);
      check_value(path, value);
      return etcd_put(remote, path, value, expected, lease, deadline);
    };
    return EtcdCore::run(core_, std::move(ask), deadline);
  }
  Task<std::optional<DirectoryEntry>> get(std::string path, Deadline deadline) override {
    auto ask = [deadline, path = std::move(path)](Remote& remote) -> std::optional<DirectoryEntry> {
      check_path(path);
      const auto reply = remote.call("/v3/kv/range", etcd::get_request(remote.root, path), deadline);
      auto range = etcd::decode_range(remote.root, reply.body);
      if (range.entries.empty()) return {};
      return std::move(range.entries.front());
    };
    return EtcdCore::run(core_, std::move(ask), deadline);
  }
  Task<std::vector<DirectoryEntry>> list(std::string prefix, std::string after, std::size_t limit,
                                         Deadline deadline) override {
    auto ask = [=, prefix = std::move(prefix), after = std::move(after)](Remote& remote) {
      check_prefix(prefix);
      return remote.list(tree_prefix(prefix), after, limit, deadline);
    };
    return EtcdCore::run(core_, std::move(ask), deadline);
  }
  Task<bool> remove(std::string path, std::optional<std::uint64_t> expected, Deadline deadline) override {
    auto ask = [=, path = std::move(path)](Remote& remote) {
      check_path(path);
      return etcd_remove(remote, path, expected, deadline);
    };
    return EtcdCore::run(core_, std::move(ask), deadline);
  }
  std::unique_ptr<Watch> watch(std::string prefix,
                               std::function<void(const std::vector<DirectoryEvent>&)> on_events) override {
    check_prefix(prefix);
    auto watcher = std::make_shared<EtcdWatcher>();
    watcher->prefix = tree_prefix(std::move(prefix));
    watcher->on_events = std::move(on_events);
    core_->progress->call([&] { core_->start_watch(watcher); });
    return std::make_unique<EtcdWatch>(core_, std::move(watcher));
  }

 private:
  std::shared_ptr<EtcdCore> core_;
};

std::unique_ptr<Directory> open_client(std::shared_ptr<fabric::Progress> progress, const EtcdAddress& address) {
  std::vector<etcd::Member> members;
  std::string name = "etcd at ";
  for (const auto& text : address.members) {
    etcd::Member member;
    base::parse_endpoint(text, member.host, member.port);
    members.push_back(std::move(member));
    name += (members.size() > 1 ? "," : "") + text;
  }
  return std::make_unique<EtcdDirectory>(
      std::make_shared<EtcdCore>(std::move(progress), std::move(members), name, address.root));
}

}  // namespace
}  // namespace penstock::directory

const penstock::base::PartHead* penstock_etcd_part() {
  using namespace penstock::directory;
  static constexpr EtcdPart part{{PENSTOCK_VERSION}, &open_client};
  return &part;
}
