// RocksDB as the tiers use it: a column family for the index, one for data that is not in it, and the default one for the
// tier's own numbers. Memory for cache and write buffers together is bounded. Errors are Error; a full disk TierFull.
//
// RocksDB stops taking writes when one failed, of a caller's or of its own, until it has recovered. When there is space again,
// write() has it recover, which may take some seconds; while there is none it fails at once.
//
// Nothing is written to RocksDB's own log: what was written is durable when a flush has ended, which is of all column families
// at once, so that what is there after a crash is what was written up to some point (journaled_database.hpp keeps the rest).
// Safe from any thread, but for write.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::storage {

inline rocksdb::Slice slice(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view text(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

class RocksDatabase {
 public:
  static constexpr std::uint64_t least_cache_bytes = 4 << 20;
  // cache_bytes: at least that. flushed(sequence): called on a thread of RocksDB's when what was written up to this sequence
  // number is durable.
  RocksDatabase(const std::string& path, std::uint64_t cache_bytes, std::function<void(std::uint64_t)> flushed);
  ~RocksDatabase();

  rocksdb::ColumnFamilyHandle* own() const { return handles_[0]; }
  rocksdb::ColumnFamilyHandle* index() const { return handles_[1]; }
  rocksdb::ColumnFamilyHandle* data() const { return handles_[2]; }

  // One caller at a time. Returns the sequence number of its end.
  std::uint64_t write(rocksdb::WriteBatch& batch);
  // What was written before is durable.
  void flush();
  // Gives the space of erased data back to the file system, as far as that takes no more space first.
  void free_erased_data();
  // Whether data files that are partly garbage are written anew, which takes space before it gives some.
  void collect_garbage(bool on);
  // False when there is none.
  bool get(rocksdb::ColumnFamilyHandle* column, std::string_view key, rocksdb::PinnableSlice& out) const;
  // Entries of the index from `prefix` on, as they are now.
  std::unique_ptr<rocksdb::Iterator> iterate(std::string_view prefix) const;
  // Throws when the iterator ended for another reason than that there is no more.
  void check(const rocksdb::Iterator& iterator) const;
  // Throws what a status that is not ok means.
  [[noreturn]] void fail(const rocksdb::Status& status) const;

 private:
  class Listener;

  const std::string path_;
  const std::uint64_t spare_bytes_;
  const std::shared_ptr<Listener> listener_;
  std::unique_ptr<rocksdb::DB> database_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

}  // namespace penstock::storage
