// The tiers `rocksdb` and `disk`. The index is in RocksDB; data is in the index entry when it is tiny, in a column family of
// its own when it is small, and (disk) in a file when it is large. The batch with the index entries is the commit, in the journal:
// files are written before it, under their final names, and removed only when the batch that lets go of them is durable.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <unordered_map>

#include "base/log.hpp"
#include "base/text.hpp"
#include "storage/index_entry.hpp"
#include "storage/journaled_database.hpp"
#include "storage/little_endian.hpp"
#include "storage/object_folder.hpp"
#include "storage/spare_space.hpp"
#include "storage/tier_base.hpp"

namespace penstock::storage {

namespace {

using Where = IndexEntry::Where;

constexpr std::uint64_t most_bytes_in_entry = 1 << 10;  // larger data would make listing read it
constexpr std::uint64_t least_database_bytes = 4 << 20, least_spare_bytes = 1 << 20;
constexpr std::uint64_t most_retired_bytes = 64 << 20;
constexpr std::size_t most_retired_files = 256;
constexpr std::string_view watermark_key = "watermark";

std::uint64_t database_bytes(const TierOptions& options) {
  return std::max(options.rocksdb_cache_bytes, least_database_bytes);
}

// What put and erase need to know of what is there.
struct Existing {
  Where where = Where::here;
  ObjectFile file;
  std::uint64_t data_bytes = 0;
};

class RocksTier final : public TierBase {
 public:
  explicit RocksTier(const TierOptions& options)
      : TierBase(options),
        spare_(options.path + "/SPARE", database_bytes(options) / 2 + least_spare_bytes),
        database_(options.path, database_bytes(options), {.most_deferred_bytes = options.journal_bytes}) {
    if (options.kind == "disk") folder_ = std::make_unique<ObjectFolder>(options.path + "/objects", raw_codec());
    recover();
    spare_.hold();
  }
  ~RocksTier() override { close(); }

 protected:
  void do_put(std::span<const TierWrite> writes, bool sync) override;
  std::optional<TierEntry> do_find(std::string_view key) override;
  void do_get(std::string_view key, std::span<std::byte> out) override;
  bool do_erase(std::string_view key, bool sync) override;
  void do_scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) override;
  void do_sync() override;
  std::uint64_t journal_bytes() override { return database_.journal_bytes(); }

 private:
  // A file that no index entry names any more.
  struct Retired {
    std::string key;
    ObjectFile file;
    std::uint64_t bytes = 0;
  };
  struct Used {
    std::string key;
    std::uint64_t data_bytes = 0;
    bool synced = false, seen = false;
  };

  void recover();
  bool recover_file(const ObjectFolder::Found& found, const Used& used);
  std::uint64_t stored_watermark() const;
  std::optional<Existing> existing(std::string_view key) const;
  void put_once(std::span<const TierWrite> writes, const std::vector<std::optional<Existing>>& replaced, bool sync,
                Room& room);
  void add_to_batch(rocksdb::WriteBatch& batch, const TierWrite& write, const PendingFiles::Item* file,
                    const std::optional<Existing>& replaced) const;
  void check_space(std::uint64_t bytes);
  bool is_large(const TierWrite& write) const { return folder_ && write.data.size() >= options().small_bytes; }

  template <class Written>
  void commit(rocksdb::WriteBatch batch, bool sync, std::vector<Retired> lets_go, Written written);
  void retire(std::vector<Retired> files);
  bool release_retired();
  bool make_space();
  std::vector<Retired> take_retired();
  void remove_files(const std::vector<Retired>& files);

