// The short ways of a put: what needs no lock, no other server and no disk is done in one pass over the table; what needs the
// disk only, in one pass before it and one after it.
#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <chrono>

#include "pool/server_core.hpp"

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

// Mostly they come in order, which is cheap to see.
bool are_distinct(std::span<const ViewedKey> keys, const KeyLocks::Keys& hashes) {
  const auto not_below = [](const ViewedKey& a, const ViewedKey& b) {
    const int rows = a.row.compare(b.row);
    return rows != 0 ? rows > 0 : a.column >= b.column;
  };
  if (std::ranges::adjacent_find(keys, not_below) == keys.end()) return true;
  return absl::flat_hash_set<std::uint64_t>(hashes.begin(), hashes.end()).size() == hashes.size();
}

}  // namespace

// A durable put that has begun.
struct ServerCore::ShortPut {
  std::shared_ptr<FreshBatch> batch;  // what was not refused
  std::vector<std::size_t> places;    // of its items, among the results
  std::vector<PutResult> results;
  std::shared_ptr<const Placement> counted;
  std::optional<KeyLocks::Held> held;
  std::shared_ptr<fabric::Promise<void>> done;
};

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
    object.version = present != nullptr ? present->version + 1 : store_->first_version();
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

std::shared_ptr<ServerCore::ShortPut> ServerCore::begin_put(const PutTerms& terms, std::span<const ViewedKey> keys,
                                                            std::span<std::shared_ptr<Blob>> blobs,
                                                            std::span<const std::uint64_t> checksums) {
  if (terms.acknowledge != Acknowledge::durable || store_->memory_only() || terms.again || !owns_alone(terms, keys))
    return nullptr;
  auto put = std::make_shared<ShortPut>();
  put->results.resize(keys.size());
  put->counted = members_->placement();
  put->batch = std::make_shared<FreshBatch>(terms.ns, common_of(terms), terms.if_exists == IfExists::add_version);
  auto& batch = *put->batch;
  std::size_t key_bytes = 0;
  for (const auto& key : keys) key_bytes += key.row.size() + key.column.size();
  batch.reserve(keys.size(), key_bytes);
  KeyLocks::Keys lines;
  lines.reserve(keys.size());
  for (const auto& key : keys) {
    if (!batch.add(key.row, key.column)) return nullptr;
    lines.push_back(batch.items.back().line);
  }
  if (!are_distinct(keys, lines)) return nullptr;
  auto held = locks_->try_acquire(std::move(lines));
  if (!held) return nullptr;
  put->places.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto* present = store_->table().find(terms.ns, keys[i].row, keys[i].column);
    if (present != nullptr && terms.if_exists != IfExists::refuse) return nullptr;
    if (present != nullptr) put->results[i].error = already_there(present->version);
    else put->places.push_back(i);
  }
  if (put->places.empty()) return put;
  for (std::size_t n = 0; n < put->places.size(); ++n) {
    const auto i = put->places[n];
    if (n != i) batch.items[n] = std::move(batch.items[i]);
    auto& item = batch.items[n];
    auto version = store_->first_version();
    if (tombstones_.size() != 0)
      version = std::max(version, tombstones_.newest(std::string(batch.packed_key(item))) + 1);
    batch.set_version(item, version);
    put->results[i].version = version;
    item.checksum = checksums[i];
    item.blob = blobs[i];
    batch.bytes += blobs[i]->size();
  }
  batch.items.resize(put->places.size());
  put->done = store_->start_fresh(put->batch);
  if (!put->done) return nullptr;
  put->held.emplace(std::move(*held));
  counters_.puts += batch.items.size();
  counters_.bytes_in += batch.bytes;
  return put;
}

Task<std::vector<ServerCore::PutResult>> ServerCore::finish_put(std::shared_ptr<ShortPut> begun, Deadline deadline) {
  auto self = shared_from_this();
  const auto put = std::move(begun);  // gives its keys free before self goes
  if (!put->done) co_return std::move(put->results);
  std::optional<Error> failed;
  try {
    co_await finished_by(*progress_, put->done, deadline, "the disk did not take an object");
    // In a view that came meanwhile these may be missing: they came after what was here had been passed on.
    while (members_->placement() != put->counted) {
      put->counted = members_->placement();
      std::vector<ObjectStore::Write> writes;
      const auto& batch = *put->batch;
      for (const auto& item : batch.items) {
        if (!is_primary(*put->counted, batch.ns, batch.row(item), batch.common.tag))
          throw Error(Errc::stale_view, "the pool's membership changed during the put");
        writes.push_back({batch.ns, std::string(batch.row(item)), std::string(batch.column(item)), batch.object(item),
                          batch.keep_older});
      }
      co_await replicate_to_owners(std::move(writes), false, true, 0, deadline);
    }
  } catch (const Error& error) {
    failed = error;
  }
  if (failed)
    for (const auto i : put->places) put->results[i].error = failed;
  co_return std::move(put->results);
}

}  // namespace penstock::pool
