// The server's part in its pool's membership: announcing itself, computing views, passing objects on when views change.
#include <algorithm>
#include <ranges>

#include "base/log.hpp"
#include "fabric/handshake.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/server/server_core.hpp"

namespace penstock::pool {
namespace {

using namespace std::chrono_literals;

constexpr auto directory_patience = Timeout(5000);
constexpr Timeout background_patience(1000);    // they look up at once, unless the directory does not answer
constexpr Timeout proposal_check_period(1000);  // whether there is a view to propose
constexpr auto settle_delay = Timeout(100);     // changes that come together make one view

std::string server_path(const std::string& pool, std::uint64_t id) {
  return pool_path(pool, "servers/" + std::to_string(id));
}

}  // namespace

Task<void> ServerCore::start(fabric::Endpoint endpoint, Deadline deadline) {
  auto self = shared_from_this();
  endpoint_ = std::move(endpoint);
  co_await store_->recover();
  members_->start([weak = weak_from_this()](const View& view) {
    if (auto self = weak.lock()) self->view_changed(view);
  });
  const auto prefix = pool_path(options_.pool, "servers/");
  announcements_watch_ =
      directory_->watch(prefix, [weak = weak_from_this()](const std::vector<directory::DirectoryEvent>& all) {
        auto self = weak.lock();
        if (!self) return;
        for (const auto& event : all) {
          if (event.removed) {
            self->announced_.erase(event.entry.path);
            continue;
          }
          try {
            auto announcement = announcement_from_json(event.entry.value);
            if (announcement.protocol == wire::service_protocol) {
              self->announced_[event.entry.path] = std::move(announcement);
              continue;
            }
            // One that does not look whom it joins. No view that is made here names it.
            self->announced_.erase(event.entry.path);
            base::log(base::Level::error, "a server of another release wants to join the pool",
                      {{"pool", self->options_.pool}, {"why", self->other_protocol(announcement).what()}});
          } catch (const Error& error) {
            base::log(base::Level::error, "a server's announcement cannot be read",
                      {{"path", event.entry.path}, {"why", error.what()}});
          }
        }
        self->propose();
      });
  co_await announce(false, 0, deadline);
  fabric::spawn(*progress_, keep_announced());
  fabric::spawn(*progress_, propose_views());
  // Ready once a view names this server: clients can reach it.
  for (;;) {
    require_not_stopping();
    const auto placement = members_->placement();
    if (placement && placement->view().find(options_.id)) co_return;
    const std::uint64_t number = placement ? placement->view().number : 0;
    if (deadline.passed()) {
      std::string missing = "the pool waits for " + std::to_string(options_.servers) + " servers, " +
                            std::to_string(announced_.size()) + " have come";
      throw Error(Errc::timeout, "pool " + options_.pool + ": no view names this server in time; " + missing);
    }
    co_await members_->newer_than(number, deadline);
  }
}

Error ServerCore::other_protocol(const Announcement& other) const {
  const auto version = [](std::uint32_t protocol) { return "version " + std::to_string(protocol); };
  return Error(Errc::unsupported, "server " + other.member.name + " of pool " + options_.pool + " speaks " +
                                      version(other.protocol) + " of the service protocol, " + options_.name + " " +
                                      version(wire::service_protocol) +
                                      ": run programs and servers of the same release of Penstock");
}

// Throws Error(unsupported) when a server of another protocol came to the pool before `created`, a revision of the directory.
// With an embedded directory such servers cannot speak to each other at all; etcd takes whoever comes.
Task<void> ServerCore::require_same_protocol(std::uint64_t created, Deadline deadline) {
  auto self = shared_from_this();
  auto prefix = pool_path(options_.pool, "servers/");
  std::string after;
  const auto entries = co_await directory_->list(std::move(prefix), std::move(after), max_members, deadline);
  for (const auto& entry : entries) {
    if (entry.created >= created || entry.path == server_path(options_.pool, options_.id)) continue;
    std::optional<Announcement> other;
    try {
      other = announcement_from_json(entry.value);
    } catch (const Error&) {  // the watch says it
    }
    if (other && other->protocol != wire::service_protocol) throw other_protocol(*other);
  }
}

// The servers whose protocol this one speaks.
Task<std::vector<Announcement>> ServerCore::list_announced(Deadline deadline) {
  auto self = shared_from_this();
  auto prefix = pool_path(options_.pool, "servers/");
  std::string after;
  const auto entries = co_await directory_->list(std::move(prefix), std::move(after), max_members, deadline);
  std::vector<Announcement> found;
  for (const auto& entry : entries) {
    try {
      auto announcement = announcement_from_json(entry.value);
      if (announcement.protocol == wire::service_protocol) found.push_back(std::move(announcement));
    } catch (const Error&) {  // the watch says it
    }
  }
  co_return found;
}

// Of two that come at once and do not speak the same protocol, the later one sees the earlier, and goes.
Task<void> ServerCore::announce(bool leaving, std::uint64_t finished, Deadline deadline) {
  auto self = shared_from_this();
  const bool comes = lease_ == 0;
  if (comes) {
    co_await require_same_protocol(~std::uint64_t{0}, deadline);
    const std::chrono::milliseconds ttl(options_.lease_ms);
    auto lost = [weak = weak_from_this()] {
      if (auto self = weak.lock()) {
        self->lease_ = 0;
        ++self->leases_lost_;
        self->changed_->notify_all();
      }
    };
    lease_ = co_await directory_->grant(ttl, std::move(lost), deadline);
  }
  Announcement announcement;
  announcement.member.id = options_.id;
  announcement.member.name = options_.name;
  announcement.member.endpoint = endpoint_;
  announcement.leaving = leaving;
  announcement.finished_view = finished;
  auto path = server_path(options_.pool, options_.id);
  auto value = to_json(announcement);
  const auto revision = co_await directory_->put(std::move(path), std::move(value), std::nullopt, lease_, deadline);
  announced_leaving_ = leaving;
  announced_finished_ = finished;
  if (!comes) co_return;
  std::optional<Error> refused;
  try {
    co_await require_same_protocol(revision.value_or(0), deadline);
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    refused = error;
  }
  if (!refused) co_return;
  const auto lease = std::exchange(lease_, 0);
  if (lease != 0) co_await directory_->revoke(lease, deadline);
  throw *refused;
}

// Announces again whenever something changed, also while an announcement was on its way, or the lease was lost (the
// directory was away, or this server was stopped).
Task<void> ServerCore::keep_announced() {
  auto self = shared_from_this();
  const Background background(*this);
  bool failed = false;
  while (!stopping_) {
    const bool announced =
        lease_ != 0 && announced_leaving_ == leaving_ && announced_finished_ == finished_view_ && !failed;
    if (announced) {
      co_await changed_->wait(Deadline::never());
      continue;
    }
    try {
      failed = false;
      co_await announce(leaving_, finished_view_, Deadline(directory_patience));
    } catch (const Error& error) {
      // With the directory away membership is frozen; data traffic goes on.
      failed = true;
      base::log(base::Level::warn, "the directory cannot be told of this server",
                {{"pool", options_.pool}, {"why", error.what()}});
    }
    if (failed) co_await changed_->wait(Deadline(Timeout(500)));
  }
}

void ServerCore::propose() {
  to_propose_ = true;
  propose_->notify_all();
}

// The announced server with the lowest id writes the next view. If two think they are, the directory takes one's.
Task<void> ServerCore::propose_views() {
  auto self = shared_from_this();
  const Background background(*this);
  const auto id_of = [](const Announcement& announcement) { return announcement.member.id; };
  while (!stopping_) {
    const Deadline soon(proposal_check_period);
    if (!to_propose_) co_await propose_->wait(soon);
    to_propose_ = false;
    if (stopping_) break;
    co_await fabric::pause_for(*progress_, settle_delay);
    const auto known = announced_ | std::views::values;
    if (announced_.empty() || std::ranges::min(known, {}, id_of).member.id != options_.id) continue;
    try {
      auto path = pool_path(options_.pool, "view");
      auto entry = co_await directory_->get(path, Deadline(directory_patience));
      // Asked for after the view, so that everybody whom the view names is there: announced_ may be older than the view.
      const auto announced = co_await list_announced(Deadline(directory_patience));
      if (announced.empty() || std::ranges::min(announced, {}, id_of).member.id != options_.id) continue;
      View present;
      if (entry) present = view_from_json(entry->value);
      if (present.number == 0 && announced.size() < options_.servers) continue;
      const View next = next_view(present, announced, options_.replication);
      if (next.number == present.number) continue;
      const std::uint64_t expected = entry ? entry->revision : 0;
      auto value = to_json(next);
      co_await directory_->put(std::move(path), std::move(value), expected, 0, Deadline(directory_patience));
    } catch (const Error& error) {
      base::log(base::Level::warn, "no view could be proposed", {{"pool", options_.pool}, {"why", error.what()}});
    }
  }
}

void ServerCore::view_changed(const View& view) {
  base::log(
      base::Level::info, "view",
      {{"pool", options_.pool}, {"number", view.number}, {"servers", view.members.size()}, {"settled", view.settled}});
  auto wakes = std::exchange(stale_wakes_, {});
  for (const auto& w : wakes) w->notify_all();
  propose();
  auto placement = members_->placement();
  remember_view();
  const bool member = is_named(view);
  if (view.settled) {
    // What others own now they may put again under versions that were dropped here. Nobody holds those any more, and what is
    // still under way is of an older view.
    if (!view.members.empty())
      tombstones_.forget_if([&](const std::string& packed) {
        const auto key = unpack_key(packed);
        return !is_owner(*placement, key.ns, key.row, std::nullopt);
      });
    // A view that does not name this server, as it is now, settled without what lies here: it may be the only copy.
    if (member) fabric::spawn(*progress_, let_go(placement));
  } else if (member) {  // a server that no view names offers nothing: others may have dropped it
    fabric::spawn(*progress_, rebalance(placement));
  }
  drain_moved_->notify_all();
  for (const auto& callback : view_callbacks_) callback(view);
}

// A server that is taken for dead while it leaves has not handed on what it has: it comes back, and leaves again.
Task<void> ServerCore::leave(Deadline deadline) {
  auto self = shared_from_this();
  ++drain_number_;  // an administrator's drain ends here: this server does not become active again
  drain_ = {};
  for (;;) {
    co_await wait_member(true, deadline);
    const auto lost = leases_lost_;
    leaving_ = true;
    changed_->notify_all();
    co_await wait_member(false, deadline);
    const bool in_order = co_await left_in_order(lost, deadline);
    if (in_order) co_return;
    leaving_ = false;
    changed_->notify_all();
  }
}

// Whether the server that is no member any more was one until it had handed everything on: it was announced all the time.
Task<bool> ServerCore::left_in_order(std::uint64_t leases_lost, Deadline deadline) {
  auto self = shared_from_this();
  auto path = server_path(options_.pool, options_.id);
  const auto entry = co_await directory_->get(std::move(path), deadline);
  co_return entry&& leases_lost == leases_lost_;
}

// After stop, Members::newer_than returns at once: a loop over it must end by this.
void ServerCore::require_not_stopping() const {
  if (stopping_) throw Error(Errc::wrong_state, "pool " + options_.pool + ": server " + options_.name + " is stopping");
}

// Until the view names this server; or until it does not, or nobody else is there. Throws Error(wrong_state) on stop.
Task<void> ServerCore::wait_member(bool there, Deadline deadline) {
  auto self = shared_from_this();
  for (;;) {
    require_not_stopping();
    const auto placement = members_->placement();
    const bool found = placement && placement->view().find(options_.id);
    if (found == there || (found && placement->view().members.size() == 1)) co_return;
    if (deadline.passed())
      throw Error(Errc::timeout, "pool " + options_.pool + ": the other servers did not take over in time");
    co_await members_->newer_than(placement ? placement->view().number : 0, deadline);
  }
}

Task<void> ServerCore::stop(Deadline deadline) {
  auto self = shared_from_this();
  stopping_ = true;
  changed_->notify_all();
  propose_->notify_all();
  drain_moved_->notify_all();
  auto wakes = std::exchange(stale_wakes_, {});
  for (const auto& w : wakes) w->notify_all();
  announcements_watch_.reset();
  try {
    co_await store_->flush(deadline);
  } catch (const Error& error) {
    base::log(base::Level::error, "not everything could be written", {{"pool", options_.pool}, {"why", error.what()}});
  }
  if (lease_ != 0) {
    try {
      co_await directory_->revoke(lease_, earlier(deadline, Deadline(Timeout(2000))));
    } catch (const Error&) {
    }
  }
  leases_.clear();
  members_->close();
  // They hold the store, and with it the disk, which must not be closed while the program's statics go.
  const auto soon = earlier(deadline, Deadline(background_patience));
  while (background_ != 0) {
    const bool ended = co_await background_ended_->wait(soon);
    if (!ended) break;
  }
}

}  // namespace penstock::pool
