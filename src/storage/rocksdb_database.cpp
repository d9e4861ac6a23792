#include "storage/rocksdb_database.hpp"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "base/log.hpp"
#include "storage/file.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {

namespace {

constexpr std::chrono::seconds longest_recovery(20);
constexpr int cache_shard_bits = 3;  // shards much larger than what is kept in them

// RocksDB's own log, as ours. Not into a file beside the data, as is its way: a full disk is what it has most to say about.
class LogToOurs final : public rocksdb::Logger {
 public:
  explicit LogToOurs(std::string path) : Logger(rocksdb::WARN_LEVEL), path_(std::move(path)) {}
  using Logger::Logv;
  void Logv(const char* format, std::va_list arguments) override {
    if (!base::log_enabled(base::Level::debug)) return;
    char text[1024];
    std::vsnprintf(text, sizeof text, format, arguments);
    base::log(base::Level::debug, "rocksdb says", {{"path", path_}, {"what", text}});
  }

 private:
  const std::string path_;
};

rocksdb::DBOptions database_options(std::uint64_t cache_bytes, const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // Write buffers are charged to the cache, so that cache_bytes bounds both.
  options.write_buffer_manager = std::make_shared<rocksdb::WriteBufferManager>(cache_bytes / 2, cache);
  options.atomic_flush = true;
  options.max_open_files = 512;
  options.max_background_jobs = 2;
  options.bytes_per_sync = 1 << 20;  // tables are written back evenly, not in one burst that synced puts wait for
  options.manifest_preallocation_size = 64 << 10;
  options.max_manifest_file_size = 4 << 20;  // then a new one, of what is there
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

rocksdb::ColumnFamilyOptions column_options(std::uint64_t cache_bytes, const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.cache_index_and_filter_blocks = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));  // most puts are of new keys: found absent in memory
  // In parts, of which those in use stay in a small cache; a whole table's would push each other out.
  table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  table.partition_filters = true;
  table.metadata_block_size = 4096;
  table.cache_index_and_filter_blocks_with_high_priority = true;
  table.pin_top_level_index_and_filter = true;
  table.format_version = 5;
  rocksdb::ColumnFamilyOptions options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.write_buffer_size = std::max<std::uint64_t>(cache_bytes / 4, 1 << 20);
  options.memtable_prefix_bloom_size_ratio = 0.1;  // new keys are found absent in the write buffer, too
  options.memtable_whole_key_filtering = true;
  options.compression = rocksdb::kNoCompression;  // floating-point fields do not shrink
  options.level_compaction_dynamic_level_bytes = true;
  return options;
}

}  // namespace

// Tells of flushes, and whether a background error is being recovered from, which RocksDB does by itself when a disk was full,
// looking every few seconds whether it still is.
class RocksDatabase::Listener final : public rocksdb::EventListener {
 public:
  explicit Listener(std::function<void(std::uint64_t)> flushed) : flushed_(std::move(flushed)) {}
  // Called for each column family when all of them are done. In the default one is something of every write.
  void OnFlushCompleted(rocksdb::DB*, const rocksdb::FlushJobInfo& info) override {
    if (info.cf_name == rocksdb::kDefaultColumnFamilyName) flushed_(info.largest_seqno);
  }
  void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo&) override {
    std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }
  std::uint64_t ended() {
    std::lock_guard lock(mutex_);
    return ended_;
  }
  bool wait_beyond(std::uint64_t ended, std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [&] { return ended_ > ended; });
  }

 private:
  const std::function<void(std::uint64_t)> flushed_;
  std::mutex mutex_;  // guards ended_
  std::condition_variable changed_;
  std::uint64_t ended_ = 0;
};

