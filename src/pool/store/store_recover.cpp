// What the tiers held when the server started, and what moves from the first tier to the second.
#include <algorithm>
#include <tuple>

#include "base/log.hpp"
#include "pool/store/store_impl.hpp"

namespace penstock::pool {

using fabric::Promise;

namespace {

constexpr double demote_above = 0.9, demote_to = 0.8;  // of the first tier's limit
constexpr std::uint64_t demotion_bytes = 16 << 20;     // at a time
constexpr std::size_t demotion_objects = 1024;
constexpr std::size_t recovery_chunk = 20'000;  // objects taken over between two turns of the engine

struct Entry {
  storage::TierEntry entry;  // without the object's metadata
  std::size_t tier = 0;
  SharedTexts::Text metadata;
};

// What is no record of an object stays as it is.
Entry share_metadata(const storage::TierEntry& entry, std::size_t tier, SharedTexts& texts) {
  std::string_view record = entry.metadata;
  SharedTexts::Text metadata;
  try {
    if (const auto text = decode_record(record).metadata; !text.empty()) {
      metadata = texts.keep(text, ~std::uint64_t{0});
      record.remove_prefix(text.size());
    }
  } catch (const Error&) {
  }
  return {{entry.key, entry.data_bytes, entry.checksum, std::string(record)}, tier, std::move(metadata)};
}

// Of every tier, by key; of one key the fastest tier's first.
std::vector<Entry> scan_tiers(const Tiers& tiers, SharedTexts& texts, std::uint64_t& floor) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < tiers.size(); ++i)
    tiers[i]->scan("", [&](const storage::TierEntry& entry) {
      if (entry.key != DiskQueue::floor_key()) entries.push_back(share_metadata(entry, i, texts));
      else if (entry.metadata.size() == 8) floor = std::max(floor, split_tier_key(entry.metadata).version);
      return true;
    });
  const auto before = [](const Entry& a, const Entry& b) {
    return std::tie(a.entry.key, a.tier) < std::tie(b.entry.key, b.tier);
  };
  if (!std::is_sorted(entries.begin(), entries.end(), before)) std::sort(entries.begin(), entries.end(), before);
  return entries;
}

// One that a demotion had copied and not yet removed.
void erase_copy(const Tiers& tiers, const Entry& copy) {
  try {
    tiers[copy.tier]->erase(copy.entry.key, false);
  } catch (const Error& error) {
    base::log(base::Level::warn, "a second copy in a pool's tier could not be removed", {{"error", error.what()}});
  }
}

}  // namespace

// On a worker.
void ObjectStore::Impl::read_tiers(const Tiers& tiers, SharedTexts& texts, Recovered& out) {
  const auto entries = scan_tiers(tiers, texts, out.floor);
  out.objects.reserve(entries.size());
  std::size_t unknown = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& [entry, tier, metadata] = entries[i];
    if (i > 0 && entries[i - 1].entry.key == entry.key) {
      erase_copy(tiers, entries[i]);
      continue;
    }
    try {
      const auto [packed, version] = split_tier_key(entry.key);
      const auto record = decode_record(entry.metadata);
      Found found;
      found.key = unpack_key(packed);
      found.keep_older = record.keep_older;
      found.in_first = tier == 0;
      auto& object = found.object;
      object.version = version;
      object.bytes = entry.data_bytes;
      object.checksum = entry.checksum;
      object.put_us = record.put_us;
      object.tag = record.tag;
      object.metadata = metadata;
      object.on_disk = true;
      object.last_used = static_cast<std::uint64_t>(std::max<std::int64_t>(record.put_us, 0));
      out.objects.push_back(std::move(found));
    } catch (const Error&) {
      ++unknown;
    }
  }
  if (unknown > 0)
    base::log(base::Level::warn, "a pool's tier holds entries that are no objects of a pool", {{"entries", unknown}});
}

void ObjectStore::Impl::make_memory_for(std::span<const Found> objects) {
  const auto segment = memory->new_segment_bytes(), most = max_empty_segments * segment;
  std::uint64_t bytes = 0;
  for (const auto& found : objects) {
    const auto size = found.object.bytes;
    if (size >= slab_object_bytes && size <= segment / 4) bytes += size;  // larger ones have segments of their own size
    if (bytes >= most) break;
  }
  make_memory_ahead(std::min<std::uint64_t>(bytes, most));
}

// obsolete: entries of versions that this one has replaced.
void ObjectStore::Impl::take_over(Found& found, std::vector<Place>& obsolete) {
  const auto packed = pack_key(found.key.ns, found.key.row, found.key.column);
  if (table.find(found.key.ns, found.key.row, found.key.column) != nullptr) {
    std::vector<std::uint64_t> replaced;
    replace_older(found.key, keys[packed], found.keep_older, replaced);
    for (const auto version : replaced) obsolete.push_back({packed, version});
    forget_if_empty(packed);
  }
  uses = std::max(uses, found.object.last_used);
  if (demotes() && found.in_first) demotable.add({found.object.last_used, found.object.version, packed});
  table.insert(found.key.ns, found.key.row, found.key.column, std::move(found.object), found.keep_older);
}

