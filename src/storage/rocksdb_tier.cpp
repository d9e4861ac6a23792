#include "storage/rocksdb_tier.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "storage/little_endian.hpp"

namespace penstock::storage {

namespace {

constexpr std::uint64_t most_bytes_in_entry = 1 << 10;  // larger data would make listing read it
constexpr std::uint64_t most_retired_bytes = 64 << 20;
constexpr std::size_t most_retired_files = 256;
constexpr std::size_t entries_per_scan_step = 256;

}  // namespace

std::optional<RocksTier::Existing> RocksTier::existing(std::string_view key) const {
  rocksdb::PinnableSlice value;
  if (!database_->get(database_->index(), key, value)) return std::nullopt;
  const IndexEntry entry = decode_index_entry(text(value));
  return Existing{entry.where, {entry.number, entry.synced}, entry.data_bytes};
}

void RocksTier::do_put(std::span<const TierWrite> writes, bool sync) {
  const auto lock = enter(true);
  Room::Change change;
  std::vector<std::optional<Existing>> replaced;
  replaced.reserve(writes.size());
  for (const TierWrite& write : writes) {
    replaced.push_back(write.fresh ? std::nullopt : existing(write.key));
    change.objects_new += 1;
    change.bytes_new += write.data.size();
    if (!replaced.back()) continue;
    change.objects_replaced += 1;
    change.bytes_replaced += replaced.back()->data_bytes;
  }
  Room room(*this, change);
  try {
    put_once(writes, replaced, sync, room);
  } catch (const TierFull&) {
    if (!make_space()) throw;
    put_once(writes, replaced, sync, room);
  }
}

void RocksTier::put_once(std::span<const TierWrite> writes, const std::vector<std::optional<Existing>>& replaced,
                         bool sync, Room& room) {
  std::vector<TierWrite> large;
  bool sync_files = sync;
  std::uint64_t batch_bytes = 0, large_bytes = 0;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    batch_bytes += writes[i].key.size() + writes[i].metadata.size() + 64;
    if (!is_large(writes[i])) {
      batch_bytes += writes[i].data.size();
      continue;
    }
    large.push_back(writes[i]);
    large_bytes += writes[i].data.size();
    // Else the index entry could become durable before the file does, when the old object is gone already.
    const bool was_file = replaced[i] && replaced[i]->where == Where::file;
    sync_files = sync_files || (replaced[i] && (!was_file || folder_->is_durable(replaced[i]->file)));
  }
  const bool makes_room = std::ranges::all_of(writes, &TierWrite::makes_room);
  check_space(makes_room ? 0 : batch_bytes + large_bytes, makes_room);
  std::optional<PendingFiles> files;
  if (!large.empty()) {
    files.emplace(*folder_);
    folder_->write(large, sync_files, false, *files);
    if (sync_files) folder_->sync_names(*files);
  }
  rocksdb::WriteBatch batch(batch_bytes);
  std::vector<Retired> retired;
  for (std::size_t i = 0, file = 0; i < writes.size(); ++i) {
    add_to_batch(batch, writes[i], is_large(writes[i]) ? &files->items()[file++] : nullptr, replaced[i]);
    if (replaced[i] && replaced[i]->where == Where::file)
      retired.push_back({std::string(writes[i].key), replaced[i]->file, replaced[i]->data_bytes});
  }
  if (files) files->keep();  // also when the commit fails: the entry may be in the log, and recover() looks
  commit(batch, sync, std::move(retired));
  room.commit();
}

void RocksTier::add_to_batch(rocksdb::WriteBatch& batch, const TierWrite& write, const PendingFiles::Item* file,
                             const std::optional<Existing>& replaced) const {
  IndexEntry entry;
  entry.data_bytes = write.data.size();
  entry.metadata = write.metadata;
  const std::string_view data(reinterpret_cast<const char*>(write.data.data()), write.data.size());
  if (file != nullptr) {
    entry.where = Where::file;
    entry.number = file->file.number;
    entry.synced = file->file.synced;
    entry.checksum = file->checksum;
  } else {
    entry.where = data.size() <= most_bytes_in_entry ? Where::here : Where::column;
    entry.checksum = write.checksum ? *write.checksum : checksum(write.data);
  }
  const IndexHead head = encode_index_head(entry);
  const rocksdb::Slice key = slice(write.key);
  const rocksdb::Slice parts[3] = {rocksdb::Slice(head.data(), head.size()), slice(write.metadata),
                                   entry.where == Where::here ? slice(data) : rocksdb::Slice()};
  const auto add = [&](const rocksdb::Status& status) {
    if (!status.ok()) database_->fail(status);
  };
  add(batch.Put(database_->index(), rocksdb::SliceParts(&key, 1), rocksdb::SliceParts(parts, 3)));
  if (entry.where == Where::column) add(batch.Put(database_->data(), key, slice(data)));
  else if (replaced && replaced->where == Where::column) add(batch.Delete(database_->data(), key));
}

