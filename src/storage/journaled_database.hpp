// RocksDB behind a journal of our own. A write is appended to the journal and, if asked, synced there: that is all that its
// caller waits for. One thread brings what was written into RocksDB, in order; reads look first at what it has not come to. The
// journal's frames are RocksDB's batches, and are released when a flush has made them durable there; at open, those that are not
// in RocksDB are brought there again, and flushed, so that nothing adds up over restarts. The journal's files are bounded by
// RocksDB's write buffers (cache_bytes / 2), what waits for it, and three files more (cache_bytes / 4 each).
//
// While writes come, RocksDB would take the processors and the disk from them. So it waits until none has come for a moment
// (`quiet`), or as much waits as may (`most_deferred_bytes`); or until somebody reads, and for a second more. On a disk with
// little space it waits for nothing.
//
// What is not in RocksDB yet is kept in memory, with half a KiB for each write, up to an eighth of cache_bytes (one larger batch
// is taken alone): then writes wait. What is durable in the journal, and was not looked for, is let go of, and read again there.
// When RocksDB takes nothing more (the disk is full), it is tried again now and then and at each write, reads go on, and writes
// fail with its error as soon as there is no room for them.
//
// Safe from any thread; errors as RocksDatabase's. What was written is there whatever becomes of its sync, until the machine
// loses it; after a sync that failed what follows is safe again as soon as RocksDB could be flushed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "storage/journal.hpp"
#include "storage/rocksdb_database.hpp"

namespace penstock::storage {

class JournaledDatabase {
 public:
  struct Deferral {
    std::uint64_t most_deferred_bytes = 256 << 20;
    std::uint64_t least_free_bytes = std::uint64_t{1} << 30;  // of the disk; else nothing is deferred
    std::chrono::milliseconds quiet{20};
  };
  // In the folders `rocksdb` and `journal` of path. cache_bytes: at least 4 MiB.
  JournaledDatabase(const std::string& path, std::uint64_t cache_bytes) : JournaledDatabase(path, cache_bytes, {}) {}
  JournaledDatabase(const std::string& path, std::uint64_t cache_bytes, const Deferral& deferral);
  ~JournaledDatabase();

  rocksdb::ColumnFamilyHandle* own() const { return database_->own(); }
  rocksdb::ColumnFamilyHandle* index() const { return database_->index(); }
  rocksdb::ColumnFamilyHandle* data() const { return database_->data(); }

  // Puts and deletes only. All or none; survives the process.
  Journal::Number write(rocksdb::WriteBatch batch);
  // What was written before, up to that write, is durable. Throws Error(system).
  void sync(Journal::Number number) { journal_->sync(number); }
  // All of it; by RocksDB when the journal has failed.
  void sync();
  // False when there is none.
  bool get(rocksdb::ColumnFamilyHandle* column, std::string_view key, rocksdb::PinnableSlice& out) const;
  // As RocksDatabase's; both wait until RocksDB has all that was written before, and throw its error if it does not take it.
  std::unique_ptr<rocksdb::Iterator> iterate(std::string_view prefix);
  void free_erased_data();
  void collect_garbage(bool on) { database_->collect_garbage(on); }
  void check(const rocksdb::Iterator& iterator) const { database_->check(iterator); }
  std::uint64_t journal_bytes() { return journal_->bytes(); }
  std::uint64_t deferred_bytes() const;  // that wait in the journal only
  [[noreturn]] void fail(const rocksdb::Status& status) const { database_->fail(status); }

 private:
  struct Waiting;  // a batch that is in the journal and not yet in RocksDB
  struct Found;    // what one of them does to a key
  class Index;

  using Clock = std::chrono::steady_clock;

  void wait_for_room(std::uint64_t bytes);
  bool holds_back() const;
  void hurry() const;
  std::vector<std::shared_ptr<Waiting>> let_go(Journal::Number synced, std::uint64_t most);
  void look_at_the_disk();
  void settle();
  void flush_replayed() noexcept;
  void repair_journal();
  void bring_over();
  std::uint64_t bring(rocksdb::WriteBatch batch, Journal::Number number);
  void flushed(std::uint64_t sequence);
  std::optional<Found> find_waiting(std::uint32_t column, std::string_view key) const;
  std::optional<Found> find_deferred(std::uint32_t column, std::string_view key) const;

  const std::string path_;
  const std::uint64_t most_memory_bytes_;
  const Deferral deferral_;
  std::atomic<unsigned> writes_{0};
  std::atomic<bool> has_space_{false};

  mutable std::mutex mutex_;  // guards what follows, to journal_; the journal's are taken before it
  mutable std::condition_variable work_, progress_;
  std::deque<std::shared_ptr<Waiting>> waiting_;  // oldest first
  std::size_t deferred_ = 0;                      // so many of them, the oldest, are in the journal only
  std::uint64_t waiting_bytes_ = 0, memory_bytes_ = 0;
  mutable Journal::Number indexed_ = 0;    // up to here index_ has seen them: they stay in memory
  mutable Clock::time_point hurry_until_;  // somebody looks for what waits
  Clock::time_point quiet_at_;             // if no write comes
  unsigned settling_ = 0;                  // so many wait until RocksDB has it
  bool draining_ = false;                  // as much waits as may
  Journal::Number brought_ = 0;            // RocksDB has it
  std::exception_ptr error_;               // why RocksDB does not take the oldest
  bool stopping_ = false, prodded_ = false;
  bool open_ = false;                                                // journal_ is there
  std::deque<std::pair<std::uint64_t, Journal::Number>> sequences_;  // of what RocksDB has, and has not flushed

  mutable std::mutex index_mutex_;  // guards what follows; taken before mutex_
  const std::unique_ptr<Index> index_;

  std::mutex repair_mutex_;           // one at a time; taken before all others
  std::unique_ptr<Journal> journal_;  // outlives the database, which tells of flushes
  std::unique_ptr<RocksDatabase> database_;
  std::thread bringing_;
};

}  // namespace penstock::storage
