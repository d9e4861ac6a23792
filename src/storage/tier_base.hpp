// What every tier does alike: checks of the arguments, the tier's folder with its lock and its mark, counters, the limit.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/file.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {

class TierBase : public Tier {
 public:
  std::string_view kind() const final { return options_.kind; }
  const std::string& path() const final { return options_.path; }
  void put(std::span<const TierWrite> writes, bool sync) final;
  void get(std::string_view key, std::span<std::byte> out) final;
  std::optional<TierEntry> find(std::string_view key) final;
  bool erase(std::string_view key, bool sync) final;
  void scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) final;
  void sync() final;
  std::uint64_t used_bytes() final;
  TierStatistics statistics() final;

 protected:
  // Takes the folder: locks it and checks or writes its mark.
  explicit TierBase(const TierOptions& options);

  // Each key once, arguments checked.
  virtual void do_put(std::span<const TierWrite> writes, bool sync) = 0;
  virtual std::optional<TierEntry> do_find(std::string_view key) = 0;
  virtual void do_get(std::string_view key, std::span<std::byte> out) = 0;
  virtual bool do_erase(std::string_view key, bool sync) = 0;
  virtual void do_scan(std::string_view prefix, const std::function<bool(const TierEntry&)>& visit) = 0;
  virtual void do_sync() = 0;
  virtual std::uint64_t journal_bytes() { return 0; }

  const TierOptions& options() const { return options_; }
  // For destructors: syncs, and warns instead of throwing.
  void close() noexcept;
  void count_nothing();  // before what exists is counted again
  void count_existing(std::uint64_t data_bytes);
  void count_erased(std::uint64_t data_bytes);
  void count_error() { errors_.fetch_add(1, std::memory_order_relaxed); }
  void count_dropped(std::uint64_t count = 1) { dropped_.fetch_add(count, std::memory_order_relaxed); }

  // Room for a put: taken before it writes, given back unless it is committed. Throws TierFull beyond the limit.
  class Room {
   public:
    struct Change {
      std::uint64_t objects_new = 0, objects_replaced = 0, bytes_new = 0, bytes_replaced = 0;
    };
    Room(TierBase& tier, const Change& change);
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    ~Room();
    void commit();

   private:
    TierBase& tier_;
    const Change change_;
    bool committed_ = false;
  };

 private:
  template <class Action>
  auto counted(Action action);

  const TierOptions options_;
  File lock_;
  std::atomic<std::uint64_t> written_bytes_{0}, read_bytes_{0}, syncs_{0}, errors_{0}, dropped_{0};
  std::mutex usage_mutex_;  // guards objects_ and bytes_; nothing else is taken under it
  std::uint64_t objects_ = 0, bytes_ = 0;
};

// The tiers of this module; open_tier chooses.
std::unique_ptr<Tier> open_files_tier(const TierOptions& options);
std::unique_ptr<Tier> open_rocksdb_tier(const TierOptions& options);  // also `disk`

}  // namespace penstock::storage
