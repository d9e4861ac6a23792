// Passing objects on when the view has changed, and dropping what this server no longer owns.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/log.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/server/server_core.hpp"

namespace penstock::pool {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t offered_objects = 1000;              // in one message
constexpr std::uint64_t message_bytes = 8 << 20;           // in one message, or one larger object
constexpr Timeout answer_within(15'000);                   // also how long the other server waits for memory
constexpr std::uint64_t slowest_bytes_per_s = 10'000'000;  // large objects get more time
constexpr auto stalled_after = answer_within;
constexpr auto pause_between_passes = 500ms;

std::uint64_t bytes_to_send(const StoredObject& object) { return object.bytes + object.metadata_bytes(); }

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

// One pass over this server's objects in one view.
struct ServerCore::Pass {
  std::shared_ptr<const Placement> placement;
  bool first = true;
  base::Clock::time_point begun = base::Clock::now();
  Amount sent, left;            // left: other servers lack it still
  std::optional<Error> failed;  // the first error
  // Servers to which nothing more is sent in this pass. Those that are refusing are still asked what they lack.
  std::set<std::uint64_t> silent, refusing;
  void fail(const Error& error) {
    if (!failed) failed = error;
  }
};

// What goes to one server, of one namespace. object: indices of Batch::objects.
struct ServerCore::Offer {
  std::vector<ObjectStore::Write> writes;
  std::vector<std::size_t> object;
};

// Objects that are looked at together.
struct ServerCore::Batch {
  struct Object {
    std::uint64_t bytes = 0;
    std::size_t lacking = 0;  // versions that other owners lack, as far as known
    bool sent = false;
  };
  std::vector<Object> objects;
  std::map<std::pair<Namespace, std::uint64_t>, Offer> offers;  // by namespace and server
};

// Repeats passes until every owner has what it owns, or the view changes.
Task<void> ServerCore::rebalance(std::shared_ptr<const Placement> placement) {
  auto self = shared_from_this();
  const Background background(*this);
  auto progress_at = base::Clock::now();
  to_pass_on_ = {store_->table().size(), store_->table().bytes()};
  for (bool first = true;; first = false) {
    Pass pass;
    pass.placement = placement;
    pass.first = first;
    co_await pass_on(pass);
    if (stopping_ || members_->placement() != placement) co_return;
    to_pass_on_ = pass.left;
    if (!pass.failed) break;
    if (pass.sent.objects > 0) progress_at = base::Clock::now();
    else if (base::Clock::now() - progress_at >= stalled_after) drain_stalled(*pass.failed);
    co_await fabric::pause_for(*progress_, pause_between_passes);
    if (stopping_ || members_->placement() != placement) co_return;
  }
  finished_view_ = placement->view().number;
  changed_->notify_all();
}

// Offers each object that is here, the oldest version first, to the owners that lack it. Ends early when the view changes.
Task<void> ServerCore::pass_on(Pass& pass) {
  auto self = shared_from_this();
  const auto& view = pass.placement->view();
  const auto current = [&] { return !stopping_ && members_->placement() == pass.placement; };
  std::string after;
  do {
    Batch batch = next_batch(*pass.placement, after);
    if (pass.first)
      for (std::size_t i = 0; i < batch.objects.size(); ++i)
        if (batch.objects[i].lacking == 0) account(pass, batch, i, false);
    for (auto& [to, offered] : batch.offers) {
      if (!current()) co_return;
      if (pass.silent.contains(to.second)) continue;
      const Member& member = *view.find(to.second);
      try {
        co_await offer(member, to.first, offered, batch, pass);
      } catch (const Error& error) {
        pass.silent.insert(to.second);
        not_passed_on(pass, member, error);
      }
    }
    for (const auto& object : batch.objects) {
      if (object.lacking == 0) continue;
      ++pass.left.objects;
      pass.left.bytes += object.bytes;
    }
  } while (!after.empty() && current());
}

// after: where the last one ended; "" before the first and after the last.
ServerCore::Batch ServerCore::next_batch(const Placement& placement, std::string& after) {
  Batch batch;
  const auto collect = [&](const ObjectTable::Entry& entry) {
    auto& object = batch.objects.emplace_back();
    object.bytes = entry.object.bytes;
    for (const auto& older : entry.older) object.bytes += older.bytes;
    const auto owners = placement.owners(entry.ns, entry.row, entry.object.tag);
    for (const auto o : owners.all()) {
      const auto id = placement.view().members[o].id;
      if (id == options_.id) continue;
      auto& to = batch.offers[{entry.ns, id}];
      for (const auto& older : entry.older) to.writes.push_back(offer_of(entry, older));
      to.writes.push_back(offer_of(entry, entry.object));
      object.lacking += entry.older.size() + 1;
      to.object.resize(to.writes.size(), batch.objects.size() - 1);
    }
    return batch.objects.size() < offered_objects;
  };
  after = store_->table().scan_all(after, offered_objects, collect);
  return batch;
}

// Every owner has the object.
void ServerCore::account(const Pass& pass, Batch& batch, std::size_t object, bool sent) {
  const auto& handed_on = batch.objects[object];
  if (!pass.first && !sent) return;  // an earlier pass has counted it
  if (members_->placement() != pass.placement) return;
  to_pass_on_.objects -= std::min<std::uint64_t>(to_pass_on_.objects, 1);
  to_pass_on_.bytes -= std::min(to_pass_on_.bytes, handed_on.bytes);
}

Task<void> ServerCore::offer(Member member, Namespace ns, Offer& offered, Batch& batch, Pass& pass) {
  auto self = shared_from_this();
  auto& writes = offered.writes;
  const auto there = [&](std::size_t i, bool sent) {
    auto& object = batch.objects[offered.object[i]];
    object.sent = object.sent || sent;
    if (--object.lacking == 0) account(pass, batch, offered.object[i], object.sent);
  };
  const Deadline deadline(answer_within);
  auto channel = co_await members_->channel(member, deadline);
  fb::PeersClient peer(channel);
  fb::MissingRequestT request;
  request.view = pass.placement->view().number;
  std::vector<Key> keys;
  for (const auto& w : writes) {
    keys.push_back({w.row, w.column});
    request.versions.push_back(w.object.version);
  }
  request.keys = pack_keys(ns, keys);
  rpc::CallOptions options{deadline};
  const auto reply = co_await peer.missing(std::move(request), options);
  std::vector<bool> lacking(writes.size());
  for (const auto index : reply.missing) {
    if (index >= writes.size()) throw Error(Errc::protocol, "a server lacks what was not offered");
    lacking[index] = true;
  }
  for (std::size_t i = 0; i < writes.size(); ++i)
    if (!lacking[i]) there(i, false);
  if (pass.refusing.contains(member.id)) co_return;

  std::vector<ObjectStore::Write> sending;
  std::vector<std::size_t> indices;
  std::uint64_t bytes = 0;
  for (std::size_t n = 0; n <= reply.missing.size(); ++n) {
    const bool end = n == reply.missing.size();
    if (!indices.empty() && (end || bytes >= message_bytes)) {
      bytes = 0;
      auto part = std::exchange(sending, {});
      const bool taken = co_await send_offered(member, std::move(part), pass);
      const auto sent = std::exchange(indices, {});
      if (taken)
        for (const auto i : sent) there(i, true);
      if (pass.refusing.contains(member.id)) co_return;
    }
    if (end || stopping_ || members_->placement() != pass.placement) co_return;
    const auto i = reply.missing[n];
    const bool loaded = co_await load_offered(writes[i], pass);
    if (!loaded) continue;
    if (!writes[i].object.blob) {
      there(i, false);  // dropped meanwhile, or replaced: a put hands on what it brings by itself
      continue;
    }
    bytes += bytes_to_send(writes[i].object);
    sending.push_back(std::move(writes[i]));
    indices.push_back(i);
  }
}

// Brings an object's bytes to its offer; no bytes: it was dropped. False: it cannot be read.
Task<bool> ServerCore::load_offered(ObjectStore::Write& write, Pass& pass) {
  auto self = shared_from_this();
  const Deadline deadline(answer_within);
  const std::uint64_t version = write.object.version;
  try {
    auto loaded = co_await store_->load(write.ns, write.row, write.column, version, deadline);
    if (loaded) write.object = loaded->object;
    co_return true;
  } catch (const Error& error) {
    pass.fail(error);
    base::log(base::Level::warn, "an object cannot be passed on", {{"pool", options_.pool}, {"why", error.what()}});
    co_return false;
  }
}

void ServerCore::not_passed_on(Pass& pass, const Member& member, const Error& error) {
  pass.fail(error.in("server " + member.name));
  base::log(base::Level::warn, "objects could not be passed on",
            {{"pool", options_.pool}, {"server", member.name}, {"why", error.what()}});
}

// False: the other server did not take them.
Task<bool> ServerCore::send_offered(Member member, std::vector<ObjectStore::Write> writes, Pass& pass) {
  auto self = shared_from_this();
  std::uint64_t bytes = 0;
  bool durable = false;  // what is on disk here must be there, too, before anybody lets go of it
  for (const auto& w : writes) {
    bytes += bytes_to_send(w.object);
    durable = durable || w.object.on_disk;
  }
  const std::size_t objects = writes.size();
  // Bounded in bandwidth: wait until what was sent before is within it.
  const auto bound = static_cast<double>(std::max<std::uint64_t>(1, options_.rebalance_bytes_per_s));
  const std::chrono::duration<double> due(static_cast<double>(pass.sent.bytes) / bound);
  const auto ahead = std::chrono::duration_cast<std::chrono::nanoseconds>(due) - (base::Clock::now() - pass.begun);
  if (ahead > 1ms) co_await fabric::pause_for(*progress_, ahead);
  const Deadline deadline(answer_within + Timeout(bytes * 1000 / slowest_bytes_per_s));
  try {
    co_await send_replicas(member, pass.placement->view().number, std::move(writes), false, durable, 0, true, deadline);
  } catch (const Error& error) {
    if (error.code() != Errc::invalid_argument) pass.refusing.insert(member.id);  // else smaller ones may fit
    not_passed_on(pass, member, error);
    co_return false;
  }
  pass.sent.objects += objects;
  pass.sent.bytes += bytes;
  counters_.rebalanced_bytes += bytes;
  co_return true;
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

}  // namespace penstock::pool
