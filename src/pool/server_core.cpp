#include "pool/server_core.hpp"

#include <algorithm>
#include <deque>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "pool/key_locks.hpp"
#include "pool/protocol.hpp"

namespace penstock::pool {
namespace {

constexpr std::uint64_t inline_replica_bytes = 256 << 10;  // a replica batch below this travels in the message

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// Exposures of objects' memory that one channel's peer may read; gone with the lease or the channel.
struct ServerCore::ChannelLeases {
  struct Lease {
    std::shared_ptr<const Blob> blob;
    rpc::Exposure exposure;
  };
  std::unordered_map<std::uint64_t, Lease> leases;
};

ServerCore::ServerCore(std::shared_ptr<fabric::Progress> progress, std::shared_ptr<rpc::Directory> directory,
                       ServerOptions options, fabric::Token secret)
    : progress_(std::move(progress)),
      directory_(std::move(directory)),
      options_(std::move(options)),
      secret_(secret),
      workers_(std::make_unique<fabric::Workers>(*progress_, options_.workers, "pool")),
      store_(std::make_unique<ObjectStore>(progress_, options_.store)),
      locks_(std::make_unique<KeyLocks>(*progress_)),
      changed_(std::make_unique<fabric::Signal>(*progress_)),
      propose_(std::make_unique<fabric::Signal>(*progress_)) {
  Members::Options members;
  members.pool = options_.pool;
  members.role = "server";
  members.token = role_token(secret_, "server");
  members.self = options_.id;
  members_ = std::make_shared<Members>(progress_, directory_, std::move(members));
}

ServerCore::~ServerCore() = default;

// ------------------------------------------------------------------------------------------------------ views and roles

void ServerCore::require_role(const rpc::Call& call, std::string_view role) {
  const auto& theirs = call.channel().role();
  if (role_rank(theirs) < role_rank(role))
    throw Error(Errc::forbidden, "role " + theirs + " may not do this; it takes role " + std::string(role));
}

Task<std::shared_ptr<const Placement>> ServerCore::check_view(std::uint64_t callers, Deadline deadline) {
  auto placement = members_->placement();
  if (!placement || callers > placement->view().number) placement = co_await members_->at_least(callers, deadline);
  if (callers != 0 && callers < placement->view().number)
    throw Error(Errc::stale_view, "the pool is at view " + std::to_string(placement->view().number) + ", the caller at " +
                                      std::to_string(callers));
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

Task<std::vector<ServerCore::PutResult>> ServerCore::put(std::vector<Put> puts, IfExists if_exists,
                                                         Acknowledge acknowledge, Deadline deadline) {
  auto self = shared_from_this();
  std::vector<PutResult> results(puts.size());
  std::vector<std::string> packed;
  packed.reserve(puts.size());
  for (const auto& p : puts) packed.push_back(pack_key(p.ns, p.row, p.column));
  auto held = co_await locks_->acquire(packed, deadline);

  const auto placement = members_->placement();
  // Reserving memory and the lock took their time: another server may be the primary by now, and put the same key.
  const auto check_primary = [&] {
    const auto present = members_->placement();
    for (const auto& p : puts)
      if (!is_primary(*present, p.ns, p.row, p.tag))
        throw Error(Errc::stale_view, "the pool's membership changed during the put");
  };
  check_primary();
  std::unordered_map<std::string, std::uint64_t> in_batch;  // versions given here; only where the batch names a key twice
  const bool twice = held.size() != packed.size();
  std::vector<ObjectStore::Write> writes;
  std::vector<std::size_t> written;  // index of each write in puts
  writes.reserve(puts.size());
  const auto now = now_us();
  const auto write_of = [&](std::size_t i) {
    const auto& p = puts[i];
    ObjectStore::Write write;
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
    return write;
  };
  for (std::size_t i = 0; i < puts.size(); ++i) {
    auto& p = puts[i];
    // A batch may name a key twice: the second finds the first.
    auto* present = store_->table().find(p.ns, p.row, p.column);
    if (!present && !placement->view().settled) {
      const bool fetched = co_await fetch_from_others(p.ns, p.row, p.column, p.tag, placement, deadline);
      if (fetched) present = store_->table().find(p.ns, p.row, p.column);
    }
    std::uint64_t newest = present ? present->version : 0;
    if (auto it = in_batch.find(packed[i]); it != in_batch.end()) newest = std::max(newest, it->second);
    if (newest != 0 && if_exists == IfExists::refuse) {
      results[i].error =
          Error(Errc::already_exists, "the object is there already (version " + std::to_string(newest) + ")");
      continue;
    }
    std::uint64_t version = newest != 0 ? newest + 1 : store_->first_version();
    if (auto it = dropped_.find(packed[i]); it != dropped_.end()) version = std::max(version, it->second + 1);
    results[i].version = version;
    if (twice) in_batch[packed[i]] = version;
    writes.push_back(write_of(i));
    written.push_back(i);
  }
  if (writes.empty()) co_return results;
  const bool durable = acknowledge == Acknowledge::durable;
  try {
    // Replicas first: what can be read has been made as safe as it was asked to be.
    const std::vector<bool> none(writes.size(), false);
    auto counted = members_->placement();
    co_await replicate_to_owners(writes, none, acknowledge != Acknowledge::memory, durable, deadline);
    if (members_->placement() != placement) check_primary();
    counters_.puts += writes.size();
    for (const auto& w : writes) counters_.bytes_in += w.object.bytes;
    co_await store_->put(std::move(writes), durable, durable, deadline);
    // In a view that came meanwhile these may be missing: they came after what was here had been passed on.
    while (members_->placement() != counted) {
      check_primary();
      counted = members_->placement();
      writes.clear();
      for (const auto i : written) writes.push_back(write_of(i));
      co_await replicate_to_owners(writes, none, true, durable, deadline);
    }
  } catch (const Error& error) {
    for (const auto i : written) results[i].error = error;
  }
  co_return results;
}

Task<std::optional<ObjectStore::Loaded>> ServerCore::load(Namespace ns, std::string row, std::string column,
                                                          std::optional<std::uint64_t> tag,
                                                          std::optional<std::uint64_t> version, Deadline deadline) {
  auto self = shared_from_this();
  const auto placement = members_->placement();
  if (!store_->table().find(ns, row, column, version) && placement && !placement->view().settled) {
    const bool fetched = co_await fetch_from_others(ns, row, column, tag, placement, deadline);
    if (!fetched) co_return std::nullopt;
  }
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
    const rpc::BulkDescriptor from = got.bulk;
    if (from.bytes() != got.info->bytes) throw Error(Errc::protocol, "a reply of another length");
    co_await channel->bulk().pull(from, 0, blob->writable(), deadline);
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
                            std::optional<std::uint64_t> version, Acknowledge acknowledge, Deadline deadline) {
  auto self = shared_from_this();
  std::vector<std::string> packed{pack_key(ns, row, column)};
  auto held = co_await locks_->acquire(packed, deadline);
  const auto placement = members_->placement();
  if (!is_primary(*placement, ns, row, tag))
    throw Error(Errc::stale_view, "the pool's membership changed before the drop");
  auto* present = store_->table().find(ns, row, column, version);
  if (!present && !placement->view().settled) {
    const bool fetched = co_await fetch_from_others(ns, row, column, tag, placement, deadline);
    if (fetched) present = store_->table().find(ns, row, column, version);
  }
  if (!present) co_return false;
  std::vector<ObjectStore::Write> writes(1);
  writes[0].ns = ns;
  writes[0].row = row;
  writes[0].column = column;
  writes[0].object = *present;
  writes[0].object.blob = nullptr;
  writes[0].keep_older = version.has_value();  // one version only
  if (!placement->view().settled) dropped_[packed[0]] = present->version;
  const std::vector<bool> gone(1, true);
  const bool durable = acknowledge == Acknowledge::durable && !options_.store.tiers.empty();
  co_await replicate_to_owners(writes, gone, true, durable, deadline);
  ++counters_.drops;
  co_return co_await store_->drop(ns, std::move(row), std::move(column), version, durable, deadline);
}

// ---------------------------------------------------------------------------------------------------------- replication

Task<void> ServerCore::replicate_to_owners(const std::vector<ObjectStore::Write>& writes, const std::vector<bool>& dropped,
                                           bool wait, bool durable, Deadline deadline) {
  auto self = shared_from_this();
  std::vector<std::size_t> left(writes.size());
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
  // Owners may change while we replicate (one died): those of the newest view are what counts.
  std::map<std::uint64_t, std::vector<bool>> have;  // by server: which writes it has
  for (;;) {
    const auto placement = members_->placement();
    const auto& view = placement->view();
    std::map<std::uint64_t, std::vector<std::size_t>> wanted;
    for (std::size_t i = 0; i < writes.size(); ++i) {
      const auto owners = placement->owners(writes[i].ns, writes[i].row, writes[i].object.tag);
      for (const auto o : owners.all()) {
        const auto id = view.members[o].id;
        if (id == options_.id) continue;
        auto& has = have[id];
        has.resize(writes.size());
        if (!has[i]) wanted[id].push_back(i);
      }
    }
    if (wanted.empty()) co_return;
    std::vector<std::pair<std::uint64_t, fabric::Future<void>>> sent;
    for (auto& [id, indices] : wanted) {
      std::vector<ObjectStore::Write> part;
      std::vector<bool> part_dropped;
      for (const auto i : indices) {
        part.push_back(writes[i]);
        part_dropped.push_back(dropped[i]);
      }
      auto task = send_replicas(*view.find(id), std::move(part), std::move(part_dropped), durable, deadline);
      sent.emplace_back(id, fabric::spawn(*progress_, std::move(task)));
    }
    if (!wait) co_return;
    std::optional<Error> failed;
    for (auto& [id, future] : sent) {
      try {
        co_await std::move(future);
        for (const auto i : wanted[id]) have[id][i] = true;
      } catch (const Error& error) {
        failed = error.in("replica on server " + view.find(id)->name);
      }
    }
    if (!failed) {
      if (members_->placement()->view().number == view.number) co_return;
      continue;
    }
    if (failed->code() != Errc::peer_lost && failed->code() != Errc::stale_view && failed->code() != Errc::timeout &&
        failed->code() != Errc::protocol)
      throw *failed;
    if (stopping_) throw Error(Errc::stale_view, "this server is stopping");
    // The replica is gone: a view without it will come. Until then this object is not as safe as it was asked to be.
    if (members_->placement()->view().number == view.number) {
      const auto soon = earlier(deadline, Deadline(Timeout(500)));
      co_await members_->newer_than(view.number, soon);
    }
    if (deadline.passed()) throw Error(Errc::timeout, failed->what());
  }
}

Task<void> ServerCore::send_replicas(Member member, std::vector<ObjectStore::Write> writes, std::vector<bool> dropped,
                                     bool durable, Deadline deadline) {
  auto self = shared_from_this();
  auto channel = co_await members_->channel(member, deadline);
  fb::ReplicateRequestT request;
  request.view = members_->placement()->view().number;
  request.durable = durable;
  std::vector<Key> keys;
  std::uint64_t total = 0;
  bool one_namespace = true;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const auto& w = writes[i];
    one_namespace = one_namespace && w.ns == writes[0].ns;
    keys.push_back({w.row, w.column});
    const std::uint64_t bytes = dropped[i] ? 0 : w.object.bytes;
    total += bytes;
    request.sizes.push_back(bytes);
    request.versions.push_back(w.object.version);
    request.checksums.push_back(w.object.checksum);
    request.put_us.push_back(w.object.put_us);
    request.tags.push_back(w.object.tag.value_or(0));
    request.tagged.push_back(w.object.tag.has_value());
    request.dropped.push_back(dropped[i]);
    request.keep_older.push_back(w.keep_older);
    request.metadata.push_back(w.object.metadata ? *w.object.metadata : std::string());
  }
  if (!one_namespace) throw Error(Errc::internal, "a batch of several namespaces");
  request.keys = pack_keys(writes[0].ns, keys);
  // Small batches in the message; a large single object straight from its memory; several large ones are sent one by one.
  if (total <= inline_replica_bytes) {
    request.data.reserve(total);
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (dropped[i]) continue;
      const auto bytes = writes[i].object.blob->bytes();
      const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
      request.data.insert(request.data.end(), data, data + bytes.size());
    }
  } else if (writes.size() > 1) {
    for (std::size_t i = 0; i < writes.size(); ++i) {
      std::vector<ObjectStore::Write> one{writes[i]};
      std::vector<bool> one_dropped{static_cast<bool>(dropped[i])};
      co_await send_replicas(member, std::move(one), std::move(one_dropped), durable, deadline);
    }
    co_return;
  }
  rpc::Exposure exposure;
  if (total > inline_replica_bytes) {
    exposure = channel->bulk().expose(writes[0].object.blob->bytes());
    request.bulk = exposure.descriptor();
  }
  fb::PeersClient peer(channel);
  rpc::CallOptions options{deadline};
  auto reply = co_await peer.replicate(std::move(request), options);
  if (!reply.failures.empty())
    throw unpack_status(reply.failures[0]->code, reply.failures[0]->message);
  counters_.replicated_bytes += total;
}

Task<fb::ReplicateReplyT> ServerCore::replicate(rpc::Call& call, fb::ReplicateRequestT request) {
  auto self = shared_from_this();
  require_role(call, "server");
  const auto placement = co_await check_view(request.view, call.deadline());
  fb::ReplicateReplyT reply;
  reply.view = placement->view().number;
  const auto keys = unpack_keys(request.keys.get());
  check_batch(keys, request);
  std::vector<ObjectStore::Write> writes;
  std::uint64_t offset = 0;
  const bool bulk = request.bulk.bytes() > 0;
  for (std::size_t i = 0; i < keys.keys.size(); ++i) {
    const auto& key = keys.keys[i];
    if (request.dropped[i]) {
      if (!placement->view().settled) dropped_[pack_key(keys.ns, key.row, key.column)] = request.versions[i];
      std::optional<std::uint64_t> version;
      if (request.keep_older[i]) version = request.versions[i];
      auto* present = store_->table().find(keys.ns, key.row, key.column, version);
      if (present && present->version <= request.versions[i])
        co_await store_->drop(keys.ns, key.row, key.column, version, request.durable && !options_.store.tiers.empty(),
                              call.deadline());
      continue;
    }
    if (auto it = dropped_.find(pack_key(keys.ns, key.row, key.column));
        it != dropped_.end() && it->second >= request.versions[i]) {
      offset += request.sizes[i];
      continue;
    }
    auto blob = co_await store_->reserve(request.sizes[i], call.deadline());
    if (bulk) {
      const rpc::BulkDescriptor from = request.bulk;
      co_await call.channel().bulk().pull(from, offset, blob->writable(), call.deadline());
    } else {
      const auto* from = reinterpret_cast<const std::byte*>(request.data.data()) + offset;
      std::copy_n(from, request.sizes[i], blob->writable().data());
    }
    offset += request.sizes[i];
    ObjectStore::Write write;
    write.ns = keys.ns;
    write.row = key.row;
    write.column = key.column;
    write.object.version = request.versions[i];
    write.object.bytes = request.sizes[i];
    write.object.checksum = request.checksums[i];
    write.object.put_us = request.put_us[i];
    if (request.tagged[i]) write.object.tag = request.tags[i];
    if (!request.metadata[i].empty()) write.object.metadata = std::make_shared<const std::string>(request.metadata[i]);
    write.object.blob = std::move(blob);
    write.keep_older = request.keep_older[i];
    writes.push_back(std::move(write));
  }
  // The bytes are checked where they arrived: a replica that differs is worse than none.
  auto verify = [&writes] {
    for (const auto& w : writes)
      if (storage::checksum(w.object.blob->bytes()) != w.object.checksum)
        throw Error(Errc::protocol, "an object's bytes do not match their checksum on arrival");
  };
  co_await workers_->run(std::move(verify));
  // A new primary may have asked this server meanwhile, and put the key: a former one's bytes come too late.
  if (members_->placement() != placement) throw Error(Errc::stale_view, "the pool's membership changed on the way");
  co_await store_->put(std::move(writes), request.durable, request.durable, call.deadline());
  co_return reply;
}

// ---------------------------------------------------------------------------------------- views that are not settled yet

Task<fb::MissingReplyT> ServerCore::missing(rpc::Call& call, fb::MissingRequestT request) {
  auto self = shared_from_this();
  require_role(call, "server");
  const auto placement = co_await check_view(request.view, call.deadline());
  const auto keys = unpack_keys(request.keys.get());
  if (keys.keys.size() != request.versions.size()) throw Error(Errc::protocol, "versions do not match the keys");
  fb::MissingReplyT reply;
  reply.view = placement->view().number;
  for (std::size_t i = 0; i < keys.keys.size(); ++i) {
    const auto& key = keys.keys[i];
    if (auto it = dropped_.find(pack_key(keys.ns, key.row, key.column));
        it != dropped_.end() && it->second >= request.versions[i])
      continue;
    const auto* present = store_->table().find(keys.ns, key.row, key.column);
    if (!present || present->version < request.versions[i]) reply.missing.push_back(static_cast<std::uint32_t>(i));
  }
  co_return reply;
}

Task<fb::GetReplyT> ServerCore::fetch(rpc::Call& call, fb::FetchRequestT request) {
  auto self = shared_from_this();
  require_role(call, "server");
  const auto placement = co_await check_view(request.view, call.deadline());
  const auto keys = unpack_keys(request.keys.get());
  fb::GetReplyT reply;
  reply.view = placement->view().number;
  for (const auto& key : keys.keys) {
    auto got = std::make_unique<fb::GotT>();
    auto loaded = co_await store_->load(keys.ns, key.row, key.column, std::nullopt, call.deadline());
    if (loaded) {
      *got = give(call.channel(), keys.ns, key, loaded->object, 0, loaded->object.bytes, inline_replica_bytes, reply.data);
      got->tag = loaded->object.tag.value_or(0);
      got->tagged = loaded->object.tag.has_value();
    } else {
      got->code = static_cast<std::uint16_t>(Errc::not_found);
    }
    reply.got.push_back(std::move(got));
  }
  co_return reply;
}

// The newest version that any other server has. One at a time: it is asked only for keys that were just looked for.
Task<bool> ServerCore::fetch_from_others(Namespace ns, std::string row, std::string column, std::optional<std::uint64_t> tag,
                                         std::shared_ptr<const Placement> placement, Deadline deadline) {
  auto self = shared_from_this();
  bool found = false;
  for (const auto& member : placement->view().members) {
    if (member.id == options_.id) continue;
    try {
      auto channel = co_await members_->channel(member, deadline);
      fb::PeersClient peer(channel);
      fb::FetchRequestT request;
      request.view = placement->view().number;
      std::vector<Key> keys{{row, column}};
      request.keys = pack_keys(ns, keys);
      rpc::CallOptions options{deadline};
      auto reply = co_await peer.fetch(std::move(request), options);
      if (reply.got.size() != 1 || reply.got[0]->code != 0 || !reply.got[0]->info) continue;
      const auto& got = *reply.got[0];
      const auto* present = store_->table().find(ns, row, column);
      if (present && present->version >= got.info->version) {
        found = true;
        continue;
      }
      auto blob = co_await store_->reserve(got.info->bytes, deadline);
      if (got.inlined) {
        const auto part = part_of(reply.data, got.offset, got.info->bytes);
        std::copy(part.begin(), part.end(), blob->writable().begin());
      } else {
        if (got.bulk.bytes() == 0) throw Error(Errc::protocol, "a reply without bytes");
        const rpc::BulkDescriptor from = got.bulk;
        co_await channel->bulk().pull(from, 0, blob->writable(), deadline);
        fb::ReleaseRequestT release;
        release.leases.push_back(got.lease);
        fb::ObjectsClient objects(channel);
        (void)objects.start_release(release, options);
      }
      ObjectStore::Write write;
      write.ns = ns;
      write.row = row;
      write.column = column;
      write.object.version = got.info->version;
      write.object.bytes = got.info->bytes;
      write.object.checksum = got.info->checksum;
      write.object.put_us = got.info->put_us;
      if (got.tagged) write.object.tag = got.tag;
      if (!got.info->metadata.empty()) write.object.metadata = std::make_shared<const std::string>(got.info->metadata);
      write.object.blob = std::move(blob);
      std::vector<ObjectStore::Write> writes;
      writes.push_back(std::move(write));
      co_await store_->put(std::move(writes), false, false, deadline);
      found = true;
    } catch (const Error& error) {
      // A server that is gone has nothing to tell; one with another view makes the caller ask again.
      if (error.code() != Errc::peer_lost && error.code() != Errc::timeout) throw;
    }
  }
  (void)tag;
  co_return found;
}

// ---------------------------------------------------------------------------------------------------------------- leases

fb::GotT ServerCore::give(rpc::Channel& channel, const Namespace& ns, const Key& key, const StoredObject& object, std::uint64_t offset,
                          std::uint64_t bytes, std::uint64_t inline_bytes, std::vector<std::uint8_t>& data) {
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
  got.lease = next_lease_++;
  auto exposure = channel.bulk().expose(part);
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