// RocksDB must be able to write its buffers (up to half of its memory) into tables while its log grows by a file (a quarter of
// it): its writes stop when the disk is full.
void RocksTier::check_space(std::uint64_t bytes, bool makes_room) {
  const std::uint64_t free = free_bytes(path()), spare = database_bytes(options()) + least_spare_bytes;
  const bool scarce = free < bytes + spare + used_bytes() / 4;
  if (scarce_.exchange(scarce) != scarce) {
    database_->collect_garbage(!scarce);
    if (scarce) erased_in_column_ = true;  // what is being collected lies there twice until that has ended
  }
  if (free >= bytes + spare || makes_room) return;
  throw TierFull("no space left: " + base::format_size(bytes) + " more in " + path() + " would not leave the " +
                 base::format_size(spare) + " that RocksDB needs");
}

std::optional<TierEntry> RocksTier::do_find(std::string_view key) {
  const auto lock = enter(false);
  rocksdb::PinnableSlice value;
  if (!database_->get(database_->index(), key, value)) return std::nullopt;
  const IndexEntry entry = decode_index_entry(text(value));
  return TierEntry{std::string(key), entry.data_bytes, entry.checksum, std::string(entry.metadata)};
}

void RocksTier::do_get(std::string_view key, std::span<std::byte> out) {
  const auto lock = enter(false);
  rocksdb::PinnableSlice value, data_value;
  if (!database_->get(database_->index(), key, value))
    throw Error(Errc::not_found, "there is no such object in " + path());
  const IndexEntry entry = decode_index_entry(text(value));
  if (entry.data_bytes != out.size())
    throw Error(Errc::invalid_argument,
                "the object has " + std::to_string(entry.data_bytes) + " bytes, not " + std::to_string(out.size()));
  if (entry.where == Where::file) {
    if (!folder_) throw Error(Errc::protocol, "an entry of the index names a file, and this tier has none");
    const std::string file = folder_->path_of(key, {entry.number, entry.synced});
    folder_->codec().read(file, [&](const ObjectHeader& header) {
      if (header.key != key || header.data_bytes != out.size() || header.checksum != entry.checksum)
        throw Error(Errc::protocol, file + " is another object's file");
      return out;
    });
    return;
  }
  std::string_view data = entry.data;
  if (entry.where == Where::column) {
    if (!database_->get(database_->data(), key, data_value))
      throw Error(Errc::protocol, "the data of an object is missing in " + path());
    data = text(data_value);
  }
  const auto bytes = std::as_bytes(std::span(data));
  if (bytes.size() != out.size() || checksum(bytes) != entry.checksum)
    throw Error(Errc::protocol, "the data of an object does not match its checksum in " + path());
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
}

// Erasing makes space, so it is tried again with the space that was spared.
bool RocksTier::do_erase(std::string_view key, bool sync) {
  try {
    return erase_once(key, sync);
  } catch (const TierFull&) {
    return erase_once(key, sync);
  }
}

bool RocksTier::erase_once(std::string_view key, bool sync) {
  const auto lock = enter(true);
  const auto found = existing(key);
  if (!found) {
    if (sync) database_->sync();
    return false;
  }
  rocksdb::WriteBatch batch;
  batch.Delete(database_->index(), slice(key));
  if (found->where == Where::column) {
    batch.Delete(database_->data(), slice(key));
    erased_in_column_ = true;
  }
  std::vector<Retired> retired;
  if (found->where == Where::file) retired.push_back({std::string(key), found->file, found->data_bytes});
  commit(batch, sync, std::move(retired));
  count_erased(found->data_bytes);
  return true;
}

