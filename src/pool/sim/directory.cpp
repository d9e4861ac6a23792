#include "pool/sim/directory.hpp"

#include <algorithm>

#include "pool/membership/members.hpp"

namespace penstock::pool::sim {

using namespace std::chrono_literals;
using base::Clock;

namespace {

// As the embedded directory and its client have it.
constexpr std::chrono::milliseconds shortest_pause = 20ms, longest_pause = 500ms;  // between two tries to connect
constexpr auto recovery_grace = 2s;                                                // for leases, after a start

}  // namespace

struct DirectoryHost::Watcher {
  std::string prefix;
  std::function<void(const std::vector<directory::DirectoryEvent>&)> on_events;
  std::weak_ptr<DirectoryHandle> handle;
  directory::DirectoryView view;
  bool listed = false, coming = false;
  std::uint64_t revision = 0;

  void look(directory::DirectoryState& state) {
    std::vector<directory::DirectoryEvent> events;
    auto since = state.events_since(prefix, revision, 1000, 1 << 20);
    const bool first = !listed;
    if (first || since.reset) events = view.reset(state.list(prefix, "", 1000, 1 << 20).entries, state.revision());
    else events = view.apply(std::move(since.events));
    listed = true;
    revision = state.revision();
    if (first || !events.empty()) on_events(events);
  }
};

DirectoryHost::DirectoryHost(std::shared_ptr<fabric::Progress> progress, Network& network)
    : progress_(std::move(progress)), network_(network), state_(std::make_unique<directory::DirectoryState>(1)) {}

void DirectoryHost::go_away() {
  away_ = true;
  ++life_;
  expiry_.cancel();
}

void DirectoryHost::come_back(bool renew_leases) {
  away_ = false;
  state_ = std::make_unique<directory::DirectoryState>(state_->snapshot(), directory::DirectoryLimits{},
                                                       Clock::now() + recovery_grace);
  if (!renew_leases) {
    const auto entries = state_->list("/pools/", "", 1000, 1 << 20).entries;
    const auto announced = std::ranges::find_if(entries, [](const auto& entry) { return entry.lease != 0; });
    if (announced != entries.end()) state_->revoke(announced->lease);
  }
  state_->expire(Clock::now());
  changed();
}

// Whoever watches hears of it a little later.
void DirectoryHost::changed() {
  arm();
  std::erase_if(watchers_, [](const auto& w) { return w.expired(); });
  for (const auto& weak : watchers_) {
    const auto watcher = weak.lock();
    if (std::exchange(watcher->coming, true)) continue;
    auto tell = [](DirectoryHost& host, std::weak_ptr<Watcher> to) -> fabric::Task<void> {
      co_await host.network_.travel();
      const auto told = to.lock();
      if (!told) co_return;
      told->coming = false;
      const auto handle = told->handle.lock();
      if (handle && handle->reached()) told->look(*host.state_);
    };
    fabric::spawn(*progress_, tell(*this, watcher));
  }
}

void DirectoryHost::arm() {
  const auto next = state_->next_expiry();
  if (away_ || !next) return;
  expiry_ = progress_->after(*next - Clock::now(), [this] {
    if (away_) return;
    if (state_->expire(Clock::now()).empty()) arm();
    else changed();
  });
}

// ------------------------------------------------------------------------------------------------------------- handles

void DirectoryHandle::kill() {
  dead_ = true;
  leases_.clear();
}

void DirectoryHandle::cut_off(bool off) {
  cut_off_ = off;
  if (!off) host_.changed();
}

template <class R>
directory::Directory::Task<R> DirectoryHandle::ask(std::function<R(directory::DirectoryState&)> operation,
                                                   Deadline deadline, std::shared_ptr<bool> repeated) {
  auto self = shared_from_this();
  for (;;) {
    co_await host_.network_.travel();
    for (auto pause = shortest_pause; !reached(); pause = std::min(2 * pause, longest_pause)) {
      if (dead_) throw Error(Errc::peer_lost, "this process was killed");
      if (deadline.passed()) throw Error(Errc::peer_lost, describe() + " cannot be reached");
      co_await fabric::pause_for(*host_.progress_, std::min(pause, deadline.remaining()));
    }
    const auto life = host_.life_;
    R result = operation(*host_.state_);
    co_await host_.network_.travel();
    if (life == host_.life_ && reached()) co_return result;
    if (repeated) *repeated = true;
  }
}

directory::Directory::Task<std::uint64_t> DirectoryHandle::grant(std::chrono::milliseconds ttl,
                                                                 std::function<void()> lost, Deadline deadline) {
  auto self = shared_from_this();
  std::function<std::uint64_t(directory::DirectoryState&)> operation = [this, ttl](directory::DirectoryState& state) {
    const auto id = state.grant(ttl, Clock::now()).lease;
    host_.changed();
    return id;
  };
  const auto id = co_await ask<std::uint64_t>(std::move(operation), deadline);
  leases_[id] = {ttl, std::move(lost), {}};
  schedule(id, ttl / 3);
  co_return id;
}

void DirectoryHandle::schedule(std::uint64_t lease, std::chrono::milliseconds delay) {
  leases_.at(lease).timer = host_.progress_->after(delay, [weak = weak_from_this(), lease] {
    if (const auto self = weak.lock()) fabric::spawn(*self->host_.progress_, self->heartbeat(lease));
  });
}

directory::Directory::Task<void> DirectoryHandle::heartbeat(std::uint64_t lease) {
  auto self = shared_from_this();
  const auto at = leases_.find(lease);
  if (at == leases_.end()) co_return;
  const auto ttl = at->second.ttl;
  bool alive = true, answered = false;
  try {
    std::function<bool(directory::DirectoryState&)> operation = [lease](directory::DirectoryState& state) {
      return state.heartbeat(lease, Clock::now());
    };
    const Deadline deadline(ttl / 2);
    alive = co_await ask<bool>(std::move(operation), deadline);
    answered = true;
  } catch (const Error&) {
  }
  const auto now = leases_.find(lease);
  if (now == leases_.end()) co_return;
  if (alive) {
    schedule(lease, answered ? ttl / 3 : std::min<std::chrono::milliseconds>(ttl / 10, 20ms));
    co_return;
  }
  const auto lost = std::move(now->second.lost);
  leases_.erase(now);
  if (lost) lost();
}

directory::Directory::Task<void> DirectoryHandle::revoke(std::uint64_t lease, Deadline deadline) {
  auto self = shared_from_this();
  leases_.erase(lease);
  std::function<bool(directory::DirectoryState&)> operation = [this, lease](directory::DirectoryState& state) {
    const bool was = state.revoke(lease).has_value();
    host_.changed();
    return was;
  };
  co_await ask<bool>(std::move(operation), deadline);
}

directory::Directory::Task<std::optional<std::uint64_t>> DirectoryHandle::put(std::string path, std::string value,
                                                                              std::optional<std::uint64_t> expected,
                                                                              std::uint64_t lease, Deadline deadline) {
  auto self = shared_from_this();
  if (mutate_) mutate_(path, value);
  using Revision = std::optional<std::uint64_t>;
  std::function<Revision(directory::DirectoryState&)> operation = [=,
                                                                   this](directory::DirectoryState& state) -> Revision {
    const auto change = state.put(path, value, expected, lease);
    if (!change) return std::nullopt;
    if (host_.on_put) host_.on_put(*state.get(path));
    host_.changed();
    return change->revision;
  };
  auto repeated = std::make_shared<bool>(false);
  const auto revision = co_await ask<Revision>(std::move(operation), deadline, repeated);
  if (revision || !*repeated) co_return revision;
  const auto present = co_await get(path, deadline);
  if (lease != 0 && present && present->lease == lease && present->value == value) co_return present->revision;
  throw Error(Errc::peer_lost, describe() + " did not say whether " + path + " was changed");
}

directory::Directory::Task<std::optional<directory::DirectoryEntry>> DirectoryHandle::get(std::string path,
                                                                                          Deadline deadline) {
  using Entry = std::optional<directory::DirectoryEntry>;
  std::function<Entry(directory::DirectoryState&)> operation = [path](directory::DirectoryState& state) {
    return state.get(path);
  };
  return ask<Entry>(std::move(operation), deadline);
}

directory::Directory::Task<std::vector<directory::DirectoryEntry>> DirectoryHandle::list(std::string prefix,
                                                                                         std::string after,
                                                                                         std::size_t limit,
                                                                                         Deadline deadline) {
  using Entries = std::vector<directory::DirectoryEntry>;
  std::function<Entries(directory::DirectoryState&)> operation = [=](directory::DirectoryState& state) {
    return state.list(prefix, after, limit, 1 << 20).entries;
  };
  return ask<Entries>(std::move(operation), deadline);
}

directory::Directory::Task<bool> DirectoryHandle::remove(std::string path, std::optional<std::uint64_t> expected,
                                                         Deadline deadline) {
  std::function<bool(directory::DirectoryState&)> operation = [=, this](directory::DirectoryState& state) {
    const bool was = state.remove(path, expected).has_value();
    host_.changed();
    return was;
  };
  return ask<bool>(std::move(operation), deadline);
}

std::unique_ptr<directory::Directory::Watch> DirectoryHandle::watch(
    std::string prefix, std::function<void(const std::vector<directory::DirectoryEvent>&)> on_events) {
  struct Watching final : Watch {
    std::shared_ptr<DirectoryHost::Watcher> watcher;
  };
  auto watching = std::make_unique<Watching>();
  watching->watcher = std::make_shared<DirectoryHost::Watcher>();
  watching->watcher->prefix = std::move(prefix);
  watching->watcher->on_events = std::move(on_events);
  watching->watcher->handle = weak_from_this();
  host_.watchers_.push_back(watching->watcher);
  host_.changed();
  return watching;
}

}  // namespace penstock::pool::sim
