// Views that are not settled: what an owner may lack lies with other servers, which pass it on in their own time. Until then
// an owner asks before it answers for a key that was not its own.
#include <algorithm>
#include <map>

#include "base/log.hpp"
#include "pool/keys/infos.hpp"
#include "pool/keys/policy.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/server/server_core.hpp"

namespace penstock::pool {
namespace {

constexpr Timeout ask_patience(3000);              // then a server that does not answer is about to leave the view
constexpr Timeout room_patience(200);              // then an object is read without being kept here
constexpr std::uint64_t passing_bytes = 64 << 20;  // of such objects, all together
constexpr std::size_t fetch_batch = 256;
constexpr std::uint64_t fetch_batch_bytes = 64 << 20;
constexpr std::uint64_t inline_fetch_bytes = 256 << 10;
constexpr std::uint64_t dropped_bytes = ~std::uint64_t{0};  // in HaveReply, of a version that is remembered as dropped

}  // namespace

// Whether this server answers for the key and may not have the newest of it: others had it at some time since the pool was
// settled last.
bool ServerCore::may_lie_elsewhere(const Placement& placement, const Namespace& ns, std::string_view row,
                                   std::optional<std::uint64_t> tag) const {
  if (placement.view().settled) return false;
  const auto mine = [&](const auto& past) { return is_primary(*past, ns, row, tag); };
  return history_.empty() || !std::all_of(history_.begin(), history_.end(), mine);
}

// In this life of its process.
bool ServerCore::is_named(const View& view) const {
  const auto* self = view.find(options_.id);
  return self && self->endpoint == endpoint_;
}

// A settled view in which this life of the server takes part, and those that came after it.
void ServerCore::remember_view() {
  const auto placement = members_->placement();
  const auto& view = placement->view();
  const bool member = is_named(view);
  if (member) {
    const auto since = view.find(options_.id)->since;
    if (member_since_ != 0 && since != member_since_) {
      ++absences_;
      drop_what_others_kept(*placement);
    }
    if (member_since_ == 0) brought_objects_ = store_->table().size() != 0;
    member_since_ = since;
    if (view.settled) took_part_.clear();
    took_part_.push_back({placement, absences_});
  }
  const bool follows = !history_.empty() && history_.back()->view().number + 1 == view.number;
  if (view.settled || !follows) history_.clear();
  if (member && (view.settled || follows)) history_.push_back(placement);
  tombstones_.keep_all(!view.settled);
}

// This server is back in the pool, after views that did not name it: it stood still, or could not be reached. Meanwhile the
// others went on with what they had, too; what they lack of it by now was dropped, and must not come back. What nobody else
// had, or only servers that are gone as well, stays: it may be the only copy.
void ServerCore::drop_what_others_kept(const Placement& present) {
  store_->give_up_on_its_way();  // it would come to the table after what is dropped here
  const auto& view = present.view();
  // How many servers were lost since, not counting this server's own absences.
  const auto lost_since = [&](const TookPart& part) {
    return view.losses - std::min(view.losses, part.view->view().losses + absences_ - part.absences);
  };
  // Before it was part of a settled view, what came to it came from those who have it still, unless they were lost. What it had
  // brought with it from its last life may lie with nobody.
  const auto& first = took_part_.front();
  if (!first.view->view().settled && (brought_objects_ || lost_since(first) > 0)) return;
  const auto had_by_another = [&](const TookPart& part, const ObjectTable::Entry& entry) {
    const auto& then = *part.view;
    const auto owners = then.owners(entry.ns, entry.row, entry.object.tag);
    const auto is_other = [&](std::uint32_t o) { return then.view().members[o].id != options_.id; };
    // Those who were not lost have it, or have handed it on.
    if (static_cast<std::uint64_t>(std::ranges::count_if(owners.all(), is_other)) > lost_since(part)) return true;
    if (!then.view().settled) return false;  // they may not have had it yet
    const auto now = present.owners(entry.ns, entry.row, entry.object.tag);
    return std::ranges::any_of(owners.all(), [&](std::uint32_t o) {
      const auto& owner = then.view().members[o];
      return is_other(o) && std::ranges::any_of(now.all(), [&](std::uint32_t n) {
               const auto& one = view.members[n];
               return one.id == owner.id && one.endpoint == owner.endpoint && one.since == owner.since;
             });
    });
  };
  std::vector<UnpackedKey> kept;
  std::string after;
  do {
    after = store_->table().scan_all(after, 1000, [&](const ObjectTable::Entry& entry) {
      const bool by_others =
          std::ranges::all_of(took_part_, [&](const auto& part) { return had_by_another(part, entry); });
      if (by_others) kept.push_back({entry.ns, std::string(entry.row), std::string(entry.column)});
      return true;
    });
  } while (!after.empty());
  base::log(base::Level::warn,
            "this server was left out of the pool, and is back; what others kept comes from them again",
            {{"pool", options_.pool}, {"objects", kept.size()}});
  // They are gone from the table at once, before anybody can ask; the disk follows.
  for (auto& key : kept) fabric::spawn(*progress_, drop_behind(key.ns, std::move(key.row), std::move(key.column)));
}

Task<void> ServerCore::drop_behind(Namespace ns, std::string row, std::string column) {
  auto self = shared_from_this();
  try {
    co_await store_->drop(ns, std::move(row), std::move(column), std::nullopt, false, Deadline(Timeout(30'000)));
  } catch (const Error& error) {
    base::log(base::Level::warn, "an object was not erased", {{"pool", options_.pool}, {"why", error.what()}});
  }
}

// Throws Error(stale_view) when views have left this server out since: others have changed what it was about to change.
void ServerCore::require_there_since(std::uint64_t since) const {
  if (member_since_ != since)
    throw Error(Errc::stale_view, "server " + options_.name + " was left out of the pool meanwhile");
}

// It has passed on everything it had before this view.
bool ServerCore::has_finished(const Member& member, std::uint64_t view) const {
  return std::any_of(announced_.begin(), announced_.end(), [&](const auto& entry) {
    const auto& a = entry.second;
    return a.member.id == member.id && a.member.endpoint == member.endpoint && a.finished_view >= view;
  });
}

Task<fb::HaveReplyT> ServerCore::ask(Member member, std::uint64_t view, std::shared_ptr<const std::vector<Key>> keys,
                                     Namespace ns, Deadline deadline) {
  auto self = shared_from_this();
  auto channel = co_await members_->channel(std::move(member), deadline);
  fb::PeersClient peer(channel);
  fb::HaveRequestT request;
  request.view = view;
  request.keys = pack_keys(ns, *keys);
  rpc::CallOptions options{deadline};
  auto reply = co_await peer.have(std::move(request), options);
  if (reply.index.size() != reply.versions.size() || reply.bytes.size() != reply.versions.size() ||
      reply.checksums.size() != reply.versions.size())
    throw Error(Errc::protocol, "a reply of another length");
  for (const auto i : reply.index)
    if (i >= keys->size()) throw Error(Errc::protocol, "a reply about another object");
  co_return reply;
}

Task<ServerCore::Elsewhere> ServerCore::ask_others(Namespace ns, std::vector<Key> keys,
                                                   std::shared_ptr<const Placement> placement, bool finished_too,
                                                   Deadline deadline) {
  auto self = shared_from_this();
  const auto& view = placement->view();
  const auto asked_for = std::make_shared<const std::vector<Key>>(std::move(keys));
  const auto soon = earlier(deadline, Deadline(ask_patience));
  std::vector<std::pair<const Member*, fabric::Future<fb::HaveReplyT>>> asked;
  for (const auto& member : view.members) {
    if (member.id == options_.id || (!finished_too && has_finished(member, view.number))) continue;
    asked.emplace_back(&member, fabric::spawn(*progress_, ask(member, view.number, asked_for, ns, soon)));
  }
  Elsewhere found;
  std::optional<Error> unanswered;
  for (auto& [member, future] : asked) {
    try {
      const auto reply = co_await std::move(future);
      for (std::size_t n = 0; n < reply.index.size(); ++n) {
        const auto& key = (*asked_for)[reply.index[n]];
        auto packed = pack_key(ns, key.row, key.column);
        const bool dropped = reply.bytes[n] == dropped_bytes;
        if (!dropped && tombstones_.covers(packed, reply.versions[n])) continue;
        found[std::move(packed)].push_back(
            {member->id, reply.versions[n], reply.bytes[n], reply.checksums[n], dropped});
      }
    } catch (const Error& error) {
      unanswered = error.in("server " + member->name);
    }
  }
  // Not knowing is not absence: the caller asks again, until the server answers or a view without it has come.
  if (unanswered)
    throw Error(Errc::stale_view, "the pool is unsettled (view " + std::to_string(view.number) +
                                      "), and one that may have the object does not answer: " + unanswered->what());
  if (members_->placement() != placement) throw Error(Errc::stale_view, "the pool's membership changed meanwhile");
  co_return found;
}

Task<fb::HaveReplyT> ServerCore::have(rpc::Call& call, fb::HaveRequestT request) {
  auto self = shared_from_this();
  require_role(call, "server");
  const auto placement = co_await check_view(request.view, call.deadline());
  const auto keys = unpack_keys(request.keys.get());
  fb::HaveReplyT reply;
  reply.view = placement->view().number;
  for (std::size_t i = 0; i < keys.keys.size(); ++i) {
    const auto& key = keys.keys[i];
    for (const auto& object : store_->table().versions(keys.ns, key.row, key.column)) {
      reply.index.push_back(static_cast<std::uint32_t>(i));
      reply.versions.push_back(object.version);
      reply.bytes.push_back(object.bytes);
      reply.checksums.push_back(object.checksum);
    }
    // Whoever puts the key now goes on above: this server would refuse a version that it knows as dropped.
    if (const auto dropped = tombstones_.newest(pack_key(keys.ns, key.row, key.column)); dropped != 0) {
      reply.index.push_back(static_cast<std::uint32_t>(i));
      reply.versions.push_back(dropped);
      reply.bytes.push_back(dropped_bytes);
      reply.checksums.push_back(0);
    }
  }
  co_return reply;
}

// Brings the newest version of each key here (or the one asked for), if another server has it and this one does not. Older
// ones come when they are passed on.
Task<ServerCore::PassingBy> ServerCore::fetch_newer(Namespace ns, std::vector<Key> keys,
                                                    std::optional<std::uint64_t> tag,
                                                    std::optional<std::uint64_t> version, Deadline deadline) {
  auto self = shared_from_this();
  const auto placement = members_->placement();
  PassingBy passing;
  if (!placement || placement->view().settled) co_return passing;
  // A replica that has a key is believed; the primary must know of the newest.
  std::erase_if(keys, [&](const Key& key) {
    if (!may_lie_elsewhere(*placement, ns, key.row, tag)) return true;
    const bool here = store_->table().find(ns, key.row, key.column, version) != nullptr;
    return here && (version || !is_primary(*placement, ns, key.row, tag));
  });
  if (keys.empty()) co_return passing;
  auto copy = keys;
  const auto elsewhere = co_await ask_others(ns, std::move(copy), placement, false, deadline);
  std::map<std::uint64_t, std::vector<Wanted>> wanted;  // by server
  for (auto& key : keys) {
    const auto found = elsewhere.find(pack_key(ns, key.row, key.column));
    if (found == elsewhere.end()) continue;
    const Holding* best = nullptr;
    for (const auto& h : found->second)
      if (!h.dropped && (!version || h.version == *version) && (!best || h.version > best->version)) best = &h;
    if (!best || store_->table().find(ns, key.row, key.column, best->version) ||
        !store_->table().takes(ns, key.row, key.column, best->version))
      continue;
    wanted[best->server].push_back({std::move(key), best->version, best->bytes});
  }
  std::uint64_t metadata = 0;  // of what passes by
  for (auto& [server, objects] : wanted) {
    for (std::size_t begin = 0; begin < objects.size();) {
      std::vector<Wanted> part;
      std::uint64_t bytes = 0;
      while (begin < objects.size() && part.size() < fetch_batch && (part.empty() || bytes < fetch_batch_bytes)) {
        bytes += objects[begin].bytes;
        part.push_back(std::move(objects[begin++]));
      }
      auto without_room =
          co_await fetch_from(*placement->view().find(server), placement, ns, std::move(part), deadline);
      for (const auto& [key, object] : without_room) metadata += object.metadata_bytes();
      passing.merge(without_room);
      if (metadata > max_metadata_reply)
        throw Error(Errc::overloaded, "the metadata of the objects fill the reply; ask for fewer at once");
    }
  }
  co_return passing;
}

Task<ServerCore::PassingBy> ServerCore::fetch_from(Member member, std::shared_ptr<const Placement> placement,
                                                   Namespace ns, std::vector<Wanted> wanted, Deadline deadline) {
  auto self = shared_from_this();
  const std::string from = member.name;
  auto channel = co_await members_->channel(std::move(member), deadline);
  fb::PeersClient peer(channel);
  fb::FetchRequestT request;
  request.view = placement->view().number;
  std::vector<Key> keys;
  for (const auto& w : wanted) {
    keys.push_back(w.key);
    request.versions.push_back(w.version);
  }
  request.keys = pack_keys(ns, keys);
  rpc::CallOptions options{deadline};
  auto reply = co_await peer.fetch(std::move(request), options);
  if (reply.got.size() != wanted.size()) throw Error(Errc::protocol, "a reply of another length");
  PassingBy passing;
  bool kept = true, changed = false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& got = *reply.got[i];
    if (got.code == static_cast<std::uint16_t>(Errc::not_found)) {
      changed = true;
      continue;
    }
    if (got.code != 0) throw unpack_status(got.code, got.message);
    if (!got.info) throw Error(Errc::protocol, "a reply without information");
    auto write = co_await take_fetched(channel, ns, keys[i], reply, got, kept, deadline);
    if (members_->placement() != placement) throw Error(Errc::stale_view, "the pool's membership changed meanwhile");
    if (refused_for(write) != 0) continue;
    if (!kept) {
      passing.emplace(pack_key(ns, write.row, write.column), std::move(write.object));
      continue;
    }
    std::vector<ObjectStore::Write> writes;
    writes.push_back(std::move(write));
    co_await store_->put(std::move(writes), false, false, deadline);
  }
  // Dropped meanwhile, or replaced: by a put that has come to its replicas and not yet here, to its primary.
  if (changed)
    throw Error(Errc::stale_view, "an object was dropped or replaced at server " + from + " while it was fetched");
  co_return passing;
}

// kept: whether the memory is the store's, not that of objects which pass by. Given as it was for the last object: where there
// was no room, none is waited for again.
Task<std::shared_ptr<Blob>> ServerCore::room_for_fetched(std::uint64_t bytes, bool own, bool& kept, Deadline deadline) {
  auto self = shared_from_this();
  std::optional<Error> full;
  try {
    const auto soon = earlier(deadline, Deadline(kept ? room_patience : Timeout(0)));
    auto blob = co_await store_->reserve(bytes, soon, own);
    kept = true;
    co_return blob;
  } catch (const Error& error) {
    full = error;
  }
  if (!passing_memory_) passing_memory_ = ObjectMemory::create(passing_bytes, [] {});
  auto blob = passing_memory_->try_allocate(bytes);
  if (!blob) throw *full;
  kept = false;
  co_return blob;
}

Task<ObjectStore::Write> ServerCore::take_fetched(std::shared_ptr<rpc::Channel> channel, Namespace ns, Key key,
                                                  const fb::GetReplyT& reply, const fb::GotT& got, bool& kept,
                                                  Deadline deadline) {
  auto self = shared_from_this();
  auto blob = co_await room_for_fetched(got.info->bytes, !got.tagged && policy_of(ns).untagged_is_bookkeeping, kept,
                                        answer_in_time(deadline));
  if (got.inlined) {
    const auto part = part_of(reply.data, got.offset, got.info->bytes);
    std::copy(part.begin(), part.end(), blob->writable().begin());
  } else {
    if (got.bulk.bytes() != got.info->bytes) throw Error(Errc::protocol, "a reply of another length");
    const transport::BulkDescriptor from = got.bulk;
    std::shared_ptr<const void> owner = blob;
    co_await channel->bulk().pull(from, 0, blob->writable(), deadline, std::move(owner));
    fb::ReleaseRequestT release;
    release.leases.push_back(got.lease);
    rpc::CallOptions options{deadline};
    (void)fb::ObjectsClient(channel).start_release(release, options);
  }
  ObjectStore::Write write;
  write.ns = ns;
  write.row = std::move(key.row);
  write.column = std::move(key.column);
  write.object.version = got.info->version;
  write.object.bytes = got.info->bytes;
  write.object.checksum = got.info->checksum;
  write.object.put_us = got.info->put_us;
  if (got.tagged) write.object.tag = got.tag;
  if (!got.info->metadata.empty()) write.object.metadata = store_->keep_metadata(got.info->metadata, true);
  write.object.blob = std::move(blob);
  write.keep_older = got.keep_older;
  co_return write;
}

Task<fb::GetReplyT> ServerCore::fetch(rpc::Call& call, fb::FetchRequestT request) {
  auto self = shared_from_this();
  require_role(call, "server");
  const auto placement = co_await check_view(request.view, call.deadline());
  const auto keys = unpack_keys(request.keys.get());
  if (keys.keys.size() != request.versions.size()) throw Error(Errc::protocol, "versions do not match the keys");
  fb::GetReplyT reply;
  reply.view = placement->view().number;
  for (std::size_t i = 0; i < keys.keys.size(); ++i) {
    const auto& key = keys.keys[i];
    auto got = std::make_unique<fb::GotT>();
    auto loaded = co_await store_->load(keys.ns, key.row, key.column, request.versions[i], call.deadline());
    if (loaded) {
      *got =
          give(call.channel(), keys.ns, key, loaded->object, 0, loaded->object.bytes, inline_fetch_bytes, reply.data);
      got->tag = loaded->object.tag.value_or(0);
      got->tagged = loaded->object.tag.has_value();
      got->keep_older = loaded->object.keeps_older;
    } else {
      got->code = static_cast<std::uint16_t>(Errc::not_found);
    }
    reply.got.push_back(std::move(got));
  }
  co_return reply;
}

// Which of the objects offered this server lacks.
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
    const auto version = request.versions[i];
    if (tombstones_.covers(pack_key(keys.ns, key.row, key.column), version)) continue;
    if (store_->table().find(keys.ns, key.row, key.column, version)) continue;
    if (store_->table().takes(keys.ns, key.row, key.column, version))
      reply.missing.push_back(static_cast<std::uint32_t>(i));
  }
  co_return reply;
}

Task<std::vector<Key>> ServerCore::list_keys(Member member, std::uint64_t view, Namespace ns, std::string rows,
                                             Deadline deadline) {
  auto channel = co_await members_->channel(std::move(member), deadline);
  fb::ObjectsClient client(std::move(channel));
  std::vector<Key> keys;
  fb::ListRequestT request;
  request.view = view;
  request.ns = pack_namespace(ns);
  request.row = pack_bytes(rows);
  request.column = pack_bytes("*");
  request.limit = max_listed;
  rpc::CallOptions options;
  options.deadline = deadline;
  do {
    auto reply = co_await client.list(request, options);
    for (auto& info : unpack_infos(reply.objects.get())) keys.push_back(std::move(info.key));
    request.after = std::move(reply.next);
  } while (!request.after.empty());
  co_return keys;
}

Task<std::vector<Key>> ServerCore::list_elsewhere(Namespace ns, std::string rows, Deadline deadline) {
  auto self = shared_from_this();
  std::vector<Key> keys;
  const auto placement = members_->placement();
  if (placement->view().settled) co_return keys;
  for (const auto& member : placement->view().members) {
    if (member.id == options_.id) continue;
    try {
      auto theirs = co_await list_keys(member, placement->view().number, ns, rows, deadline);
      std::move(theirs.begin(), theirs.end(), std::back_inserter(keys));
    } catch (const Error& e) {  // whoever asks does so again, in a newer view
      if (e.code() == Errc::stale_view) throw;
      throw Error(Errc::peer_lost, "server " + member.name + " could not be asked what it has: " + e.what());
    }
  }
  co_return keys;
}

}  // namespace penstock::pool
