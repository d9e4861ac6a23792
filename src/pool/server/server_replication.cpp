// How an owner's changes reach the other owners. A key stays locked at its primary until every owner has a change of it, so
// each hears of them in their order; what comes late nevertheless (its sender had given it up) finds a tombstone or a newer
// version, and is refused.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "pool/keys/policy.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/server/server_core.hpp"

namespace penstock::pool {
namespace {

constexpr std::uint64_t inline_replica_bytes = 256 << 10;  // a batch with more, metadata included, is halved
constexpr Timeout behind_patience(60'000);                 // for replicas of what is acknowledged already

// The object as another server is asked to take it, or the drop.
void append(fb::ReplicateRequestT& request, const ObjectStore::Write& w, bool dropped) {
  request.sizes.push_back(dropped ? 0 : w.object.bytes);
  request.versions.push_back(w.object.version);
  request.checksums.push_back(w.object.checksum);
  request.put_us.push_back(w.object.put_us);
  request.tags.push_back(w.object.tag.value_or(0));
  request.tagged.push_back(w.object.tag.has_value());
  request.dropped.push_back(dropped);
  request.keep_older.push_back(w.keep_older);
  request.metadata.push_back(w.object.metadata ? *w.object.metadata : std::string());
}

}  // namespace

// Who must hear of each write: its other owners. Of a drop everybody who may hold the object: all, until they have let go of
// what is not theirs in a settled view.
std::map<std::uint64_t, std::vector<std::size_t>> ServerCore::receivers(const Placement& placement,
                                                                        const std::vector<ObjectStore::Write>& writes,
                                                                        bool dropped) const {
  const auto& view = placement.view();
  // A former owner could bring back in the next view what was dropped in this one.
  std::vector<bool> former(view.members.size());
  for (std::size_t m = 0; m < former.size(); ++m)
    former[m] = dropped && !(view.settled && has_finished(view.members[m], view.number));
  std::map<std::uint64_t, std::vector<std::size_t>> wanted;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const auto owners = placement.owners(writes[i].ns, writes[i].row, writes[i].object.tag);
    if (view.members[owners.index[0]].id != options_.id)
      throw Error(Errc::stale_view, "the pool's membership changed during the change");
    for (std::uint32_t m = 0; m < view.members.size(); ++m)
      if (view.members[m].id != options_.id && (owners.contains(m) || former[m]))
        wanted[view.members[m].id].push_back(i);
  }
  return wanted;
}

Task<void> ServerCore::replicate_to_owners(std::vector<ObjectStore::Write> writes, bool dropped, bool durable,
                                           std::uint64_t request, Deadline deadline) {
  auto self = shared_from_this();
  // Owners may change while we replicate (one died): those of the newest view are what counts.
  // By server, in one life of its process: which writes it has. One that was started again has none of them.
  struct Taken {
    fabric::Endpoint life;
    std::vector<bool> writes;
  };
  std::map<std::uint64_t, Taken> have;
  std::uint64_t last_view = 0;
  const auto since = member_since_;
  for (;;) {
    require_there_since(since);
    const auto placement = members_->placement();
    const auto& view = placement->view();
    // Who owns the key now may have forgotten the drop as a former owner (view_changed), and be offered the object again.
    if (dropped && std::exchange(last_view, view.number) != view.number) have.clear();
    const auto wanted = receivers(*placement, writes, dropped);
    std::vector<std::pair<std::uint64_t, fabric::Future<void>>> sent;
    for (const auto& [id, indices] : wanted) {
      auto& taken_before = have[id];
      const auto& life = view.find(id)->endpoint;
      if (taken_before.writes.empty() || taken_before.life != life)
        taken_before = {life, std::vector<bool>(writes.size())};
      std::vector<ObjectStore::Write> part;
      for (const auto i : indices)
        if (!taken_before.writes[i]) part.push_back(writes[i]);
      if (part.empty()) continue;
      auto task =
          send_replicas(*view.find(id), view.number, std::move(part), dropped, durable, request, false, deadline);
      sent.emplace_back(id, fabric::spawn(*progress_, std::move(task)));
    }
    std::optional<Error> failed;
    VersionsTaken taken;
    for (auto& [id, future] : sent) {
      try {
        co_await std::move(future);
        for (const auto i : wanted.at(id)) have[id].writes[i] = true;
      } catch (const VersionsTaken& here) {
        taken.newest.insert(taken.newest.end(), here.newest.begin(), here.newest.end());
      } catch (const Error& error) {
        failed = error.in("replica on server " + view.find(id)->name);
      }
    }
    if (!taken.newest.empty()) throw taken;
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

// What was put in memory is replicated before its keys are given free.
Task<void> ServerCore::replicate_behind(std::shared_ptr<Plan> plan, std::shared_ptr<KeyLocks::Held> held) {
  auto self = shared_from_this();
  const auto locked = std::move(held);  // given free before self is
  const Deadline deadline(behind_patience);
  for (;;) {
    try {
      co_await replicate_to_owners(plan_writes(*plan), false, false, 0, deadline);
      co_return;
    } catch (const VersionsTaken& taken) {
      if (member_since_ != plan_since(*plan)) co_return;
      raise_plan(*plan, taken);
    } catch (const Error& error) {
      if (error.code() != Errc::stale_view)  // then the new primary fetches it, or is offered it
        base::log(base::Level::warn, "objects in memory have no replica",
                  {{"pool", options_.pool}, {"why", error.what()}});
      co_return;
    }
    co_await store_->put(plan_writes(*plan), false, false, deadline);
    if (member_since_ != plan_since(*plan)) co_return;
  }
}

Task<void> ServerCore::send_replicas(Member member, std::uint64_t view, std::vector<ObjectStore::Write> writes,
                                     bool dropped, bool durable, std::uint64_t request_id, bool offered,
                                     Deadline deadline) {
  auto self = shared_from_this();
  auto channel = co_await members_->channel(member, deadline);
  std::uint64_t total = 0, metadata = 0;
  for (const auto& w : writes) {
    if (w.ns != writes[0].ns) throw Error(Errc::internal, "a batch of several namespaces");
    total += dropped ? 0 : w.object.bytes;
    metadata += w.object.metadata_bytes();
  }
  // Small batches travel in the message, a large single object straight from its memory.
  if (total + metadata > inline_replica_bytes && writes.size() > 1) {
    VersionsTaken taken;
    const auto middle = std::next(writes.begin(), static_cast<std::ptrdiff_t>(writes.size() / 2));
    std::array halves{std::vector(writes.begin(), middle), std::vector(middle, writes.end())};
    for (auto& half : halves) {
      try {
        co_await send_replicas(member, view, std::move(half), dropped, durable, request_id, offered, deadline);
      } catch (const VersionsTaken& here) {
        taken.newest.insert(taken.newest.end(), here.newest.begin(), here.newest.end());
      }
    }
    if (!taken.newest.empty()) throw taken;
    co_return;
  }
  fb::ReplicateRequestT request;
  request.view = view;  // the one by which it is an owner
  request.durable = durable;
  request.request = request_id;
  std::vector<Key> keys;
  for (const auto& w : writes) {
    keys.push_back({w.row, w.column});
    append(request, w, dropped);
  }
  request.keys = pack_keys(writes[0].ns, keys);
  transport::Exposure exposure;
  if (total > inline_replica_bytes) {
    exposure = channel->bulk().expose(writes[0].object.blob->bytes(), writes[0].object.blob);
    request.bulk = exposure.descriptor();
  } else if (!dropped) {
    request.data.reserve(total);
    for (const auto& w : writes) {
      const auto bytes = w.object.blob->bytes();
      const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
      request.data.insert(request.data.end(), data, data + bytes.size());
    }
  }
  fb::PeersClient peer(channel);
  rpc::CallOptions options{deadline};
  auto reply = co_await peer.replicate(std::move(request), options);
  counters_.replicated_bytes += total;
  if (reply.failed.size() != reply.newest.size()) throw Error(Errc::protocol, "a reply of another length");
  if (offered) co_return;  // what the other has is as new, or newer
  VersionsTaken taken;
  for (std::size_t f = 0; f < reply.failed.size(); ++f) {
    const auto i = reply.failed[f];
    if (i >= writes.size()) throw Error(Errc::protocol, "a reply about another object");
    taken.newest.emplace_back(pack_key(writes[i].ns, writes[i].row, writes[i].column), reply.newest[f]);
  }
  if (!taken.newest.empty()) throw taken;
}

// ------------------------------------------------------------------------------------------------------------ the receiver

Task<fb::ReplicateReplyT> ServerCore::replicate(rpc::Call& call, fb::ReplicateRequestT request) {
  auto self = shared_from_this();
  require_role(call, "server");
  const auto placement = co_await check_view(request.view, call.deadline());
  fb::ReplicateReplyT reply;
  reply.view = placement->view().number;
  const auto keys = unpack_keys(request.keys.get());
  check_batch(keys, request);
  auto writes = co_await take_replicas(call, keys, request);
  // A new primary may have asked this server meanwhile, and put the key: a former one's bytes come too late. So do those that
  // nobody waits for any more.
  if (members_->placement() != placement) throw Error(Errc::stale_view, "the pool's membership changed on the way");
  if (call.cancelled() || call.deadline().passed()) throw Error(Errc::timeout, "replicas that came too late");

  std::vector<ObjectStore::Write> good;
  std::size_t next = 0;
  for (std::size_t i = 0; i < keys.keys.size(); ++i) {
    if (request.dropped[i]) continue;
    auto& write = writes[next++];
    const auto newest = refused_for(write);
    if (newest == 0) {
      good.push_back(std::move(write));
      continue;
    }
    reply.failed.push_back(static_cast<std::uint32_t>(i));
    reply.newest.push_back(newest);
  }
  const bool durable = request.durable && !options_.store.tiers.empty();
  // Noted before anything is awaited: what is under way to this server finds them.
  for (std::size_t i = 0; i < keys.keys.size(); ++i)
    if (request.dropped[i])
      tombstones_.note(pack_key(keys.ns, keys.keys[i].row, keys.keys[i].column), request.versions[i],
                       request.keep_older[i], request.request);
  if (!good.empty()) co_await store_->put(std::move(good), request.durable, request.durable, call.deadline());
  for (std::size_t i = 0; i < keys.keys.size(); ++i) {
    if (!request.dropped[i]) continue;
    co_await drop_here(keys.ns, keys.keys[i].row, keys.keys[i].column, request.versions[i], request.keep_older[i],
                       durable, call.deadline());
  }
  co_return reply;
}

// The objects of a batch with their bytes, which were checked where they arrived: a replica that differs is worse than none.
Task<std::vector<ObjectStore::Write>> ServerCore::take_replicas(rpc::Call& call, const UnpackedKeys& keys,
                                                                fb::ReplicateRequestT& request) {
  auto self = shared_from_this();
  std::vector<std::uint64_t> sizes;
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < keys.keys.size(); ++i) {
    if (request.dropped[i]) continue;
    sizes.push_back(request.sizes[i]);
    index.push_back(i);
  }
  std::vector<ObjectStore::Write> writes;
  if (sizes.empty()) co_return writes;
  const bool own = policy_of(keys.ns).untagged_is_bookkeeping &&
                   std::ranges::none_of(request.tagged, [](bool tagged) { return tagged; });
  const auto wait_until = answer_in_time(call.deadline());  // that there is no room is an answer
  auto blobs = co_await store_->reserve_all(std::move(sizes), wait_until, own);
  const bool bulk = request.bulk.bytes() > 0;
  std::uint64_t offset = 0;
  for (std::size_t n = 0; n < index.size(); ++n) {
    const auto i = index[n];
    auto& blob = blobs[n];
    if (bulk) {
      const transport::BulkDescriptor from = request.bulk;
      std::shared_ptr<const void> owner = blob;
      co_await call.channel().bulk().pull(from, offset, blob->writable(), call.deadline(), std::move(owner));
    } else {
      const auto* from = reinterpret_cast<const std::byte*>(request.data.data()) + offset;
      std::copy_n(from, request.sizes[i], blob->writable().data());
    }
    offset += request.sizes[i];
    auto& write = writes.emplace_back();
    write.ns = keys.ns;
    write.row = keys.keys[i].row;
    write.column = keys.keys[i].column;
    write.object.version = request.versions[i];
    write.object.bytes = request.sizes[i];
    write.object.checksum = request.checksums[i];
    write.object.put_us = request.put_us[i];
    if (request.tagged[i]) write.object.tag = request.tags[i];
    if (!request.metadata[i].empty()) write.object.metadata = store_->keep_metadata(request.metadata[i], true);
    write.object.blob = std::move(blob);
    write.keep_older = request.keep_older[i];
  }
  auto verify = [&writes] {
    for (const auto& w : writes)
      if (storage::checksum(w.object.blob->bytes()) != w.object.checksum)
        throw Error(Errc::protocol, "an object's bytes do not match their checksum on arrival");
  };
  co_await workers_->run(verify);
  co_return writes;
}

// 0, or the version that counts here when this one cannot be taken: it was dropped, replaced, or belongs to other bytes.
std::uint64_t ServerCore::refused_for(const ObjectStore::Write& write) {
  auto& table = store_->table();
  const auto packed = pack_key(write.ns, write.row, write.column);
  const auto* newest = table.find(write.ns, write.row, write.column);
  const auto coming = store_->on_its_way(packed);  // by a put that its primary may have given up
  const auto counts = std::max({newest ? newest->version : 0, tombstones_.newest(packed), coming.version});
  if (store_->is_taken_on_its_way(packed, write.object)) return counts;
  if (tombstones_.covers(packed, write.object.version)) return counts;
  if (const auto* same = table.find(write.ns, write.row, write.column, write.object.version))
    return same->checksum == write.object.checksum && same->bytes == write.object.bytes ? 0 : counts;
  return table.takes(write.ns, write.row, write.column, write.object.version) ? 0 : counts;
}

}  // namespace penstock::pool
