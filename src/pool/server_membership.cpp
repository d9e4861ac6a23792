// The server's part in its pool's membership: announcing itself, computing views, passing objects on when views change.
#include <algorithm>

#include "base/log.hpp"
#include "fabric/handshake.hpp"
#include "pool/protocol.hpp"
#include "pool/server_core.hpp"

namespace penstock::pool {
namespace {

using namespace std::chrono_literals;

constexpr auto directory_patience = Timeout(5000);
constexpr Timeout background_patience(1000);  // they look up at once, unless the directory does not answer
constexpr Timeout look_again(1000);           // whether there is a view to propose
constexpr auto settle_delay = Timeout(100);   // changes that come together make one view
constexpr std::size_t rebalance_batch = 1000;
constexpr std::uint64_t rebalance_batch_bytes = 8 << 20;

std::string server_path(const std::string& pool, std::uint64_t id) {
  return pool_path(pool, "servers/" + std::to_string(id));
}

// One version of an object, still without its bytes.
ObjectStore::Write offer_of(const ObjectTable::Entry& entry, const StoredObject& version) {
  ObjectStore::Write write;
  write.ns = entry.ns;
  write.row = entry.row;
  write.column = entry.column;
  write.object = version;
  write.object.blob = nullptr;
  write.keep_older = version.keeps_older;
  return write;
}

}  // namespace

struct ServerCore::Background {
  explicit Background(ServerCore& of) : core(of) { ++core.background_; }
  Background(const Background&) = delete;
  ~Background() {
    if (--core.background_ == 0) core.background_ended_->notify_all();
  }
  ServerCore& core;
};

Task<void> ServerCore::start(fabric::Endpoint endpoint, Deadline deadline) {
  auto self = shared_from_this();
  endpoint_ = std::move(endpoint);
  co_await store_->recover();
  members_->start([weak = weak_from_this()](const View& view) {
    if (auto self = weak.lock()) self->view_changed(view);
  });
  const auto prefix = pool_path(options_.pool, "servers/");
  announcements_watch_ =
      directory_->watch(prefix, [weak = weak_from_this()](const std::vector<rpc::DirectoryEvent>& all) {
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

// Announces again whenever something changed, or the lease was lost (the directory was away, or this server was stopped).
Task<void> ServerCore::keep_announced() {
  auto self = shared_from_this();
  const Background background(*this);
  bool failed = false;
  while (!stopping_) {
    if (!failed) co_await changed_->wait(Deadline::never());
    if (stopping_) break;
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
  while (!stopping_) {
    const Deadline soon(look_again);
    if (!to_propose_) co_await propose_->wait(soon);
    to_propose_ = false;
    if (stopping_) break;
    co_await fabric::pause_for(*progress_, settle_delay);
    if (announced_.empty() || announced_.begin()->second.member.id == 0) continue;
    std::uint64_t lowest = ~std::uint64_t{0};
    std::vector<Announcement> announced;
    for (const auto& [path, a] : announced_) {
      lowest = std::min(lowest, a.member.id);
      announced.push_back(a);
    }
    if (lowest != options_.id) continue;
    try {
      auto path = pool_path(options_.pool, "view");
      auto entry = co_await directory_->get(path, Deadline(directory_patience));
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
  if (view.settled) {
    // What others own now they may put again under versions that were dropped here. Nobody holds those any more, and what is
    // still under way is of an older view.
    if (!view.members.empty())
      tombstones_.forget_if([&](const std::string& packed) {
        const auto key = unpack_key(packed);
        return !is_owner(*placement, key.ns, key.row, std::nullopt);
      });
    fabric::spawn(*progress_, let_go(placement));
  } else {
    fabric::spawn(*progress_, rebalance(placement));
  }
  for (const auto& callback : view_callbacks_) callback(view);
}

// Offers each object that is here, the oldest version first, to the owners that lack it. Ends early when the view changes again.
Task<void> ServerCore::rebalance(std::shared_ptr<const Placement> placement) {
  auto self = shared_from_this();
  const Background background(*this);
  const auto& view = placement->view();
  const auto current = [&] { return !stopping_ && members_->placement() == placement; };
  std::string after;
  bool more = true;
  bool complete = true;
  auto started = base::Clock::now();
  std::uint64_t sent_bytes = 0;
  while (more && current()) {
    // By namespace and owner: messages carry one namespace.
    std::map<std::pair<Namespace, std::uint64_t>, std::vector<ObjectStore::Write>> offers;
    std::size_t visited = 0;
    std::string last;
    const auto collect = [&](const ObjectTable::Entry& entry) {
      const auto owners = placement->owners(entry.ns, entry.row, entry.object.tag);
      for (const auto o : owners.all()) {
        const auto id = view.members[o].id;
        if (id == options_.id) continue;
        auto& to = offers[{entry.ns, id}];
        for (const auto& older : entry.older) to.push_back(offer_of(entry, older));
        to.push_back(offer_of(entry, entry.object));
      }
      return ++visited < rebalance_batch;
    };
    after = store_->table().scan_all(after, rebalance_batch, collect);
    more = !after.empty();
    for (auto& [to, writes] : offers) {
      if (!current()) co_return;
      try {
        const std::uint64_t bytes = co_await offer(*view.find(to.second), to.first, std::move(writes), placement);
        sent_bytes += bytes;
        counters_.rebalanced_bytes += bytes;
        // Bounded in bandwidth: wait until what was sent is within it.
        const std::chrono::duration<double> due(
            static_cast<double>(sent_bytes) /
            static_cast<double>(std::max<std::uint64_t>(1, options_.rebalance_bytes_per_s)));
        const auto spent = base::Clock::now() - started;
        const auto ahead = std::chrono::duration_cast<std::chrono::nanoseconds>(due) - spent;
        if (ahead > 1ms) co_await fabric::pause_for(*progress_, ahead);
      } catch (const Error& error) {
        complete = false;
        base::log(base::Level::warn, "objects could not be passed on",
                  {{"pool", options_.pool}, {"server", view.find(to.second)->name}, {"why", error.what()}});
      }
    }
  }
  if (!current()) co_return;
  if (!complete) {
    // Tried again as long as this view stands.
    co_await fabric::pause_for(*progress_, 500ms);
    if (current()) fabric::spawn(*progress_, rebalance(placement));
    co_return;
  }
  finished_view_ = view.number;
  changed_->notify_all();
}

Task<std::uint64_t> ServerCore::offer(Member member, Namespace ns, std::vector<ObjectStore::Write> writes,
                                      std::shared_ptr<const Placement> placement) {
  auto self = shared_from_this();
  const Deadline deadline(Timeout(30'000));
  auto channel = co_await members_->channel(member, deadline);
  fb::PeersClient peer(channel);
  fb::MissingRequestT request;
  request.view = placement->view().number;
  std::vector<Key> keys;
  for (const auto& w : writes) {
    keys.push_back({w.row, w.column});
    request.versions.push_back(w.object.version);
  }
  request.keys = pack_keys(ns, keys);
  rpc::CallOptions options{deadline};
  auto reply = co_await peer.missing(std::move(request), options);
  std::uint64_t total = 0;
  std::vector<ObjectStore::Write> batch;
  std::uint64_t batch_bytes = 0;
  bool batch_durable = false;
  for (std::size_t n = 0; n <= reply.missing.size(); ++n) {
    const bool end = n == reply.missing.size();
    if (!batch.empty() && (end || batch_bytes >= rebalance_batch_bytes || batch.size() >= rebalance_batch)) {
      auto sending = std::exchange(batch, {});
      total += std::exchange(batch_bytes, 0);
      const bool durable = std::exchange(batch_durable, false);
      co_await send_replicas(member, placement->view().number, std::move(sending), false, durable, 0, true, deadline);
    }
    if (end) break;
    const auto index = reply.missing[n];
    if (index >= writes.size()) throw Error(Errc::protocol, "a server lacks what was not offered");
    auto& w = writes[index];
    const std::uint64_t version = w.object.version;
    auto loaded = co_await store_->load(ns, w.row, w.column, version, deadline);
    if (!loaded) continue;  // dropped meanwhile
    w.object = loaded->object;
    // What is on disk here must be there, too, before anybody lets go of it.
    batch_durable = batch_durable || w.object.on_disk;
    batch_bytes += w.object.bytes;
    batch.push_back(std::move(w));
  }
  co_return total;
}

// Former owners drop what others hold now.
Task<void> ServerCore::let_go(std::shared_ptr<const Placement> placement) {
  auto self = shared_from_this();
  const Background background(*this);
  std::string after;
  do {
    std::vector<UnpackedKey> gone;
    const auto collect = [&](const ObjectTable::Entry& entry) {
      const auto owners = placement->owners(entry.ns, entry.row, entry.object.tag);
      for (const auto o : owners.all())
        if (placement->view().members[o].id == options_.id) return true;
      gone.push_back({entry.ns, std::string(entry.row), std::string(entry.column)});
      return true;
    };
    after = store_->table().scan_all(after, 1000, collect);
    for (auto& key : gone) {
      if (stopping_ || members_->placement() != placement) co_return;
      co_await store_->drop(key.ns, key.row, key.column, std::nullopt, false, Deadline(Timeout(30'000)));
    }
    co_await fabric::pause_for(*progress_, 1ms);
  } while (!after.empty() && !stopping_ && members_->placement() == placement);
  if (stopping_ || members_->placement() != placement) co_return;
  finished_view_ = placement->view().number;  // nothing that others own is left here (receivers)
  changed_->notify_all();
}

// A server that is taken for dead while it leaves has not handed on what it has: it comes back, and leaves again.
Task<void> ServerCore::leave(Deadline deadline) {
  auto self = shared_from_this();
  for (;;) {
    co_await wait_member(true, deadline);
    const auto lost = leases_lost_;
    leaving_ = true;
    co_await announce(true, finished_view_, deadline);
    co_await wait_member(false, deadline);
    auto path = server_path(options_.pool, options_.id);
    const auto entry = co_await directory_->get(std::move(path), deadline);
    if (entry && lost == leases_lost_) co_return;
    leaving_ = false;
    changed_->notify_all();
  }
}

// Until the view names this server; or until it does not, or nobody else is there.
Task<void> ServerCore::wait_member(bool there, Deadline deadline) {
  auto self = shared_from_this();
  for (;;) {
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
