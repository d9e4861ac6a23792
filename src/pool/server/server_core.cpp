#include "pool/server/server_core.hpp"

#include <algorithm>
#include <deque>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "pool/keys/policy.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/store/key_locks.hpp"
#include "pool/store/object_info.hpp"

namespace penstock::pool {
namespace {

constexpr std::size_t max_failed_puts = 100'000;
// Between the first versions before and after a server was lost: a key is put fewer times.
constexpr std::uint64_t versions_apart = std::uint64_t{1} << 40;
constexpr std::uint64_t most_losses_told = 1 << 22;

}  // namespace

// Exposures of objects' memory that one channel's peer may read; gone with the lease or the channel.
struct ServerCore::ChannelLeases {
  struct Lease {
    std::shared_ptr<const Blob> blob;
    transport::Exposure exposure;
  };
  std::unordered_map<std::uint64_t, Lease> leases;
};

ServerCore::ServerCore(std::shared_ptr<fabric::Progress> progress, std::shared_ptr<directory::Directory> directory,
                       ServerOptions options, fabric::Token secret, Members::Connect connect)
    : progress_(std::move(progress)),
      directory_(std::move(directory)),
      options_(std::move(options)),
      secret_(secret),
      workers_(std::make_unique<fabric::Workers>(*progress_, options_.workers, "pool")),
      store_(std::make_unique<ObjectStore>(progress_, options_.store)),
      locks_(std::make_unique<KeyLocks>(*progress_)),
      changed_(std::make_unique<fabric::Signal>(*progress_)),
      propose_(std::make_unique<fabric::Signal>(*progress_)),
      background_ended_(std::make_unique<fabric::Signal>(*progress_)),
      drain_moved_(std::make_unique<fabric::Signal>(*progress_)) {
  Members::Options members;
  members.pool = options_.pool;
  members.role = "server";
  members.token = role_token(secret_, "server");
  members.self = options_.id;
  members.connect = std::move(connect);
  members_ = std::make_shared<Members>(progress_, directory_, std::move(members));
}

ServerCore::~ServerCore() = default;

// ------------------------------------------------------------------------------------------------------ views and roles

void ServerCore::require_role(const rpc::Call& call, std::string_view role) {
  const auto& theirs = call.channel().role();
  if (role_rank(theirs) < role_rank(role))
    throw Error(Errc::forbidden, "role " + theirs + " may not do this; it takes role " + std::string(role));
}

void ServerCore::require_for_clients(const Namespace& ns, std::string_view row, std::string_view column) {
  const auto& policy = policy_of(ns);
  if (policy.is_secret && policy.is_secret(row, column)) throw Error(Errc::forbidden, std::string(policy.why_secret));
}

void ServerCore::require_changeable(const rpc::Call& call, const Namespace& ns) {
  const auto why = policy_of(ns).why_servers_only;
  if (!why.empty() && call.channel().role() != "server") throw Error(Errc::forbidden, std::string(why));
}

Task<std::shared_ptr<const Placement>> ServerCore::check_view(std::uint64_t callers, Deadline deadline) {
  auto placement = members_->placement();
  if (!placement || callers > placement->view().number) placement = co_await members_->at_least(callers, deadline);
  if (callers != 0 && callers < placement->view().number)
    throw Error(Errc::stale_view, "the pool is at view " + std::to_string(placement->view().number) +
                                      ", the caller at " + std::to_string(callers));
  if (stopping_) throw Error(Errc::stale_view, "this server is stopping");
  co_return placement;
}

bool ServerCore::is_primary(const Placement& placement, const Namespace& ns, std::string_view row,
                            std::optional<std::uint64_t> tag) const {
  const auto owners = placement.owners(ns, row, tag);
  return placement.view().members[owners.index[0]].id == options_.id;
}

bool ServerCore::is_owner(const Placement& placement, const Namespace& ns, std::string_view row,
                          std::optional<std::uint64_t> tag) const {
  const auto owners = placement.owners(ns, row, tag);
  return std::any_of(owners.all().begin(), owners.all().end(),
                     [&](std::uint32_t i) { return placement.view().members[i].id == options_.id; });
}

// --------------------------------------------------------------------------------------------------------------- objects

// Versions for what is to be put, by what is there. Objects that are refused get their error.
struct ServerCore::Plan {
  std::vector<Put> puts;
  std::vector<std::string> packed;
  IfExists if_exists = IfExists::refuse;
  bool again = false, twice = false;  // twice: a key may be named more than once
  std::uint64_t since = 0;            // ServerCore::member_since_ when it began
  std::int64_t now = base::unix_time_us();
  Elsewhere elsewhere;  // what other servers hold
  std::unordered_map<std::string, std::uint64_t>
      least;  // versions must be above: replicas of puts that failed have them
  std::vector<PutResult> results;
  std::vector<std::size_t> written;  // indices of puts

