#include "pool/server/object_service.hpp"

#include <algorithm>

#include "pool/keys/infos.hpp"
#include "pool/keys/protocol.hpp"
#include "pool/store/object_info.hpp"

namespace penstock::pool {
namespace {

constexpr std::size_t max_scan = 100'000;
constexpr std::size_t max_inline_reply = std::size_t{8} << 20;
constexpr std::chrono::milliseconds version_poll(20);

std::optional<std::uint64_t> tag_of(bool tagged, std::uint64_t tag) {
  return tagged ? std::optional<std::uint64_t>(tag) : std::nullopt;
}

std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace

// What a request for several objects will need from the disk, begun before its turn comes: so the disk has always something
// to do, and all of its reading threads have.
class ObjectService::Ahead {
 public:
  Ahead(std::shared_ptr<ServerCore> core, const fb::GetRequestT& request, const ViewedKeys& keys,
        base::Deadline deadline)
      : core_(std::move(core)), keys_(keys), deadline_(deadline) {
    if (request.version != 0) version_ = request.version;
    if (request.info_only || keys.keys.size() == 1) next_ = keys.keys.size();
    most_bytes_ = std::min<std::uint64_t>(64 << 20, core_->store().memory_limit() / 16);
  }
  // The load of the key whose turn it is, if it is not in memory; those after it are begun, too.
  Load take(std::size_t turn) {
    next_ = std::max(next_, turn);
    // What is in memory asks for nothing here, in this or in earlier turns.
    if (next_ == turn && on_disk(turn) == nullptr) return {};
    while (next_ < keys_.keys.size() && (next_ == turn || bytes_ < most_bytes_)) {
      if (const auto* object = on_disk(next_)) begin(next_, object->bytes);
      ++next_;
    }
    const auto found = begun_.find(turn);
    if (found == begun_.end()) return {};
    bytes_ -= found->second.bytes;
    auto load = std::move(found->second.load);
    begun_.erase(found);
    return load;
  }

 private:
  struct Begun {
    Load load;
    std::uint64_t bytes = 0;
  };
  const StoredObject* on_disk(std::size_t i) const {
    const auto& key = keys_.keys[i];
    const auto* object = core_->store().table().find(keys_.ns, key.row, key.column, version_);
    return object != nullptr && !object->blob ? object : nullptr;
  }
  void begin(std::size_t i, std::uint64_t bytes) {
    const auto& key = keys_.keys[i];
    auto task = core_->load_here(keys_.ns, std::string(key.row), std::string(key.column), version_, deadline_);
    begun_.emplace(i, Begun{fabric::spawn(*core_->progress(), std::move(task)), bytes});
    bytes_ += bytes;
  }