RocksDatabase::RocksDatabase(const std::string& path, std::uint64_t cache_bytes,
                             std::function<void(std::uint64_t)> flushed)
    : path_(path), spare_bytes_(cache_bytes), listener_(std::make_shared<Listener>(std::move(flushed))) {
  const auto cache = rocksdb::NewLRUCache(cache_bytes, cache_shard_bits, false, 0.5);
  const auto column = column_options(cache_bytes, cache);
  auto data_column = column;
  data_column.enable_blob_files = true;  // compaction moves keys, not data
  data_column.min_blob_size = 4 << 10;
  data_column.blob_file_size = 16 << 20;
  data_column.enable_blob_garbage_collection = false;  // until it is known that there is space: collect_garbage
  make_folder(path);                                   // RocksDB does not make its own folder's name durable
  auto options = database_options(cache_bytes, cache);
  options.info_log = std::make_shared<LogToOurs>(path);
  options.listeners.push_back(listener_);
  rocksdb::DB* database = nullptr;
  const auto status = rocksdb::DB::Open(
      options, path, {{rocksdb::kDefaultColumnFamilyName, column}, {"index", column}, {"data", data_column}}, &handles_,
      &database);
  if (!status.ok()) fail(status);
  database_.reset(database);
}

RocksDatabase::~RocksDatabase() {
  for (auto* handle : handles_) database_->DestroyColumnFamilyHandle(handle);
  database_->Close();
}

void RocksDatabase::fail(const rocksdb::Status& status) const {
  const std::string what = path_ + ": RocksDB: " + status.ToString();
  if (status.IsNoSpace() || status.subcode() == rocksdb::Status::kNoSpace ||
      status.subcode() == rocksdb::Status::kSpaceLimit)
    throw TierFull("no space left: cannot write " + what);
  if (status.IsCorruption()) throw Error(Errc::protocol, what);
  throw Error(Errc::system, what);
}

std::uint64_t RocksDatabase::write(rocksdb::WriteBatch& batch) {
  rocksdb::WriteOptions options;
  options.disableWAL = true;
  const auto deadline = std::chrono::steady_clock::now() + longest_recovery;
  for (;;) {
    const std::uint64_t ended = listener_->ended();
    const auto status = database_->Write(options, &batch);
    if (status.ok()) return database_->GetLatestSequenceNumber();
    // Of a disk that is still full there is nothing to wait for.
    if (free_bytes(path_) < batch.GetDataSize() + spare_bytes_) fail(status);
    const auto resumed = database_->Resume();
    if (resumed.ok() && std::chrono::steady_clock::now() < deadline) continue;
    if (!resumed.IsBusy() || !listener_->wait_beyond(ended, deadline)) fail(status);
  }
}

void RocksDatabase::flush() {
  const auto status = database_->Flush({}, handles_);
  if (!status.ok()) fail(status);
}

void RocksDatabase::free_erased_data() {
  rocksdb::CompactRangeOptions options;
  options.exclusive_manual_compaction = false;
  options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
  // Files of which nothing is alive go; to write others anew there is no space when this is called.
  options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kDisable;
  const auto status = database_->CompactRange(options, data(), nullptr, nullptr);
  if (!status.ok()) fail(status);
}

void RocksDatabase::collect_garbage(bool on) {
  database_->SetOptions(data(), {{"enable_blob_garbage_collection", on ? "true" : "false"}});
}

bool RocksDatabase::get(rocksdb::ColumnFamilyHandle* column, std::string_view key, rocksdb::PinnableSlice& out) const {
  const auto status = database_->Get({}, column, slice(key), &out);
  if (status.IsNotFound()) return false;
  if (!status.ok()) fail(status);
  return true;
}

std::unique_ptr<rocksdb::Iterator> RocksDatabase::iterate(std::string_view prefix) const {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  std::unique_ptr<rocksdb::Iterator> iterator(database_->NewIterator(options, index()));
  iterator->Seek(slice(prefix));
  return iterator;
}

void RocksDatabase::check(const rocksdb::Iterator& iterator) const {
  if (!iterator.status().ok()) fail(iterator.status());
}

}  // namespace penstock::storage