  void choose(ObjectStore& store, const Tombstones& tombstones, std::uint64_t first_version) {
    results.assign(puts.size(), {});
    written.clear();
    std::unordered_map<std::string, std::uint64_t> in_batch;  // where it names a key twice: the second finds the first
    for (std::size_t i = 0; i < puts.size(); ++i) {
      const auto& p = puts[i];
      const auto* present = store.table().find(p.ns, p.row, p.column);
      const auto coming = store.on_its_way(packed[i]);
      const auto earlier = in_batch.find(packed[i]);
      Holding newest;
      std::uint64_t dropped = tombstones.newest(packed[i]);
      if (present) newest = {0, present->version, present->bytes, present->checksum};
      if (const auto others = elsewhere.find(packed[i]); others != elsewhere.end()) {
        for (const auto& h : others->second) {
          if (h.dropped) dropped = std::max(dropped, h.version);
          else if (h.version > newest.version) newest = h;
        }
      }
      const auto same = [&](const auto& one) {
        return one.version != 0 && one.checksum == p.checksum && one.bytes == p.blob->size();
      };
      const bool once = again && earlier == in_batch.end() && !least.contains(packed[i]);
      if (once && same(newest)) {
        results[i].version = newest.version;  // an earlier try did it; what it did not come to is done now
      } else if (once && same(coming) && coming.version > std::max(newest.version, dropped)) {
        results[i].version = coming.version;  // an earlier try is doing it
      } else {
        auto version = newest.version;
        if (earlier != in_batch.end()) version = std::max(version, earlier->second);
        if (version != 0 && if_exists == IfExists::refuse) {
          results[i].error = already_there(version);
          continue;
        }
        version = std::max({version + 1, first_version, dropped + 1, coming.version + 1});
        if (const auto at = least.find(packed[i]); at != least.end()) version = std::max(version, at->second + 1);
        results[i].version = version;
      }
      if (twice) in_batch[packed[i]] = results[i].version;
      written.push_back(i);
    }
  }
  void raise(const VersionsTaken& others) {
    for (const auto& [key, newest] : others.newest) least[key] = std::max(least[key], newest);
  }
  std::vector<ObjectStore::Write> writes() const {
    std::vector<ObjectStore::Write> all;
    all.reserve(written.size());
    for (const auto i : written) {
      const auto& p = puts[i];
      auto& write = all.emplace_back();
      write.ns = p.ns;
      write.row = p.row;
      write.column = p.column;
      write.object.version = results[i].version;
      write.object.bytes = p.blob->size();
      write.object.checksum = p.checksum;
      write.object.put_us = now;
      write.object.tag = p.tag;
      write.object.metadata = p.metadata;
      write.object.blob = p.blob;
      write.keep_older = if_exists == IfExists::add_version;
    }
    return all;
  }
};

std::vector<ObjectStore::Write> ServerCore::plan_writes(const Plan& plan) { return plan.writes(); }

std::uint64_t ServerCore::plan_since(const Plan& plan) { return plan.since; }

std::uint64_t ServerCore::first_version() const {
  const auto losses = std::min(members_->placement()->view().losses, most_losses_told);
  return std::max(store_->first_version(), losses * versions_apart + 1);
}

void ServerCore::raise_plan(Plan& plan, const VersionsTaken& taken) {
  plan.raise(taken);
  for (const auto i : plan.written)
    if (const auto at = plan.least.find(plan.packed[i]); at != plan.least.end())
      plan.results[i].version = std::max(plan.results[i].version, at->second + 1);
}

void ServerCore::check_primary(const Plan& plan) const {
  require_there_since(plan.since);
  const auto present = members_->placement();
  const Put* last = nullptr;  // most batches stay in a row for a while
  for (const auto& p : plan.puts) {
    if (last != nullptr && last->row == p.row && last->tag == p.tag && last->ns == p.ns) continue;
    last = &p;
    if (!is_primary(*present, p.ns, p.row, p.tag))
      throw Error(Errc::stale_view, "the pool's membership changed during the put");
  }
}

Task<std::vector<ServerCore::PutResult>> ServerCore::put(std::vector<Put> puts, IfExists if_exists,
                                                         Acknowledge acknowledge, Deadline deadline, bool again) {
  auto self = shared_from_this();
  if (puts.empty()) co_return std::vector<PutResult>{};
  auto plan = std::make_shared<Plan>();
  plan->puts = std::move(puts);
  plan->if_exists = if_exists;
  plan->again = again;
  plan->since = member_since_;
  plan->packed.reserve(plan->puts.size());
  for (const auto& p : plan->puts) plan->packed.push_back(pack_key(p.ns, p.row, p.column));
  auto held = std::make_shared<KeyLocks::Held>(co_await locks_->acquire(plan->packed, deadline));
  plan->twice = held->size() != plan->packed.size();
  // Reserving memory and the lock took their time: another server may be the primary by now, and put the same key.
  check_primary(*plan);
  co_await learn_versions(plan, deadline);

  // What is in memory is acknowledged; its replicas follow, before anything else is done to these keys.
  if (acknowledge == Acknowledge::memory) {
    check_primary(*plan);  // learning took its time, too: what is put here now would not be passed on any more
    plan->choose(*store_, tombstones_, first_version());
    if (plan->written.empty()) co_return plan->results;
    auto counted = members_->placement();
    co_await store_one(plan, false, deadline);
    if (members_->placement() != counted) check_primary(*plan);
    const auto& view = counted->view();
    if ((view.replication > 1 && view.members.size() > 1) || members_->placement() != counted)
      fabric::spawn(*progress_, replicate_behind(plan, std::move(held)));
    co_return plan->results;
  }
  // Replicas first: what can be read has been made as safe as it was asked to be.
  const bool durable = acknowledge == Acknowledge::durable;
  std::optional<Error> failed;
  try {
    auto counted = co_await replicate_plan(plan, durable, deadline);
    if (plan->written.empty()) co_return plan->results;
    check_primary(*plan);
    co_await store_one(plan, durable, deadline);
    // In a view that came meanwhile these may be missing: they came after what was here had been passed on.
    while (members_->placement() != counted) {
      check_primary(*plan);
      counted = members_->placement();
      co_await replicate_to_owners(plan->writes(), false, durable, 0, deadline);
    }
  } catch (const Error& error) {
    failed = error;
  }
  if (failed) {
    note_failed(*plan);
    for (const auto i : plan->written) plan->results[i].error = failed;
  } else {
    forget_failed(*plan);
  }
  co_return plan->results;
}

// Without these a drop here, where nothing is, would leave what another owner has taken, and the next view would restore it.
// Bounded: beyond max_failed_puts any other one is forgotten.
void ServerCore::note_failed(const Plan& plan) {
  for (const auto i : plan.written) {
    auto& version = failed_puts_[plan.packed[i]];
    version = std::max(version, plan.results[i].version);
    if (failed_puts_.size() <= max_failed_puts) continue;
    auto any = failed_puts_.begin();
    if (any->first == plan.packed[i]) ++any;
    failed_puts_.erase(any);
  }
}

// The owners have newer versions now.
void ServerCore::forget_failed(const Plan& plan) {
  if (failed_puts_.empty()) return;
  for (const auto i : plan.written) failed_puts_.erase(plan.packed[i]);
}

Task<void> ServerCore::store_one(std::shared_ptr<Plan> plan, bool durable, Deadline deadline) {
  auto self = shared_from_this();
  auto writes = plan->writes();
  counters_.puts += writes.size();
  for (const auto& w : writes) counters_.bytes_in += w.object.bytes;
  co_await store_->put(std::move(writes), durable, durable, deadline);
}

// In a view that is not settled, the newest version may lie at another server.
Task<void> ServerCore::learn_versions(std::shared_ptr<Plan> plan, Deadline deadline) {
  auto self = shared_from_this();
  const auto placement = members_->placement();
  std::vector<Key> keys;
  for (const auto& p : plan->puts)
    if (may_lie_elsewhere(*placement, p.ns, p.row, p.tag)) keys.push_back({p.row, p.column});
  if (keys.empty()) co_return;
  plan->elsewhere = co_await ask_others(plan->puts[0].ns, std::move(keys), placement, true, deadline);
}

// Chooses versions and has the other owners take the objects, with higher versions where they have others already.
Task<std::shared_ptr<const Placement>> ServerCore::replicate_plan(std::shared_ptr<Plan> plan, bool durable,
                                                                  Deadline deadline) {
  auto self = shared_from_this();
  for (;;) {
    plan->choose(*store_, tombstones_, first_version());
    auto counted = members_->placement();
    if (plan->written.empty()) co_return counted;
    try {
      co_await replicate_to_owners(plan->writes(), false, durable, 0, deadline);
      co_return counted;
    } catch (const VersionsTaken& taken) {
      require_there_since(plan->since);
      plan->raise(taken);
    }
  }
}

Task<std::optional<ObjectStore::Loaded>> ServerCore::load(Namespace ns, std::string row, std::string column,
                                                          std::optional<std::uint64_t> tag,
                                                          std::optional<std::uint64_t> version, Deadline deadline) {
  auto self = shared_from_this();
  std::vector<Key> keys{{row, column}};
  auto passing = co_await fetch_newer(ns, std::move(keys), tag, version, deadline);
  if (const auto at = passing.find(pack_key(ns, row, column)); at != passing.end())
    co_return ObjectStore::Loaded{std::move(at->second)};
  co_return co_await load_here(ns, std::move(row), std::move(column), version, deadline);
}

Task<std::optional<ObjectStore::Loaded>> ServerCore::load_here(Namespace ns, std::string row, std::string column,
                                                               std::optional<std::uint64_t> version,
                                                               Deadline deadline) {
  auto self = shared_from_this();
  ++counters_.gets;
  co_return co_await store_->load(ns, std::move(row), std::move(column), version, deadline);
}

Task<std::optional<ObjectStore::Loaded>> ServerCore::load_anywhere(Namespace ns, std::string row, std::string column,
                                                                   std::optional<std::uint64_t> tag, bool wait,
                                                                   Deadline deadline) {
  auto self = shared_from_this();
  const auto placement = members_->placement();
  // A replica may lag behind what its primary has acknowledged: only what it has counts there.
  const bool here = is_owner(*placement, ns, row, tag) && store_->table().find(ns, row, column) != nullptr;
  if (here || is_primary(*placement, ns, row, tag)) {
    for (;;) {
      auto loaded = co_await load(ns, row, column, tag, std::nullopt, deadline);
      if (loaded || !wait) co_return loaded;
      if (members_->placement() != placement)
        throw Error(Errc::stale_view, "the pool's membership changed before the wait");
      const bool present = co_await wait_present(ns, row, column, deadline);
      if (!present) throw Error(Errc::timeout, "the object did not come in time");
    }
  }
  std::optional<Error> last;
  const auto owners = placement->owners(ns, row, tag);
  for (const auto o : owners.all()) {
    const Member member = placement->view().members[o];
    if (member.id == options_.id) continue;
    try {
      Key key{row, column};
      co_return co_await load_from(member, placement->view().number, ns, std::move(key), tag, wait, deadline);
    } catch (const Error& error) {
      if (error.code() != Errc::peer_lost) throw;
      last = error.in("server " + member.name);
    }
  }
  throw *last;
}

Task<std::optional<ObjectStore::Loaded>> ServerCore::load_from(Member member, std::uint64_t view, Namespace ns, Key key,
                                                               std::optional<std::uint64_t> tag, bool wait,
                                                               Deadline deadline) {
  auto self = shared_from_this();
  auto channel = co_await members_->channel(std::move(member), deadline);
  fb::GetRequestT request;
  request.view = view;
  std::vector<Key> keys{std::move(key)};
  request.keys = pack_keys(ns, keys);
  request.tagged = tag.has_value();
  request.tag = tag.value_or(0);
  request.bytes = ~std::uint64_t{0};
  request.wait = wait;
  rpc::CallOptions options{deadline};
  fb::ObjectsClient objects(channel);
  auto reply = co_await objects.get(std::move(request), options);
  // Only an object of no bytes comes so here: none were to be inlined.
  if (reply.simple.size() == 1 && reply.got.empty() && reply.versions.size() == 1 && reply.checksums.size() == 1 &&
      reply.bytes.size() == 1 && reply.bytes[0] == 0) {
    ObjectStore::Loaded nothing;
    nothing.object.version = reply.versions[0];
    nothing.object.checksum = reply.checksums[0];
    nothing.object.blob = co_await store_->reserve(0, deadline);
    co_return nothing;
  }
  if (!reply.simple.empty() || reply.got.size() != 1) throw Error(Errc::protocol, "a reply of another length");
  const auto& got = *reply.got[0];
  if (got.code == static_cast<std::uint16_t>(Errc::not_found)) co_return std::nullopt;
  if (got.code != 0) throw unpack_status(got.code, got.message);
  if (!got.info) throw Error(Errc::protocol, "a reply without information");
  ObjectStore::Loaded loaded;
  auto blob = co_await store_->reserve(got.info->bytes, deadline);
  if (got.inlined) {
    const auto part = part_of(reply.data, got.offset, got.inline_size);
    if (part.size() != got.info->bytes) throw Error(Errc::protocol, "a reply of another length");
    std::copy(part.begin(), part.end(), blob->writable().begin());
  } else {
    const transport::BulkDescriptor from = got.bulk;
    if (from.bytes() != got.info->bytes) throw Error(Errc::protocol, "a reply of another length");
    std::shared_ptr<const void> owner = blob;
    co_await channel->bulk().pull(from, 0, blob->writable(), deadline, std::move(owner));
    fb::ReleaseRequestT release;
    release.leases.push_back(got.lease);
    (void)objects.start_release(release, options);
  }
  loaded.object.version = got.info->version;
  loaded.object.bytes = got.info->bytes;
  loaded.object.checksum = got.info->checksum;
  loaded.object.metadata = std::make_shared<const std::string>(got.info->metadata);
  loaded.object.blob = std::move(blob);
  co_return loaded;
}

Task<bool> ServerCore::wait_present(Namespace ns, std::string row, std::string column, Deadline deadline) {
  auto self = shared_from_this();
  auto park = [&](std::function<void()> present) { return store_->table().wait(ns, row, column, std::move(present)); };
  co_return co_await wait_woken(park, deadline);
}

Task<bool> ServerCore::wait_count(Namespace ns, std::string row, const KeyPattern& pattern, std::size_t count,
                                  Deadline deadline) {
  auto self = shared_from_this();
  auto park = [&](std::function<void()> reached) {
    return store_->table().wait_row(ns, row, pattern, count, std::move(reached));
  };
  co_return co_await wait_woken(park, deadline);
}

// Until what was parked is called, or the view has changed (stale_view), or the deadline (false): whichever comes first.
Task<bool> ServerCore::wait_woken(std::function<ObjectTable::WaiterId(std::function<void()>)> park, Deadline deadline) {
  const auto number = members_->placement()->view().number;
  auto woken = std::make_shared<fabric::Signal>(*progress_);
  auto present = std::make_shared<bool>(false);
  const auto id = park([woken, present] {
    *present = true;
    woken->notify_all();
  });
  struct Parked {
    ServerCore& core;
    ObjectTable::WaiterId id;
    const bool& done;
    std::shared_ptr<fabric::Signal> woken;
    ~Parked() {
      core.stale_wakes_.erase(woken);
      if (!done) core.store_->table().cancel(id);
    }
  } parked{*this, id, *present, woken};
  stale_wakes_.insert(woken);
  while (!*present) {
    const bool notified = co_await woken->wait(deadline);
    if (*present) break;
    if (!notified) co_return false;
    if (members_->placement()->view().number != number || stopping_)
      throw Error(Errc::stale_view, "the pool's membership changed while waiting");
  }
  co_return true;
}

Task<bool> ServerCore::drop(Namespace ns, std::string row, std::string column, std::optional<std::uint64_t> tag,
                            std::optional<std::uint64_t> version, Acknowledge acknowledge, Deadline deadline,
                            std::uint64_t request) {
  auto self = shared_from_this();
  const auto packed = pack_key(ns, row, column);
  auto held = co_await locks_->acquire({&packed, 1}, deadline);
  const auto placement = members_->placement();
  if (!is_primary(*placement, ns, row, tag))
    throw Error(Errc::stale_view, "the pool's membership changed before the drop");
  // An earlier try did it, and its answer was lost. What has been put since stays; other owners may not have heard of it.
  auto newest = tombstones_.dropped_by(packed, request);
  bool there = newest != 0;
  if (!there) {
    if (const auto* present = store_->table().find(ns, row, column, version)) newest = present->version;
    if (may_lie_elsewhere(*placement, ns, row, tag)) {
      std::vector<Key> keys{{row, column}};
      const auto elsewhere = co_await ask_others(ns, std::move(keys), placement, false, deadline);
      if (const auto found = elsewhere.find(packed); found != elsewhere.end())
        for (const auto& h : found->second)
          if (!h.dropped && (!version || h.version == *version)) newest = std::max(newest, h.version);
    }
    there = newest != 0;
    if (const auto put = failed_puts_.find(packed); put != failed_puts_.end() && (!version || put->second == *version))
      newest = std::max(newest, put->second);
  }
  if (newest == 0) co_return false;
  std::vector<ObjectStore::Write> writes(1);
  writes[0].ns = ns;
  writes[0].row = row;
  writes[0].column = column;
  writes[0].object.version = newest;
  writes[0].object.tag = tag;
  writes[0].keep_older = version.has_value();  // one version only
  const bool durable = acknowledge == Acknowledge::durable && !options_.store.tiers.empty();
  tombstones_.note(packed, newest, version.has_value(), 0);  // nobody brings it back meanwhile
  co_await replicate_to_owners(std::move(writes), true, durable, there ? request : 0, deadline);
  counters_.drops += there;
  co_await drop_here(ns, std::move(row), std::move(column), newest, version.has_value(), durable, deadline);
  tombstones_.note(packed, newest, version.has_value(), there ? request : 0);
  if (const auto put = failed_puts_.find(packed);
      put != failed_puts_.end() && (version ? put->second == *version : put->second <= newest))
    failed_puts_.erase(put);
  co_return there;
}

// Everything up to a version, or only that one. Newer ones were put since.
Task<void> ServerCore::drop_here(Namespace ns, std::string row, std::string column, std::uint64_t version, bool only,
                                 bool durable, Deadline deadline) {
  auto self = shared_from_this();
  const auto* present = store_->table().find(ns, row, column);
  if (!only && present && present->version > version) co_return;
  std::optional<std::uint64_t> which;
  if (only) which = version;
  co_await store_->drop(ns, std::move(row), std::move(column), which, durable, deadline);
}

// ---------------------------------------------------------------------------------------------------------------- leases

fb::GotT ServerCore::give(rpc::Channel& channel, const Namespace& ns, const Key& key, const StoredObject& object,
                          std::uint64_t offset, std::uint64_t bytes, std::uint64_t inline_bytes,
                          std::vector<std::uint8_t>& data) {
  fb::GotT got;
  got.info = pack_info(key, object, store_->table().waiters(ns, key.row, key.column));
  if (offset > object.bytes) throw Error(Errc::invalid_argument, "the part begins beyond the object's end");
  const auto part = object.blob->bytes().subspan(offset, std::min(bytes, object.bytes - offset));
  counters_.bytes_out += part.size();
  if (part.size() <= inline_bytes && data.size() + part.size() <= (std::size_t{8} << 20)) {
    got.inlined = true;
    got.offset = data.size();
    got.inline_size = part.size();
    const auto* from = reinterpret_cast<const std::uint8_t*>(part.data());
    data.insert(data.end(), from, from + part.size());
    return got;
  }
  auto& leases = leases_[&channel];
  if (!leases) {
    leases = std::make_shared<ChannelLeases>();
    channel.on_closed([weak = weak_from_this(), raw = &channel](const Error&) {
      if (auto self = weak.lock()) self->leases_.erase(raw);
    });
  }
  if (leases->leases.size() >= options_.max_leases)
    throw Error(Errc::overloaded, "a client may hold the memory of " + std::to_string(options_.max_leases) +
                                      " objects at a server (its max_leases)");
  got.lease = next_lease_++;
  auto exposure = channel.bulk().expose(part, object.blob);
  got.bulk = exposure.descriptor();
  leases->leases.emplace(got.lease, ChannelLeases::Lease{object.blob, std::move(exposure)});
  return got;
}

void ServerCore::release(rpc::Channel& channel, std::uint64_t lease) {
  if (auto it = leases_.find(&channel); it != leases_.end()) it->second->leases.erase(lease);
}

std::uint64_t ServerCore::leases() const {
  std::uint64_t total = 0;
  for (const auto& [channel, leases] : leases_) total += leases->leases.size();
  return total;
}

}  // namespace penstock::pool