  std::shared_ptr<ServerCore> core_;
  const ViewedKeys& keys_;
  const base::Deadline deadline_;
  std::optional<std::uint64_t> version_;
  std::map<std::size_t, Begun> begun_;  // by the key's index
  std::size_t next_ = 0;                // the first that was not looked at
  std::uint64_t bytes_ = 0, most_bytes_ = 0;
};

ObjectService::ObjectService(std::shared_ptr<ServerCore> core, Compute compute, Admin admin,
                             std::shared_ptr<PutGuard> guard)
    : core_(std::move(core)), compute_(std::move(compute)), admin_(std::move(admin)), guard_(std::move(guard)) {}

Task<fb::GotT> ObjectService::get_one(rpc::Call& call, const fb::GetRequestT& request, std::uint64_t view, Namespace ns,
                                      Key key, Load begun, std::vector<std::uint8_t>& data) {
  auto core = core_;
  std::optional<std::uint64_t> version;
  if (request.version != 0) version = request.version;
  const auto wait_until = answer_in_time(call.deadline());
  for (;;) {
    if (request.info_only) {
      if (auto* present = core->store().table().find(ns, key.row, key.column, version)) {
        fb::GotT got;
        got.info = pack_info(key, *present, core->store().table().waiters(ns, key.row, key.column));
        co_return got;
      }
    }
    if (!request.info_only) {
      std::optional<ObjectStore::Loaded> loaded;
      if (auto load = std::exchange(begun, {}); load.valid()) loaded = co_await std::move(load);
      else loaded = co_await core->load_here(ns, key.row, key.column, version, call.deadline());
      if (loaded)
        co_return core->give(call.channel(), ns, key, loaded->object, request.offset, request.bytes,
                             request.inline_bytes, data);
    }
    if (!request.wait)
      throw Error(Errc::not_found, version && core->store().table().find(ns, key.row, key.column) ? "no such version"
                                                                                                  : "no such object");
    // Getting here took its time: what is put in a newer view may come to other servers.
    if (core->placement()->view().number != view)
      throw Error(Errc::stale_view, "the pool's membership changed before the wait");
    const Waiting waiting(waits_, call.channel(), core->options().max_waits);
    if (version && core->store().table().find(ns, key.row, key.column)) {  // the key is there, this version is not
      if (wait_until.passed()) throw Error(Errc::timeout, "this version of the object did not come in time");
      co_await fabric::pause_for(*core->progress(), version_poll);
      continue;
    }
    const bool present = co_await core->wait_present(ns, key.row, key.column, wait_until);
    if (!present) throw Error(Errc::timeout, "the object did not come in time");
  }
}

Task<fb::GetReplyT> ObjectService::get(rpc::Call& call, fb::GetRequestT request) {
  ServerCore::require_role(call, "read");
  auto core = core_;
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto keys = view_keys(request.keys.get());
  if (!request.info_only && call.channel().role() != "server")
    for (const auto& key : keys.keys) ServerCore::require_for_clients(keys.ns, key.row, key.column);
  ServerCore::PassingBy passing;
  if (!placement->view().settled) passing = co_await fetch_newer(*placement, request, keys, call.deadline());
  fb::GetReplyT reply;
  reply.view = placement->view().number;
  Ahead ahead(core, request, keys, call.deadline());
  std::size_t metadata = 0;
  const std::string_view* row = nullptr;
  for (std::size_t i = 0; i < keys.keys.size(); ++i) {
    const auto& key = keys.keys[i];
    if (row == nullptr || *row != key.row) {
      row = &key.row;
      if (!core->is_owner(*placement, keys.ns, key.row, tag_of(request.tagged, request.tag)))
        throw Error(Errc::stale_view, "this server does not own the object");
    }
    const auto passes = passing.empty() ? passing.end() : passing.find(pack_key(keys.ns, key.row, key.column));
    if (passes == passing.end() && give_simply(request, keys.ns, key, static_cast<std::uint32_t>(i), reply)) continue;
    auto got = std::make_unique<fb::GotT>();
    try {
      if (metadata > max_metadata_reply)
        throw Error(Errc::overloaded, "the metadata of the objects before it fill the reply; ask for fewer at once");
      Key owned{std::string(key.row), std::string(key.column)};
      if (passes == passing.end()) {
        auto begun = ahead.take(i);
        *got = co_await get_one(call, request, reply.view, keys.ns, std::move(owned), std::move(begun), reply.data);
      } else if (request.info_only) {
        got->info = pack_info(owned, passes->second, 0);
      } else {
        *got = core->give(call.channel(), keys.ns, owned, passes->second, request.offset, request.bytes,
                          request.inline_bytes, reply.data);
      }
      if (got->info) metadata += got->info->metadata.size();
    } catch (const Error& error) {
      if (error.code() == Errc::stale_view) throw;
      got->code = static_cast<std::uint16_t>(error.code());
      got->message = error.what();
    }
    got->index = static_cast<std::uint32_t>(i);
    reply.got.push_back(std::move(got));
  }
  co_return reply;
}

// What other servers have not yet passed on to this one.
Task<ServerCore::PassingBy> ObjectService::fetch_newer(const Placement& placement, const fb::GetRequestT& request,
                                                       const ViewedKeys& keys, base::Deadline deadline) {
  auto core = core_;
  const auto tag = tag_of(request.tagged, request.tag);
  std::vector<Key> owned;
  for (const auto& key : keys.keys) {
    if (!core->is_owner(placement, keys.ns, key.row, tag))
      throw Error(Errc::stale_view, "this server does not own the object");
    owned.push_back({std::string(key.row), std::string(key.column)});
  }
  std::optional<std::uint64_t> version;
  if (request.version != 0) version = request.version;
  co_return co_await core->fetch_newer(keys.ns, std::move(owned), tag, version, deadline);
}

// The common case of small objects: whole, newest, in memory, without metadata. Costs no table of its own in the reply.
bool ObjectService::give_simply(const fb::GetRequestT& request, const Namespace& ns, const ViewedKey& key,
                                std::uint32_t index, fb::GetReplyT& reply) {
  if (request.info_only || request.version != 0 || request.offset != 0) return false;
  auto* present = core_->store().table().find(ns, key.row, key.column);
  if (!present || !present->blob || present->metadata || present->bytes > request.inline_bytes ||
      present->bytes > request.bytes || reply.data.size() + present->bytes > max_inline_reply)
    return false;
  ++core_->counters().gets;
  core_->counters().bytes_out += present->bytes;
  reply.simple.push_back(index);
  reply.bytes.push_back(present->bytes);
  reply.versions.push_back(present->version);
  reply.checksums.push_back(present->checksum);
  reply.put_us.push_back(present->put_us);
  reply.where.push_back(present->on_disk ? 3 : 1);
  const auto* from = reinterpret_cast<const std::uint8_t*>(present->blob->bytes().data());
  reply.data.insert(reply.data.end(), from, from + present->bytes);
  return true;
}

Task<fb::EmptyT> ObjectService::release(rpc::Call& call, fb::ReleaseRequestT request) {
  for (const auto lease : request.leases) core_->release(call.channel(), lease);
  co_return fb::EmptyT{};
}

Task<fb::ListReplyT> ObjectService::list(rpc::Call& call, fb::ListRequestT request) {
  ServerCore::require_role(call, "read");
  auto core = core_;
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto ns = unpack_namespace(request.ns);
  const auto pattern = unpack_pattern(request.row, request.column);
  fb::ListReplyT reply;
  reply.view = placement->view().number;
  const std::size_t limit = std::min<std::size_t>(std::max(1u, request.limit), max_listed);
  const std::size_t visits = request.max_scan == 0 ? max_scan : std::min<std::size_t>(request.max_scan, max_scan);
  const auto after = text_of(request.after);
  reply.objects = std::make_unique<fb::InfosT>();
  reply.objects->keys = std::make_unique<fb::KeysT>();
  std::size_t found = 0, metadata = 0;
  // In a settled view one server answers for each object; else all do, and the client sorts that out.
  const auto visit = [&](const ObjectTable::Entry& entry) {
    if (placement->view().settled && !core->is_primary(*placement, entry.ns, entry.row, entry.object.tag)) return true;
    append_info(*reply.objects, entry);
    metadata += entry.object.metadata_bytes();
    return ++found < limit && metadata < max_inline_reply;
  };
  reply.next = bytes_of(core->store().table().scan(ns, pattern, after, visits, visit));
  co_return reply;
}

Task<fb::DropReplyT> ObjectService::drop(rpc::Call& call, fb::DropRequestT request) {
  ServerCore::require_role(call, "write");
  auto core = core_;
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto keys = unpack_keys(request.keys.get());
  ServerCore::require_changeable(call, keys.ns);
  const auto tag = tag_of(request.tagged, request.tag);
  std::optional<std::uint64_t> version;
  if (request.version != 0) version = request.version;
  fb::DropReplyT reply;
  reply.view = placement->view().number;
  for (const auto& key : keys.keys) {
    if (!core->is_primary(*placement, keys.ns, key.row, tag))
      throw Error(Errc::stale_view, "this server does not own the object");
    auto status = std::make_unique<fb::StatusT>();
    bool dropped = false;
    try {
      dropped = co_await core->drop(keys.ns, key.row, key.column, tag, version, Acknowledge::durable, call.deadline(),
                                    request.request);
    } catch (const Error& error) {
      if (error.code() == Errc::stale_view) throw;
      status = pack_status(error);
    }
    reply.dropped.push_back(dropped);
    reply.failures.push_back(std::move(status));
  }
  co_return reply;
}

Task<fb::DropPatternReplyT> ObjectService::drop_pattern(rpc::Call& call, fb::DropPatternRequestT request) {
  ServerCore::require_role(call, "write");
  auto core = core_;
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto ns = unpack_namespace(request.ns);
  ServerCore::require_changeable(call, ns);
  const auto pattern = unpack_pattern(request.row, request.column);
  fb::DropPatternReplyT reply;
  std::string after;
  do {
    struct Found {
      Key key;
      std::optional<std::uint64_t> tag;
    };
    std::vector<Found> found;
    const auto visit = [&](const ObjectTable::Entry& entry) {
      if (core->is_primary(*placement, entry.ns, entry.row, entry.object.tag))
        found.push_back({{std::string(entry.row), std::string(entry.column)}, entry.object.tag});
      return found.size() < 1000;
    };
    after = core->store().table().scan(ns, pattern, after, max_scan, visit);
    for (auto& f : found) {
      try {
        const bool dropped = co_await core->drop(ns, f.key.row, f.key.column, f.tag, std::nullopt, Acknowledge::durable,
                                                 call.deadline());
        reply.dropped += dropped;
      } catch (const Error& error) {
        if (error.code() != Errc::stale_view || reply.dropped == 0) throw;
        reply.more = true;  // what was done is told; the caller asks again by the new view
      }
      if (reply.more) co_return reply;
    }
  } while (!after.empty() && !call.cancelled());
  co_return reply;
}

Task<fb::ListReplyT> ObjectService::wait_row(rpc::Call& call, fb::WaitRowRequestT request) {
  ServerCore::require_role(call, "read");
  auto core = core_;
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto ns = unpack_namespace(request.ns);
  const auto row = text_of(request.row);
  if (!core->is_owner(*placement, ns, row, std::nullopt))
    throw Error(Errc::stale_view, "this server does not own the row");
  Pattern pattern;
  pattern.row = escape_pattern(row);
  pattern.column = text_of(request.column);
  const KeyPattern wanted(pattern);
  const Waiting waiting(waits_, call.channel(), core->options().max_waits);
  const auto after = text_of(request.after);
  const bool reached = co_await core->wait_count(ns, row, wanted, request.count, answer_in_time(call.deadline()));
  if (!reached) {
    std::size_t there = 0;
    core->store().table().scan(ns, wanted, "", ~std::size_t{0},
                               [&](const ObjectTable::Entry&) { return ++there != 0; });
    throw Error(Errc::timeout, "the row has " + std::to_string(there) + " of " + std::to_string(request.count) +
                                   " objects; the others did not come in time");
  }
  fb::ListReplyT reply;
  reply.view = placement->view().number;
  reply.objects = std::make_unique<fb::InfosT>();
  reply.objects->keys = std::make_unique<fb::KeysT>();
  std::size_t found = 0, metadata = 0;
  const auto visit = [&](const ObjectTable::Entry& entry) {
    append_info(*reply.objects, entry);
    metadata += entry.object.metadata_bytes();
    return ++found < max_listed && metadata < max_inline_reply;
  };
  reply.next = bytes_of(core->store().table().scan(ns, wanted, after, max_scan, visit));
  co_return reply;
}

// ------------------------------------------------------------------------------------------------------------------ rest

Task<fb::ComputeReplyT> ObjectService::compute(rpc::Call& call, fb::ComputeRequestT request) {
  ServerCore::require_role(call, "compute");
  if (!compute_) throw Error(Errc::unsupported, "this server computes nothing");
  co_return co_await compute_(call, std::move(request));
}

Task<fb::StatusReplyT> ObjectService::status(rpc::Call& call, fb::StatusRequestT) {
  ServerCore::require_role(call, "read");
  fb::StatusReplyT reply;
  reply.json = status_json(*core_);
  co_return reply;
}

Task<fb::AdminReplyT> ObjectService::admin(rpc::Call& call, fb::AdminRequestT request) {
  ServerCore::require_role(call, "admin");
  if (!admin_) throw Error(Errc::unsupported, "this server takes no commands");
  fb::AdminReplyT reply;
  reply.json = co_await admin_(std::move(request.command), std::move(request.argument));
  co_return reply;
}

Task<fb::ReplicateReplyT> PeerService::replicate(rpc::Call& call, fb::ReplicateRequestT request) {
  co_return co_await core_->replicate(call, std::move(request));
}

Task<fb::GetReplyT> PeerService::fetch(rpc::Call& call, fb::FetchRequestT request) {
  co_return co_await core_->fetch(call, std::move(request));
}

Task<fb::HaveReplyT> PeerService::have(rpc::Call& call, fb::HaveRequestT request) {
  co_return co_await core_->have(call, std::move(request));
}

Task<fb::MissingReplyT> PeerService::missing(rpc::Call& call, fb::MissingRequestT request) {
  co_return co_await core_->missing(call, std::move(request));
}

Task<fb::PullReplyT> PeerService::pull(rpc::Call& call, fb::PullRequestT request) {
  ServerCore::require_role(call, "server");
  if (!pull_) throw Error(Errc::unsupported, "this server keeps no streams");
  co_return co_await pull_(call, std::move(request));
}

}  // namespace penstock::pool
