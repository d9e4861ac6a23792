// RocksDB as the tiers use it: a column family for the index, one for data that is not in it, and the default one for the
// tier's own numbers. Memory for cache and write buffers together is bounded by cache_bytes, the write-ahead log by as much
// again. Errors are Error; a full disk is TierFull.
//
// Every write goes to RocksDB's write-ahead log first. Concurrent synced writes share one sync (RocksDB's group commit). All
// column families share the log, so after a crash the database holds all writes up to some point and none after it; every write
// before the last sync is included. Opening flushes what the log holds: after that, everything found is durable.
//
// After a failed write, sync, flush or compaction the database is stopped(): writes fail at once with that error, reads go on.
// It stays stopped. RocksDB's own recovery (Resume, automatic or not) is not used: in 7.8 it can wait for ever on a full disk.
// Destroy the object and open the folder again instead. A write that failed is there completely or not at all after that.
//
// Safe from any thread.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::storage {

inline rocksdb::Slice slice(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view text(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

class RocksDatabase {
 public:
  // cache_bytes: at least 4 MiB.
  RocksDatabase(const std::string& path, std::uint64_t cache_bytes);
  ~RocksDatabase();

  rocksdb::ColumnFamilyHandle* own() const { return handles_[0]; }
  rocksdb::ColumnFamilyHandle* index() const { return handles_[1]; }
  rocksdb::ColumnFamilyHandle* data() const { return handles_[2]; }

  bool stopped() const;
  // Throws the error that stopped the database.
  [[noreturn]] void fail_stopped() const;

  // All or none. sync: this write and all before it are durable on return.
  void write(rocksdb::WriteBatch& batch, bool sync);
  // Every write before is durable on return.
  void sync();
  // Gives the space of erased data back to the file system, as far as that takes no more space first.
  void free_erased_data();
  // Whether data files that are partly garbage are written anew, which takes space before it gives some.
  void collect_garbage(bool on);
  // False when there is none.
  bool get(rocksdb::ColumnFamilyHandle* column, std::string_view key, rocksdb::PinnableSlice& out) const;
  // Entries of the index from `first` on, as they are now.
  std::unique_ptr<rocksdb::Iterator> iterate(std::string_view first) const;
  // Throws when the iterator ended for another reason than that there is no more.
  void check(const rocksdb::Iterator& iterator) const;
  // Throws what a status that is not ok means.
  [[noreturn]] void fail(const rocksdb::Status& status) const;

 private:
  class Listener;

  [[noreturn]] void stop(const rocksdb::Status& status) const;

  const std::string path_;
  const std::shared_ptr<Listener> listener_;
  std::unique_ptr<rocksdb::DB> database_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

}  // namespace penstock::storage