  SpareSpace spare_;  // for opening what follows
  JournaledDatabase database_;
  std::atomic<bool> erased_in_column_{true};  // the data column may have files of which nothing is alive
  std::atomic<bool> scarce_{true};            // little space: garbage is not collected
  std::unique_ptr<ObjectFolder> folder_;      // disk
  std::mutex sync_mutex_;                     // one writer of the watermark at a time; taken before retired_mutex_
  std::mutex retired_mutex_;                  // guards what follows
  std::vector<Retired> retired_;
  std::uint64_t retired_bytes_ = 0;
};

std::uint64_t RocksTier::stored_watermark() const {
  rocksdb::PinnableSlice value;
  if (!database_.get(database_.own(), watermark_key, value) || value.size() != 8) return 0;
  return read_little<std::uint64_t>(std::as_bytes(std::span(value.data(), value.size())), 0);
}

void RocksTier::recover() {
  std::unordered_map<std::uint64_t, Used> used;
  const auto at = database_.iterate("");
  for (; at->Valid(); at->Next()) {
    const IndexEntry entry = decode_index_entry(text(at->value()));
    count_existing(entry.data_bytes);
    if (entry.where == Where::file)
      used.emplace(entry.number, Used{std::string(text(at->key())), entry.data_bytes, entry.synced, false});
  }
  database_.check(*at);
  if (!folder_) return;
  count_dropped(folder_->recover(stored_watermark(), [&](const ObjectFolder::Found& found) {
    const auto of = used.find(found.file.number);
    if (of == used.end() || hash_of(of->second.key) != found.hash || of->second.synced != found.file.synced) {
      remove_file(found.path);
      return count_dropped();
    }
    of->second.seen = recover_file(found, of->second);
  }));
  rocksdb::WriteBatch lost;
  for (const auto& [number, of] : used) {
    if (of.seen) continue;
    if (!folder_->is_durable({number, of.synced})) {
      lost.Delete(database_.index(), slice(of.key));
      count_erased(of.data_bytes);
      count_dropped();
      continue;
    }
    count_error();  // the object stays, so that whoever asks for it hears why it is not there
    base::log(base::Level::error, "a tier lacks a file", {{"path", folder_->path_of(of.key, {number, of.synced})}});
  }
  if (lost.Count() != 0) database_.write(std::move(lost));
  const TierStatistics counted = statistics();
  if (counted.dropped + counted.errors != 0)
    base::log(
        base::Level::warn, "a tier was recovered",
        {{"path", path()}, {"objects", counted.objects}, {"dropped", counted.dropped}, {"damaged", counted.errors}});
}

// False when the file is not whole and was removed, because it was not synced.
bool RocksTier::recover_file(const ObjectFolder::Found& found, const Used& used) {
  if (folder_->is_durable(found.file)) return true;  // verified when it is read
  try {
    const ObjectHeader header = folder_->codec().verify(found.path);
    if (header.key != used.key || header.number != found.file.number || header.data_bytes != used.data_bytes)
      throw Error(Errc::protocol, "another object's file");
    folder_->add_unsynced(found);
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::protocol) throw;
    remove_file(found.path);
    return false;
  }
}

std::optional<Existing> RocksTier::existing(std::string_view key) const {
  rocksdb::PinnableSlice value;
  if (!database_.get(database_.index(), key, value)) return std::nullopt;
  const IndexEntry entry = decode_index_entry(text(value));
  return Existing{entry.where, {entry.number, entry.synced}, entry.data_bytes};
}

void RocksTier::do_put(std::span<const TierWrite> writes, bool sync) {
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
  check_space(batch_bytes + large_bytes);
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
  commit(std::move(batch), sync, std::move(retired), [&] {
    if (files) files->keep();
    room.commit();
  });
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
    if (!status.ok()) database_.fail(status);
  };
  add(batch.Put(database_.index(), rocksdb::SliceParts(&key, 1), rocksdb::SliceParts(parts, 3)));
  if (entry.where == Where::column) add(batch.Put(database_.data(), key, slice(data)));
  else if (replaced && replaced->where == Where::column) add(batch.Delete(database_.data(), key));
}

// What RocksDB has in its write buffers (up to half of its memory) it must be able to write into tables, while the journal
// takes a file more (a quarter of it); it is not led to the very end of the disk, where it stops to take writes.
void RocksTier::check_space(std::uint64_t bytes) {
  const std::uint64_t free = free_bytes(path()), spare = database_bytes(options()) + least_spare_bytes;
  const bool scarce = free < bytes + spare + used_bytes() / 4;
  if (scarce_.exchange(scarce) != scarce) {
    database_.collect_garbage(!scarce);
    if (scarce) erased_in_column_ = true;  // what is being collected lies there twice until that has ended
  }
  if (free >= bytes + spare) return;
  throw TierFull("no space left: " + base::format_size(bytes) + " more in " + path() + " would not leave the " +
                 base::format_size(spare) + " that RocksDB needs");
}

std::optional<TierEntry> RocksTier::do_find(std::string_view key) {
  rocksdb::PinnableSlice value;
  if (!database_.get(database_.index(), key, value)) return std::nullopt;
  const IndexEntry entry = decode_index_entry(text(value));
  return TierEntry{std::string(key), entry.data_bytes, entry.checksum, std::string(entry.metadata)};
}