// Where an iterator stands, while that begins with the prefix. Apart, and not inlined, for scripts/sanitizers/tsan.txt: what an
// iterator shows lies in RocksDB's own memory.
[[gnu::noinline]] static std::optional<TierEntry> entry_of_iterator(const rocksdb::Iterator& at,
                                                                    std::string_view prefix) {
  if (!at.Valid() || !text(at.key()).starts_with(prefix)) return std::nullopt;
  const IndexEntry entry = decode_index_entry(text(at.value()));
  return TierEntry{std::string(text(at.key())), entry.data_bytes, entry.checksum, std::string(entry.metadata)};
}

// In steps, so that `visit` may call the tier.
void RocksTier::do_scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) {
  std::string first(prefix);
  for (;;) {
    std::vector<TierEntry> step;
    {
      const auto lock = enter(false);
      const auto at = database_->iterate(first);
      for (; step.size() < entries_per_scan_step; at->Next()) {
        auto entry = entry_of_iterator(*at, prefix);
        if (!entry) break;
        step.push_back(std::move(*entry));
      }
      database_->check(*at);
    }
    for (const TierEntry& entry : step)
      if (!visit(entry)) return;
    if (step.size() < entries_per_scan_step) return;
    first = step.back().key + '\0';
  }
}

void RocksTier::do_sync() {
  const auto lock = enter(true);
  std::lock_guard one(sync_mutex_);
  const auto retired = take_retired();
  try {
    const std::uint64_t watermark = folder_ ? folder_->sync() : 0;
    if (folder_ && watermark > folder_->watermark()) {
      std::string value;
      append_little(value, watermark);
      rocksdb::WriteBatch batch;
      batch.Put(database_->own(), slice(watermark_key), slice(value));
      database_->write(batch, true);
      folder_->set_watermark(watermark);
    } else {
      database_->sync();
    }
  } catch (const Error&) {
    retire(retired);
    throw;
  }
  remove_files(retired);
}

// replaced: files that the batch no longer names. A synced write makes every write before it durable, so the files that those
// retired can go, too. After a failure all files stay until the database is opened again.
void RocksTier::commit(rocksdb::WriteBatch& batch, bool sync, std::vector<Retired> replaced) {
  auto retired = sync ? take_retired() : std::vector<Retired>();
  database_->write(batch, sync);
  std::ranges::move(replaced, std::back_inserter(retired));
  if (sync) remove_files(retired);
  else retire(std::move(retired));
}

void RocksTier::retire(std::vector<Retired> files) {
  if (files.empty()) return;
  bool many = false;
  {
    std::lock_guard lock(retired_mutex_);
    for (Retired& file : files) {
      retired_bytes_ += file.bytes;
      retired_.push_back(std::move(file));
    }
    many = retired_.size() > most_retired_files || retired_bytes_ > most_retired_bytes;
  }
  if (many) release_retired();
}

// True when that freed something.
bool RocksTier::release_retired() {
  const auto retired = take_retired();
  if (retired.empty()) return false;
  try {
    database_->sync();
  } catch (const Error& error) {  // they go when the database is opened again
    base::log(base::Level::warn, "erased files stay for now", {{"path", path()}, {"why", error.what()}});
    return false;
  }
  remove_files(retired);
  return true;
}

// After a put found no space: what was erased and still takes some. False when there is nothing to gain.
bool RocksTier::make_space() {
  if (database_->stopped()) return false;
  const bool released = release_retired();
  if (!erased_in_column_.exchange(false)) return released;
  try {
    database_->free_erased_data();
    return true;
  } catch (const Error& error) {
    erased_in_column_ = true;
    base::log(base::Level::warn, "what was erased still takes space", {{"path", path()}, {"why", error.what()}});
    return released;
  }
}

std::vector<RocksTier::Retired> RocksTier::take_retired() {
  std::lock_guard lock(retired_mutex_);
  retired_bytes_ = 0;
  return std::exchange(retired_, {});
}

// The objects are erased or replaced already; a file that stays is an orphan that goes when the tier is opened again.
void RocksTier::remove_files(const std::vector<Retired>& files) {
  for (const Retired& file : files) {
    try {
      folder_->remove(file.key, file.file, false);
    } catch (const Error& error) {
      base::log(base::Level::warn, "an erased file stays until the tier is opened again", {{"why", error.what()}});
    }
  }
}

}  // namespace penstock::storage
