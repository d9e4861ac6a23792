// What the tests of the store share: a seed, a store on an engine, and a tier that fails on demand.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "base/test_support.hpp"
#include "fabric/task.hpp"
#include "pool/store/object_store.hpp"

namespace penstock::pool {

using namespace std::chrono_literals;
using fabric::Progress;
using fabric::Task;

inline constexpr std::uint64_t KiB = 1 << 10, MiB = 1 << 20;

// PENSTOCK_TEST_SEED repeats a run; otherwise each run tries new cases.
inline std::uint64_t store_test_seed() {
  static const std::uint64_t seed = [] {
    const char* text = std::getenv("PENSTOCK_TEST_SEED");
    return text ? std::strtoull(text, nullptr, 10) : std::uint64_t{std::random_device{}()};
  }();
  return seed;
}

class StoreRandom {
 public:
  explicit StoreRandom(std::uint64_t salt) : engine_(store_test_seed() * 1'000'003 + salt) {}
  // Inclusive.
  std::uint64_t from(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(engine_);
  }
  bool chance(unsigned percent) { return from(1, 100) <= percent; }

 private:
  std::mt19937_64 engine_;
};

// "r17" (appended, because g++ 12 warns of what operator+ is inlined to).
inline std::string numbered(std::string text, std::uint64_t number) {
  text += std::to_string(number);
  return text;
}

// Bytes that only this number has.
inline void fill_with(std::span<std::byte> bytes, std::uint64_t number) {
  std::uint64_t state = number * 0x9e3779b97f4a7c15ull + 1;
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    std::memcpy(bytes.data() + i, &state, std::min<std::size_t>(8, bytes.size() - i));
  }
}
inline bool is_filled_with(std::span<const std::byte> bytes, std::uint64_t number) {
  std::vector<std::byte> expected(bytes.size());
  fill_with(expected, number);
  return std::equal(bytes.begin(), bytes.end(), expected.begin());
}

// A store on an engine of its own, used from the test's thread.
class StoreOnEngine {
 public:
  explicit StoreOnEngine(StoreOptions options, std::vector<std::unique_ptr<storage::Tier>> tiers = {},
                         bool recover = true) {
    progress_ = Progress::create();
    progress_->call([&] {
      store_ = tiers.empty() ? std::make_unique<ObjectStore>(progress_, std::move(options))
                             : std::make_unique<ObjectStore>(progress_, std::move(options), std::move(tiers));
    });
    if (recover) run(store_->recover());
  }
  ~StoreOnEngine() {
    progress_->call([&] { store_.reset(); });
  }
  ObjectStore& store() { return *store_; }
  Progress& progress() { return *progress_; }
  std::shared_ptr<Progress> shared_progress() const { return progress_; }
  template <class T>
  T run(Task<T> task) {
    return fabric::run_task(*progress_, std::move(task), base::Deadline(100s));
  }
  template <class T>
  fabric::Future<T> start(Task<T> task) {
    return fabric::spawn(*progress_, std::move(task));
  }
  void on_engine(const std::function<void()>& action) { progress_->call(action); }
  StoreStatistics statistics() {
    StoreStatistics out;
    on_engine([&] { out = store_->statistics(); });
    return out;
  }
  // Waits until it holds (statistics change on the engine only).
  bool until(const std::function<bool(const StoreStatistics&)>& holds) {
    const auto deadline = soon();
    while (!deadline.passed()) {
      if (holds(statistics())) return true;
      std::this_thread::yield();
    }
    return false;
  }

  struct Put {
    std::string row, column = "c";
    std::uint64_t number = 0, bytes = 100, version = 1;
    bool durable = false, after_disk = false, keep_older = false;
    base::Deadline deadline = soon();
  };
  static Task<void> put_task(ObjectStore& store, Put put) {
    auto blob = co_await store.reserve(put.bytes, put.deadline);
    fill_with(blob->writable(), put.number);
    std::vector<ObjectStore::Write> writes(1);
    writes[0] = write_of(put, std::move(blob));
    co_await store.put(std::move(writes), put.durable, put.after_disk, put.deadline);
  }
  static ObjectStore::Write write_of(const Put& put, std::shared_ptr<Blob> blob) {
    ObjectStore::Write write;
    write.row = put.row;
    write.column = put.column;
    write.keep_older = put.keep_older;
    write.object.version = put.version;
    write.object.bytes = put.bytes;
    write.object.checksum = storage::checksum(blob->bytes());
    write.object.put_us = static_cast<std::int64_t>(put.number);
    write.object.tag = put.number;
    write.object.metadata = std::make_shared<const std::string>(numbered("number ", put.number));
    write.object.blob = std::move(blob);
    return write;
  }
  void put(Put put) { run(put_task(*store_, std::move(put))); }
  std::optional<ObjectStore::Loaded> load(const std::string& row, const std::string& column = "c",
                                          std::optional<std::uint64_t> version = {}, base::Deadline deadline = soon()) {
    return run(store_->load({}, row, column, version, deadline));
  }
  bool drop(const std::string& row, const std::string& column = "c", std::optional<std::uint64_t> version = {},
            bool durable = false) {
    return run(store_->drop({}, row, column, version, durable, soon()));
  }
  void flush() { run(store_->flush(soon())); }
  bool in_memory(const std::string& row, const std::string& column = "c") {
    bool in = false;
    on_engine([&] {
      const auto* object = store_->table().find({}, row, column);
      in = object != nullptr && object->blob != nullptr;
    });
    return in;
  }
  bool on_disk(const std::string& row, const std::string& column = "c") {
    bool on = false;
    on_engine([&] {
      const auto* object = store_->table().find({}, row, column);
      on = object != nullptr && object->on_disk;
    });
    return on;
  }

