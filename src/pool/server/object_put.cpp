// Putting, as the owner's server sees it: the bytes of a batch are taken in, checked, and put by ServerCore, in parts when they
// are many. What is done for each of many small objects is kept cheap.
#include "pool/keys/protocol.hpp"
#include "pool/server/object_service.hpp"

namespace penstock::pool {
namespace {

constexpr std::uint64_t check_inline_bytes = 256 << 10;  // more than this is checked on a worker thread
constexpr std::uint64_t most_small_bytes = 8 << 20;      // of small objects at once: they are pulled into one buffer

}  // namespace

// Some of a batch's objects, next to each other.
struct ObjectService::PutPart {
  std::size_t first = 0, count = 0;
  std::uint64_t offset = 0, bytes = 0;  // in the batch's bytes
  bool small = true;                    // none has pages of its own
};

// As many as are little beside the memory, so that a batch that is larger than it gets in: earlier objects can be evicted. And
// little metadata, of which disks and replicas get a copy for each object.
ObjectService::PutPart ObjectService::part_after(const PutPart& last, const fb::PutRequestT& request) const {
  const auto& sizes = request.sizes;
  PutPart part;
  part.first = last.first + last.count;
  part.offset = last.offset + last.bytes;
  const std::uint64_t most_charge = core_->store().memory_limit() / 4;
  std::uint64_t charge = 0;
  for (std::size_t i = part.first; i < sizes.size(); ++i) {
    charge += ObjectStore::charge_of(std::min(sizes[i], most_charge));
    const bool small = part.small && sizes[i] < slab_object_bytes;
    const bool much = charge > most_charge || (small && part.bytes + sizes[i] > most_small_bytes) ||
                      (part.count + 1) * request.metadata.size() > most_small_bytes;
    if (part.count > 0 && much) break;
    part.bytes += sizes[i];
    part.small = small;
    ++part.count;
  }
  return part;
}

Task<fb::PutReplyT> ObjectService::put(rpc::Call& call, fb::PutRequestT request) {
  ServerCore::require_role(call, "write");
  auto core = core_;
  const auto placement = co_await core->check_view(request.view, call.deadline());
  const auto keys = view_keys(request.keys.get());
  ServerCore::require_changeable(call, keys.ns);
  const std::size_t count = keys.keys.size();
  const bool bulk = request.bulk.bytes() > 0;
  check_sizes(count, request.sizes, bulk ? request.bulk.bytes() : request.data.size());
  if (!request.checksums.empty() && request.checksums.size() != count)
    throw Error(Errc::protocol, "checksums do not match the keys");
  ServerCore::PutTerms terms;
  terms.ns = keys.ns;
  terms.if_exists = checked_enum(request.if_exists, IfExists::add_version);
  terms.acknowledge = checked_enum(request.acknowledge, Acknowledge::durable);
  terms.again = request.again;
  if (request.tagged) terms.tag = request.tag;
  if (request.metadata.size() > max_metadata_bytes) throw Error(Errc::protocol, "metadata that are too long");
  const std::string_view* row = nullptr;
  for (const auto& key : keys.keys) {
    if (row != nullptr && *row == key.row) continue;
    row = &key.row;
    if (!core->is_primary(*placement, terms.ns, key.row, terms.tag))
      throw Error(Errc::stale_view, "this server does not own the object");
  }
  if (!request.metadata.empty()) terms.metadata = core->store().keep_metadata(request.metadata);
  fb::PutReplyT reply;
  reply.view = placement->view().number;
  reply.versions.resize(count);
  const auto wait_until = answer_in_time(call.deadline());
  for (auto part = part_after({}, request); part.count > 0; part = part_after(part, request)) {
    auto results = co_await put_part(call, request, keys.keys, terms, part, wait_until);
    for (std::size_t i = 0; i < results.size(); ++i) {
      reply.versions[part.first + i] = results[i].version;
      if (!results[i].error) continue;
      reply.failed.push_back(static_cast<std::uint32_t>(part.first + i));
      reply.failures.push_back(pack_status(*results[i].error));
    }
  }
  co_return reply;
}

// keys: of the whole batch. wait_until: for memory; what does not get any until then is refused, and only that.
Task<std::vector<ServerCore::PutResult>> ObjectService::put_part(rpc::Call& call, const fb::PutRequestT& request,
                                                                 const std::vector<ViewedKey>& keys,
                                                                 const ServerCore::PutTerms& terms, PutPart part,
                                                                 base::Deadline wait_until) {
  auto core = core_;
  ObjectStore::Blobs blobs;
  std::optional<Error> refused;
  try {
    blobs = core->store().try_reserve_all(std::span(request.sizes).subspan(part.first, part.count));
    if (blobs.empty()) {
      const auto begin = request.sizes.begin() + static_cast<std::ptrdiff_t>(part.first);
      std::vector<std::uint64_t> sizes(begin, begin + static_cast<std::ptrdiff_t>(part.count));
      blobs = co_await core->store().reserve_all(std::move(sizes), wait_until);
    }
  } catch (const Error& error) {
    // What came before it in the batch is in the pool.
    if (error.code() != Errc::pool_full && error.code() != Errc::invalid_argument) throw;
    refused = error;
  }
  if (refused) co_return std::vector<ServerCore::PutResult>(part.count, ServerCore::PutResult{0, refused});
  co_await take_bytes(call, request, part, blobs);

  std::vector<std::uint64_t> checksums(part.count);
  auto check = [&] {
    for (std::size_t i = 0; i < part.count; ++i) {
      checksums[i] = storage::checksum(blobs[i]->bytes());
      if (!request.checksums.empty() && request.checksums[part.first + i] != checksums[i])
        throw Error(Errc::protocol, "an object's bytes do not match their checksum on arrival");
    }
  };
  if (part.bytes <= check_inline_bytes) check();
  else co_await core->workers().run(check);

  const std::span of(keys.data() + part.first, part.count);
  const bool guarded = guard_ && guard_->of() == terms.ns;
  if (!guarded)
    if (auto done = core->try_put(terms, of, blobs, checksums)) co_return std::move(*done);
  std::vector<ServerCore::Put> objects(part.count);
  for (std::size_t i = 0; i < part.count; ++i) {
    auto& put = objects[i];
    put.ns = terms.ns;
    put.row = of[i].row;
    put.column = of[i].column;
    put.tag = terms.tag;
    put.blob = std::move(blobs[i]);
    put.checksum = checksums[i];
    put.metadata = terms.metadata;
  }
  if (guarded) co_return co_await put_guarded(std::move(objects), terms, call.deadline());
  co_return co_await core->put(std::move(objects), terms.if_exists, terms.acknowledge, call.deadline(), terms.again);
}

// Each object on its own: what the guard refuses does not keep the others out.
Task<std::vector<ServerCore::PutResult>> ObjectService::put_guarded(std::vector<ServerCore::Put> objects,
                                                                    const ServerCore::PutTerms& terms,
                                                                    base::Deadline deadline) {
  auto core = core_;
  std::vector<ServerCore::PutResult> results(objects.size());
  std::vector<std::shared_ptr<PutToken>> tokens;
  std::vector<std::size_t> admitted;
  std::vector<ServerCore::Put> puts;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    try {
      tokens.push_back(co_await guard_->admit(objects[i], terms.if_exists, deadline));
      admitted.push_back(i);
      puts.push_back(std::move(objects[i]));
    } catch (const Error& error) {
      if (error.code() == Errc::stale_view) throw;
      results[i].error = error;
    }
  }
  if (puts.empty()) co_return results;
  auto done = co_await core->put(std::move(puts), terms.if_exists, terms.acknowledge, deadline, terms.again);
  for (std::size_t n = 0; n < admitted.size(); ++n) {
    tokens[n]->in_doubt = done[n].error && done[n].error->code() == Errc::timeout;
    results[admitted[n]] = std::move(done[n]);
  }
  co_return results;
}

Task<void> ObjectService::take_bytes(rpc::Call& call, const fb::PutRequestT& request, PutPart part,
                                     const ObjectStore::Blobs& blobs) {
  const bool bulk = request.bulk.bytes() > 0;
  const transport::BulkDescriptor from = request.bulk;
  const auto pulled = std::make_shared<std::vector<std::byte>>();  // many small ones are pulled at once
  const std::byte* bytes = reinterpret_cast<const std::byte*>(request.data.data()) + part.offset;
  if (bulk && part.small && part.count > 1) {
    pulled->resize(part.bytes);
    std::shared_ptr<const void> owner = pulled;
    co_await call.channel().bulk().pull(from, part.offset, *pulled, call.deadline(), std::move(owner));
    bytes = pulled->data();
  } else if (bulk) {
    std::uint64_t offset = part.offset;
    for (const auto& blob : blobs) {
      std::shared_ptr<const void> owner = blob;
      co_await call.channel().bulk().pull(from, offset, blob->writable(), call.deadline(), std::move(owner));
      offset += blob->size();
    }
    co_return;
  }
  for (const auto& blob : blobs) {
    std::copy_n(bytes, blob->size(), blob->writable().data());
    bytes += blob->size();
  }
}

}  // namespace penstock::pool