fabric::Task<void> ObjectStore::recover() {
  const auto self = impl_;
  if (!self->disk) co_return;
  auto found = std::make_shared<Impl::Recovered>();
  auto read = std::make_shared<Promise<void>>(self->progress);
  self->disk->run_aside(
      [found, texts = self->metadata](const Tiers& tiers) { Impl::read_tiers(tiers, *texts, *found); },
      [read](std::exception_ptr error) {
        if (error) read->set_error(error);
        else read->set();
      });
  co_await read->future();
  self->floor_recovered = self->floor_written = found->floor;
  self->make_memory_for(found->objects);
  std::vector<Impl::Place> obsolete;
  std::size_t done = 0;
  for (auto& object : found->objects) {
    self->take_over(object, obsolete);
    if (++done % recovery_chunk != 0) continue;
    auto turn = std::make_shared<Promise<void>>(self->progress);
    self->progress.post([turn] { turn->set(); });
    co_await turn->future();
  }
  if (!obsolete.empty()) self->submit_erases(std::make_shared<DiskJob>(), std::move(obsolete), 0, false, nullptr);
  self->demote_if_full();
}

// ------------------------------------------------------------------------------------------------------------- demotion

// Moves some of the least recently used objects of the first tier to the second, if the first is too full.
void ObjectStore::Impl::demote_if_full() {
  if (!demotes() || demoting || stopped || retry_pending) return;
  const auto limit = static_cast<double>(limits[0]);
  const auto held = static_cast<double>(disk->tiers().front()->used_bytes());
  if (held <= (demoting_on ? demote_to : demote_above) * limit) {
    demoting_on = false;
    return;
  }
  demoting_on = true;
  const auto most = std::min(demotion_bytes, static_cast<std::uint64_t>(held - demote_to * limit) + 1);
  auto demotion = std::make_shared<Demotion>();
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = 0; bytes < most && demotion->moves.size() < demotion_objects && !demotable.empty();) {
    auto entry = demotable.take();
    const auto key = unpack_key(entry.packed_key);
    const auto* object = table.find(key.ns, key.row, key.column, entry.version);
    if (object == nullptr || !object->on_disk) continue;
    if (object->last_used != entry.last_used) {
      entry.last_used = object->last_used;
      demotable.add(std::move(entry));
      continue;
    }
    const auto with_metadata = object->bytes + object->metadata_bytes();
    if (bytes > 0 && bytes + with_metadata > most) {
      demotable.add(std::move(entry));
      break;
    }
    bytes += with_metadata + 1;
    if (!object->blob) sizes.push_back(object->bytes);
    demotion->moves.push_back({std::move(entry), object->blob, object->bytes});
  }
  if (demotion->moves.empty()) return;
  demoting = true;
  if (sizes.empty()) {
    demote(demotion, {});
    return;
  }
  credit->ask(std::move(sizes), [weak = weak_from_this(), demotion](Credit::Blobs blobs, std::exception_ptr error) {
    const auto self = weak.lock();
    if (!self || self->stopped) return;
    if (error) self->demoted(*demotion, error);
    else self->demote(demotion, std::move(blobs));
  });
}

// On a reading thread. An object that is not there any more, or damaged, stays as it is.
void ObjectStore::Impl::move_down(const Tiers& tiers, Demotion& demotion, const Credit::Blobs& blobs) {
  std::vector<storage::TierEntry> entries;
  entries.reserve(demotion.moves.size());
  std::vector<storage::TierWrite> writes;
  std::size_t next = 0;
  for (const auto& move : demotion.moves) {
    const auto blob = move.blob ? nullptr : blobs[next++];
    auto entry = tiers[0]->find(tier_key(move.entry.packed_key, move.entry.version));
    if (!entry || entry->data_bytes != move.bytes) continue;
    try {
      if (blob) tiers[0]->get(entry->key, blob->writable());
    } catch (const Error& error) {
      base::log(base::Level::error, "an object could not be moved to the next tier", {{"error", error.what()}});
      continue;
    }
    const auto& e = entries.emplace_back(std::move(*entry));
    writes.push_back({e.key, e.metadata, blob ? blob->bytes() : move.blob->bytes(), e.checksum});
  }
  if (writes.empty()) return;
  tiers[1]->put(writes, true);
  for (const auto& e : entries) tiers[0]->erase(e.key, false);
  demotion.moved = entries.size();
}

void ObjectStore::Impl::demote(const std::shared_ptr<Demotion>& demotion, Credit::Blobs blobs) {
  auto job = std::make_shared<DiskJob>();
  for (const auto& move : demotion->moves) job->keys.push_back(move.entry.packed_key);
  job->read = [demotion, blobs = std::move(blobs)](const Tiers& tiers) { move_down(tiers, *demotion, blobs); };
  job->done = [weak = weak_from_this(), demotion](DiskJob& job, std::exception_ptr error) {
    const auto self = weak.lock();
    if (!self || self->stopped) return;
    job.read = nullptr;  // and with it the bytes
    self->demoted(*demotion, error);
  };
  disk->submit(std::move(job));
}

void ObjectStore::Impl::demoted(Demotion& demotion, std::exception_ptr error) {
  demoting = false;
  demotions += demotion.moved;
  if (error) {
    for (auto& move : demotion.moves) demotable.add(std::move(move.entry));
    note_disk(error, true);
  }
  demotion.moves.clear();
  credit->serve();
  demote_if_full();
}

}  // namespace penstock::pool
