// Opens a tier in RocksDB, at first and after an error, and finds what is there.
#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "base/log.hpp"
#include "storage/little_endian.hpp"
#include "storage/rocksdb_tier.hpp"

namespace penstock::storage {

namespace {

constexpr std::uint64_t least_database_bytes = 4 << 20;
constexpr std::chrono::milliseconds after_failure(1000);  // to open a database: the next try
constexpr std::chrono::milliseconds after_no_space(100);  // that the file system had said to be there

}  // namespace

struct RocksTier::Used {
  std::string key;
  std::uint64_t data_bytes = 0;
  bool synced = false, seen = false;
};

RocksTier::RocksTier(const TierOptions& options)
    : TierBase(options), spare_(options.path + "/SPARE", database_bytes(options) / 2 + least_spare_bytes) {
  open();
}

std::uint64_t RocksTier::database_bytes(const TierOptions& options) {
  return std::max(options.rocksdb_cache_bytes, least_database_bytes);
}

// The database is open while the lock is held. to_write: reopens it first if it has stopped.
std::shared_lock<std::shared_mutex> RocksTier::enter(bool to_write) {
  const auto lock_shared = [&] {
    std::lock_guard entry(entry_mutex_);
    return std::shared_lock(open_mutex_);
  };
  auto lock = lock_shared();
  if (database_ && !(to_write && database_->stopped())) return lock;
  lock.unlock();
  reopen();
  lock = lock_shared();
  if (!database_) std::rethrow_exception(why_closed_);  // another call has failed to open it meanwhile
  return lock;
}

void RocksTier::open() {
  spare_.release();
  database_ = std::make_unique<RocksDatabase>(path() + "/rocksdb", database_bytes(options()));
  if (options().kind == "disk") folder_ = std::make_unique<ObjectFolder>(path() + "/objects", raw_codec());
  recover();
  spare_.hold();
}

// Where there is no space for that, a stopped database stays open for reads.
void RocksTier::reopen() {
  std::lock_guard one(reopen_mutex_);  // only its holder changes database_, so reads go on until all is ready
  if (database_ && !database_->stopped()) return;
  // Whether there is space is looked at by every call: who frees the disk may write at once.
  bool wait = Clock::now() < next_try_ || (database_ && !spare_.fits());
  if (database_ && !wait && !spare_.hold_all()) {
    next_try_ = Clock::now() + after_no_space;
    wait = true;
  }
  if (wait && database_) database_->fail_stopped();
  if (wait) std::rethrow_exception(why_closed_);
  std::lock_guard entry(entry_mutex_);
  std::unique_lock lock(open_mutex_);
  base::log(base::Level::warn, "a tier is opened again after an error", {{"path", path()}});
  folder_.reset();
  database_.reset();
  take_retired();  // recover() removes files that no entry names
  count_nothing();
  erased_in_column_ = scarce_ = true;
  auto pause = after_failure;
  try {
    try {
      open();
    } catch (const TierFull&) {  // others took the space meanwhile
      pause = after_no_space;
      throw;
    } catch (const std::filesystem::filesystem_error& error) {
      throw Error(Errc::system, error.what());
    }
  } catch (...) {  // also out of memory: what was counted so far is not all
    folder_.reset();
    database_.reset();
    why_closed_ = std::current_exception();
    next_try_ = Clock::now() + pause;
    throw;
  }
}

std::uint64_t RocksTier::journal_bytes() {
  std::uint64_t bytes = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(path() + "/rocksdb", gone)) {
    if (entry.path().extension() != ".log") continue;
    if (const auto size = entry.file_size(gone); !gone) bytes += size;
  }
  return bytes;
}

std::uint64_t RocksTier::stored_watermark() const {
  rocksdb::PinnableSlice value;
  if (!database_->get(database_->own(), watermark_key, value) || value.size() != 8) return 0;
  return read_little<std::uint64_t>(std::as_bytes(std::span(value.data(), value.size())), 0);
}

void RocksTier::recover() {
  std::unordered_map<std::uint64_t, Used> used;
  std::uint64_t last = 0;
  const auto at = database_->iterate("");
  for (; at->Valid(); at->Next()) {
    const IndexEntry entry = decode_index_entry(text(at->value()));
    count_existing(entry.data_bytes);
    if (entry.where != Where::file) continue;
    used.emplace(entry.number, Used{std::string(text(at->key())), entry.data_bytes, entry.synced, false});
    last = std::max(last, entry.number);
  }
  database_->check(*at);
  if (!folder_) return;
  count_dropped(folder_->recover(stored_watermark(), last, [&](const ObjectFolder::Found& found) {
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
      lost.Delete(database_->index(), slice(of.key));
      count_erased(of.data_bytes);
      count_dropped();
      continue;
    }
    count_error();  // the object stays, so that whoever asks for it hears why it is not there
    base::log(base::Level::error, "a tier lacks a file", {{"path", folder_->path_of(of.key, {number, of.synced})}});
  }
  if (lost.Count() != 0) database_->write(lost, false);
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

std::unique_ptr<Tier> open_rocksdb_tier(const TierOptions& options) { return std::make_unique<RocksTier>(options); }

}  // namespace penstock::storage