 private:
  std::shared_ptr<Progress> progress_;
  std::unique_ptr<ObjectStore> store_;
};

inline StoreOptions small_store(const std::string& folder, std::uint64_t memory_bytes = 4 << 20) {
  StoreOptions options;
  options.memory_bytes = memory_bytes;
  if (!folder.empty()) {
    storage::TierOptions tier;
    tier.path = folder;
    options.tiers.push_back(tier);
  }
  return options;
}

// Keeps everything in memory; fails, or holds calls up, as the test says. Shared, so that its contents outlive the store.
struct FakeDisk {
  std::mutex mutex;  // guards what follows
  struct Value {
    std::string metadata;
    std::vector<std::byte> data;
    std::uint64_t checksum = 0;
  };
  std::map<std::string, Value> entries;
  std::atomic<bool> full{false};
  std::atomic<std::int64_t> erases_to_fail{0};
  std::atomic<std::int64_t> puts_to_fail{0};  // after they were made, as when a sync fails
  std::atomic<std::uint64_t> puts{0}, gets{0}, erases{0};
  std::atomic<std::uint64_t> not_fresh{0};  // entries that were put as fresh and were there
  std::atomic<std::uint64_t> limit{~std::uint64_t{0}};
  // Calls wait while it is closed.
  std::atomic<bool> closed{false};
  std::atomic<std::uint64_t> waiting{0};
  void pass() {
    if (!closed) return;
    const auto deadline = soon();
    ++waiting;
    while (closed && !deadline.passed()) std::this_thread::yield();
    --waiting;
  }
};

class FakeTier : public storage::Tier {
 public:
  explicit FakeTier(std::shared_ptr<FakeDisk> disk, std::string path = "fake")
      : disk_(std::move(disk)), path_(std::move(path)) {}
  std::string_view kind() const override { return "fake"; }
  const std::string& path() const override { return path_; }
  void put(std::span<const storage::TierWrite> writes, bool) override {
    disk_->pass();
    ++disk_->puts;
    std::lock_guard lock(disk_->mutex);
    std::uint64_t bytes = held();
    for (const auto& write : writes) bytes += write.data.size();
    if (disk_->full || bytes > disk_->limit) throw storage::TierFull(path_ + ": no space left on device");
    for (const auto& w : writes)
      if (w.fresh && disk_->entries.contains(std::string(w.key))) ++disk_->not_fresh;
    for (const auto& w : writes)
      disk_->entries[std::string(w.key)] = {std::string(w.metadata),
                                            {w.data.begin(), w.data.end()},
                                            w.checksum ? *w.checksum : storage::checksum(w.data)};
    if (--disk_->puts_to_fail >= 0) throw Error(Errc::system, path_ + ": input/output error");
  }
  std::optional<storage::TierEntry> find(std::string_view key) override {
    std::lock_guard lock(disk_->mutex);
    const auto at = disk_->entries.find(std::string(key));
    if (at == disk_->entries.end()) return std::nullopt;
    return storage::TierEntry{at->first, at->second.data.size(), at->second.checksum, at->second.metadata};
  }
  void get(std::string_view key, std::span<std::byte> out) override {
    disk_->pass();
    ++disk_->gets;
    std::lock_guard lock(disk_->mutex);
    const auto at = disk_->entries.find(std::string(key));
    if (at == disk_->entries.end()) throw Error(Errc::not_found, "no such entry");
    if (out.size() != at->second.data.size()) throw Error(Errc::invalid_argument, "size");
    std::copy(at->second.data.begin(), at->second.data.end(), out.begin());
  }
  bool erase(std::string_view key, bool) override {
    disk_->pass();
    ++disk_->erases;
    if (--disk_->erases_to_fail >= 0) throw Error(Errc::system, path_ + ": input/output error");
    std::lock_guard lock(disk_->mutex);
    return disk_->entries.erase(std::string(key)) > 0;
  }
  void scan(std::string_view prefix, const std::function<bool(const storage::TierEntry&)>& visit) override {
    std::lock_guard lock(disk_->mutex);
    for (const auto& [key, value] : disk_->entries)
      if (key.starts_with(prefix) && !visit({key, value.data.size(), value.checksum, value.metadata})) return;
  }
  void sync() override {}
  std::uint64_t used_bytes() override { return statistics().bytes; }
  storage::TierStatistics statistics() override {
    std::lock_guard lock(disk_->mutex);
    storage::TierStatistics out;
    out.objects = disk_->entries.size();
    out.bytes = held();
    return out;
  }

 private:
  std::uint64_t held() const {
    std::uint64_t bytes = 0;
    for (const auto& [key, value] : disk_->entries) bytes += value.data.size();
    return bytes;
  }
  std::shared_ptr<FakeDisk> disk_;
  std::string path_;
};

inline std::vector<std::unique_ptr<storage::Tier>> fake_tiers(std::shared_ptr<FakeDisk> first,
                                                              std::shared_ptr<FakeDisk> second = nullptr) {
  std::vector<std::unique_ptr<storage::Tier>> tiers;
  tiers.push_back(std::make_unique<FakeTier>(std::move(first), "fake/fast"));
  if (second) tiers.push_back(std::make_unique<FakeTier>(std::move(second), "fake/slow"));
  return tiers;
}

}  // namespace penstock::pool
