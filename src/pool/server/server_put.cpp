// A put that needs no lock, no other server and no disk is done in one pass over the table.
#include <algorithm>
#include <chrono>

#include "pool/server/server_core.hpp"

namespace penstock::pool {

namespace {

StoredObject common_of(const ServerCore::PutTerms& terms) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  StoredObject object;
  object.put_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  object.tag = terms.tag;
  object.metadata = terms.metadata;
  return object;
}

}  // namespace

// Whether this server is the only owner of all of them, and will stay it for now.
bool ServerCore::owns_alone(const PutTerms& terms, std::span<const ViewedKey> keys) const {
  const auto placement = members_->placement();
  if (stopping_ || !placement->view().settled) return false;
  const std::string_view* row = nullptr;
  for (const auto& key : keys) {
    if (row != nullptr && *row == key.row) continue;
    row = &key.row;
    const auto owners = placement->owners(terms.ns, key.row, terms.tag);
    if (owners.count != 1 || placement->view().members[owners.index[0]].id != options_.id) return false;
  }
  return true;
}

Error ServerCore::already_there(std::uint64_t version) {
  return Error(Errc::already_exists, "the object is there already (version " + std::to_string(version) + ")");
}

std::optional<std::vector<ServerCore::PutResult>> ServerCore::try_put(const PutTerms& terms,
                                                                      std::span<const ViewedKey> keys,
                                                                      std::span<const std::shared_ptr<Blob>> blobs,
                                                                      std::span<const std::uint64_t> checksums) {
  // A key that is locked is being changed by somebody who waits for something. Durable needs a tier: put says so.
  if (terms.acknowledge == Acknowledge::durable || !store_->memory_only() || locks_->held() != 0 || terms.again ||
      !owns_alone(terms, keys))
    return std::nullopt;
  auto object = common_of(terms);
  std::vector<PutResult> results(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto* present = store_->table().find(terms.ns, keys[i].row, keys[i].column);
    if (present != nullptr && terms.if_exists == IfExists::refuse) {
      results[i].error = already_there(present->version);
      continue;
    }
    object.version = std::max(present != nullptr ? present->version + 1 : 1, first_version());
    if (tombstones_.size() != 0)
      object.version =
          std::max(object.version, tombstones_.newest(pack_key(terms.ns, keys[i].row, keys[i].column)) + 1);
    object.bytes = blobs[i]->size();
    object.checksum = checksums[i];
    object.blob = blobs[i];
    results[i].version = object.version;
    store_->put_now(terms.ns, keys[i].row, keys[i].column, object, terms.if_exists == IfExists::add_version);
    ++counters_.puts;
    counters_.bytes_in += object.bytes;
  }
  return results;
}

}  // namespace penstock::pool
