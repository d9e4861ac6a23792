#include "storage/rocksdb_database.hpp"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "base/log.hpp"
#include "storage/file.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {

namespace {

constexpr std::uint64_t least_free_bytes = 256 << 10;  // for tables of keys and the manifest
constexpr int cache_shard_bits = 3;                    // shards much larger than what is kept in them

// RocksDB's messages go to our log, not to a file beside the data: most of them are about a full disk.
class LogToOurs final : public rocksdb::Logger {
 public:
  explicit LogToOurs(std::string path) : Logger(rocksdb::WARN_LEVEL), path_(std::move(path)) {}
  using Logger::Logv;
  void Logv(const char* format, std::va_list arguments) override {
    char text[1024];
    std::vsnprintf(text, sizeof text, format, arguments);
    // Recovery met a record that is not whole: the end of a log that was never synced, or damage. Nobody else reports it.
    const bool dropped = std::string_view(text).find(": dropping ") != std::string_view::npos;
    base::log(dropped ? base::Level::warn : base::Level::debug, "rocksdb message", {{"path", path_}, {"text", text}});
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
  // The end of a log that was never synced may be lost in part: replay up to the first record that is not whole. Closed logs
  // are synced before a flush (there are several column families), so no table is ahead of the log.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.avoid_flush_during_recovery = false;  // what a failed sync left in the system's memory becomes durable
  options.max_total_wal_size = cache_bytes;
  options.max_bgerror_resume_count = 0;
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

// Keeps the first error and prevents automatic recovery.
class RocksDatabase::Listener final : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* error) override { keep(*error); }
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status, bool* automatic) override {
    *automatic = false;
  }
  void keep(const rocksdb::Status& error) {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    error_ = error;
    stopped_ = true;
  }
  bool stopped() const { return stopped_; }
  rocksdb::Status error() const {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;  // guards error_
  rocksdb::Status error_;
  std::atomic<bool> stopped_{false};
};

RocksDatabase::RocksDatabase(const std::string& path, std::uint64_t cache_bytes)
    : path_(path), listener_(std::make_shared<Listener>()) {
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

bool RocksDatabase::stopped() const { return listener_->stopped(); }

void RocksDatabase::fail_stopped() const { fail(listener_->error()); }

void RocksDatabase::stop(const rocksdb::Status& status) const {
  listener_->keep(status);
  fail(status);
}

void RocksDatabase::write(rocksdb::WriteBatch& batch, bool sync) {
  if (stopped()) fail_stopped();
  rocksdb::WriteOptions options;
  options.sync = sync;
  const auto status = database_->Write(options, &batch);
  if (!status.ok()) stop(status);
}

void RocksDatabase::sync() {
  if (stopped()) fail_stopped();
  const auto status = database_->SyncWAL();
  if (!status.ok()) stop(status);
}

void RocksDatabase::free_erased_data() {
  std::uint64_t buffered = 0;
  database_->GetIntProperty(data(), rocksdb::DB::Properties::kCurSizeAllMemTables, &buffered);
  if (free_bytes(path_) < buffered + least_free_bytes)  // a flush that fails would stop the database
    throw TierFull("no space left to collect erased data in " + path_);
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

std::unique_ptr<rocksdb::Iterator> RocksDatabase::iterate(std::string_view first) const {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  std::unique_ptr<rocksdb::Iterator> iterator(database_->NewIterator(options, index()));
  iterator->Seek(slice(first));
  return iterator;
}

void RocksDatabase::check(const rocksdb::Iterator& iterator) const {
  if (!iterator.status().ok()) fail(iterator.status());
}

}  // namespace penstock::storage