void RocksTier::do_get(std::string_view key, std::span<std::byte> out) {
  rocksdb::PinnableSlice value, data_value;
  if (!database_.get(database_.index(), key, value))
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
    if (!database_.get(database_.data(), key, data_value))
      throw Error(Errc::protocol, "the data of an object is missing in " + path());
    data = text(data_value);
  }
  const auto bytes = std::as_bytes(std::span(data));
  if (bytes.size() != out.size() || checksum(bytes) != entry.checksum)
    throw Error(Errc::protocol, "the data of an object does not match its checksum in " + path());
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
}

bool RocksTier::do_erase(std::string_view key, bool sync) {
  const auto found = existing(key);
  if (!found) {
    if (sync) database_.sync();
    return false;
  }
  rocksdb::WriteBatch batch;
  batch.Delete(database_.index(), slice(key));
  if (found->where == Where::column) {
    batch.Delete(database_.data(), slice(key));
    erased_in_column_ = true;
  }
  std::vector<Retired> retired;
  if (found->where == Where::file) retired.push_back({std::string(key), found->file, found->data_bytes});
  commit(std::move(batch), sync, std::move(retired), [&] { count_erased(found->data_bytes); });
  return true;
}

// Where an iterator stands, while that begins with the prefix. Apart, and not inlined, for scripts/sanitizers/tsan.txt: what an
// iterator shows lies in RocksDB's own memory.
[[gnu::noinline]] std::optional<TierEntry> entry_of_iterator(const rocksdb::Iterator& at, std::string_view prefix) {
  if (!at.Valid() || !text(at.key()).starts_with(prefix)) return std::nullopt;
  const IndexEntry entry = decode_index_entry(text(at.value()));
  return TierEntry{std::string(text(at.key())), entry.data_bytes, entry.checksum, std::string(entry.metadata)};
}

void RocksTier::do_scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) {
  const auto at = database_.iterate(prefix);
  for (; const auto entry = entry_of_iterator(*at, prefix); at->Next())
    if (!visit(*entry)) return;
  database_.check(*at);
}

void RocksTier::do_sync() {
  std::lock_guard one(sync_mutex_);
  const auto retired = take_retired();
  try {
    const std::uint64_t watermark = folder_ ? folder_->sync() : 0;
    if (folder_ && watermark > folder_->watermark()) {
      std::string value;
      append_little(value, watermark);
      rocksdb::WriteBatch batch;
      batch.Put(database_.own(), slice(watermark_key), slice(value));
      database_.sync(database_.write(std::move(batch)));
      folder_->set_watermark(watermark);
    } else {
      database_.sync();
    }
  } catch (const Error&) {
    retire(retired);
    throw;
  }
  remove_files(retired);
}

// written() is called when the batch is in the journal: from then on it holds, whatever becomes of its sync. A synced write
// makes every write before it durable, and so lets go of the files that those retired.
template <class Written>
void RocksTier::commit(rocksdb::WriteBatch batch, bool sync, std::vector<Retired> lets_go, Written written) {
  auto retired = sync ? take_retired() : std::vector<Retired>();
  try {
    const auto number = database_.write(std::move(batch));
    written();
    std::ranges::move(lets_go, std::back_inserter(retired));
    if (sync) database_.sync(number);
  } catch (const Error&) {
    retire(std::move(retired));
    throw;
  }
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
    database_.sync();
  } catch (const Error& error) {
    base::log(base::Level::warn, "erased files stay for now", {{"path", path()}, {"why", error.what()}});
    std::lock_guard lock(retired_mutex_);
    for (const Retired& file : retired) retired_bytes_ += file.bytes;
    retired_.insert(retired_.end(), retired.begin(), retired.end());
    return false;
  }
  remove_files(retired);
  return true;
}

// After a put found no space: what was erased and still takes some. False when there is nothing to gain.
bool RocksTier::make_space() {
  const bool released = release_retired();
  if (!erased_in_column_.exchange(false)) return released;
  try {
    database_.free_erased_data();
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

}  // namespace

std::unique_ptr<Tier> open_rocksdb_tier(const TierOptions& options) { return std::make_unique<RocksTier>(options); }

}  // namespace penstock::storage
