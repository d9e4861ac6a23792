// The tiers `rocksdb` and `disk`. The index is in RocksDB; data is in the index entry when it is tiny, in a column family of
// its own when it is small, and (disk) in a file when it is large. The batch with the index entries is the commit: files are
// written before it, under their final names, and removed only when the batch that no longer names them is durable.
//
// A database that has stopped after an error is closed and opened again by the next call that writes, if the disk has the space
// for that; else that call fails with the database's error, and reads go on. Opening decides which of the failed writes are
// there. Where opening fails, all calls fail with its error until the next try: 100 ms where the disk was full, else 1 s.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/index_entry.hpp"
#include "storage/object_folder.hpp"
#include "storage/rocksdb_database.hpp"
#include "storage/spare_space.hpp"
#include "storage/tier_base.hpp"

namespace penstock::storage {

class RocksTier final : public TierBase {
 public:
  explicit RocksTier(const TierOptions& options);
  ~RocksTier() override { close(); }

 protected:
  void do_put(std::span<const TierWrite> writes, bool sync) override;
  std::optional<TierEntry> do_find(std::string_view key) override;
  void do_get(std::string_view key, std::span<std::byte> out) override;
  bool do_erase(std::string_view key, bool sync) override;
  void do_scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) override;
  void do_sync() override;
  std::uint64_t journal_bytes() override;

 private:
  using Where = IndexEntry::Where;
  // What put and erase need to know of what is there.
  struct Existing {
    Where where = Where::here;
    ObjectFile file;
    std::uint64_t data_bytes = 0;
  };
  // A file that no index entry names any more.
  struct Retired {
    std::string key;
    ObjectFile file;
    std::uint64_t bytes = 0;
  };
  struct Used;

  static constexpr std::uint64_t least_spare_bytes = 1 << 20;
  static constexpr std::string_view watermark_key = "watermark";
  static std::uint64_t database_bytes(const TierOptions& options);

  std::shared_lock<std::shared_mutex> enter(bool to_write);
  void open();
  void reopen();
  void recover();
  bool recover_file(const ObjectFolder::Found& found, const Used& used);
  std::uint64_t stored_watermark() const;
  std::optional<Existing> existing(std::string_view key) const;
  void put_once(std::span<const TierWrite> writes, const std::vector<std::optional<Existing>>& replaced, bool sync,
                Room& room);
  bool erase_once(std::string_view key, bool sync);
  void add_to_batch(rocksdb::WriteBatch& batch, const TierWrite& write, const PendingFiles::Item* file,
                    const std::optional<Existing>& replaced) const;
  void check_space(std::uint64_t bytes, bool makes_room);
  bool is_large(const TierWrite& write) const { return folder_ && write.data.size() >= options().small_bytes; }

  void commit(rocksdb::WriteBatch& batch, bool sync, std::vector<Retired> replaced);
  void retire(std::vector<Retired> files);
  bool release_retired();
  bool make_space();
  std::vector<Retired> take_retired();
  void remove_files(const std::vector<Retired>& files);

  using Clock = std::chrono::steady_clock;

  std::mutex reopen_mutex_;       // held by reopen(), guards spare_ and next_try_; taken first
  std::mutex entry_mutex_;        // held to enter, so that reopen() is not kept waiting by later calls; taken next
  std::shared_mutex open_mutex_;  // shared while what follows, to why_closed_, is used; exclusive while that is opened
  std::unique_ptr<RocksDatabase> database_;  // null: could not be opened again
  std::unique_ptr<ObjectFolder> folder_;     // disk
  std::exception_ptr why_closed_;
  SpareSpace spare_;  // for opening
  Clock::time_point next_try_;

  std::atomic<bool> erased_in_column_{true};  // the data column may have files of which nothing is alive
  std::atomic<bool> scarce_{true};            // little space: garbage is not collected
  std::mutex sync_mutex_;                     // one writer of the watermark at a time; taken before retired_mutex_
  std::mutex retired_mutex_;                  // guards what follows
  std::vector<Retired> retired_;
  std::uint64_t retired_bytes_ = 0;
};

}  // namespace penstock::storage
