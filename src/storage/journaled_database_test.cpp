// What waits in the journal only while writes come: it is found, survives a kill, is bounded, and comes into RocksDB.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/test_support.hpp"
#include "penstock/error.hpp"
#include "storage/disk_faults.hpp"
#include "storage/journaled_database.hpp"

namespace penstock::storage {
namespace {

namespace fs = std::filesystem;
using Kind = DiskCall::Kind;

constexpr std::uint64_t cache_bytes = 4 << 20;  // of which an eighth is for what waits
constexpr std::chrono::hours never(1);

class JournaledDatabaseTest : public testing::Test {
 protected:
  JournaledDatabaseTest() { fs::create_directory(folder_ / "one"); }
  void open(std::uint64_t most_deferred, std::chrono::milliseconds quiet, std::uint64_t least_free = 0) {
    database_.reset();
    database_ = std::make_unique<JournaledDatabase>(
        folder_ / "one", cache_bytes,
        JournaledDatabase::Deferral{
            .most_deferred_bytes = most_deferred, .least_free_bytes = least_free, .quiet = quiet});
  }
  static std::string key_of(int number) { return "key " + std::to_string(number); }
  static std::string value_of(int number, int version = 0) {
    return std::to_string(number) + "/" + std::to_string(version) +
           std::string(40'000, static_cast<char>('a' + number % 20));
  }
  void put(int number, int version = 0, bool sync = true) {
    rocksdb::WriteBatch batch;
    batch.Put(database_->index(), key_of(number), value_of(number, version));
    const auto written = database_->write(std::move(batch));
    if (sync) database_->sync(written);
  }
  void erase(int number) {
    rocksdb::WriteBatch batch;
    batch.Delete(database_->index(), key_of(number));
    database_->sync(database_->write(std::move(batch)));
  }
  std::string get(int number) const { return get_from(*database_, number); }
  static std::string get_from(const JournaledDatabase& database, int number) {
    rocksdb::PinnableSlice out;
    return database.get(database.index(), key_of(number), out) ? out.ToString() : "";
  }
  int entries() {
    int count = 0;
    const auto iterator = database_->iterate("key ");
    for (; iterator->Valid() && iterator->key().starts_with("key "); iterator->Next()) ++count;
    return count;
  }

  SilentLog silent_;
  TestFolder folder_;
  std::unique_ptr<JournaledDatabase> database_;
};

TEST_F(JournaledDatabaseTest, WhatWaitsInTheJournalIsFound) {
  open(16 << 20, never);
  for (int i = 0; i < 100; ++i) put(i);
  for (int i = 0; i < 50; i += 2) put(i, 1);
  for (int i = 1; i < 50; i += 2) erase(i);
  ASSERT_GT(database_->deferred_bytes(), 1u << 20);
  for (int i = 99; i >= 0; --i) EXPECT_EQ(get(i), i >= 50 ? value_of(i) : i % 2 == 0 ? value_of(i, 1) : "") << i;
  EXPECT_EQ(database_->deferred_bytes(), 0u) << "whoever looks has it brought over";
  EXPECT_EQ(get(100), "");
  EXPECT_EQ(entries(), 75);
}

TEST_F(JournaledDatabaseTest, AListHasWhatWaited) {
  open(16 << 20, never);
  for (int i = 0; i < 100; ++i) put(i);
  ASSERT_GT(database_->deferred_bytes(), 1u << 20);
  EXPECT_EQ(entries(), 100);
  EXPECT_EQ(database_->deferred_bytes(), 0u);
}

TEST_F(JournaledDatabaseTest, WhatWaitedSurvivesAKill) {
  open(16 << 20, never);
  for (int i = 0; i < 100; ++i) put(i);
  erase(3);
  ASSERT_GT(database_->deferred_bytes(), 1u << 20);
  fs::copy(folder_ / "one", folder_ / "killed", fs::copy_options::recursive);
  JournaledDatabase next(folder_ / "killed", cache_bytes);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(get_from(next, i), i == 3 ? "" : value_of(i)) << i;
}

TEST_F(JournaledDatabaseTest, WhatWaitsIsThereAfterAnOrderlyEnd) {
  open(16 << 20, never);
  for (int i = 0; i < 100; ++i) put(i);
  ASSERT_GT(database_->deferred_bytes(), 1u << 20);
  open(16 << 20, never);
  EXPECT_EQ(entries(), 100);
}

TEST_F(JournaledDatabaseTest, ItComesIntoRocksDbWhenNothingElseComes) {
  open(16 << 20, std::chrono::milliseconds(1));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < 100; ++i) put(i);
  while (database_->deferred_bytes() != 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(database_->deferred_bytes(), 0u);
}

TEST_F(JournaledDatabaseTest, NoMoreWaitsThanMay) {
  open(2 << 20, never);
  for (int i = 0; i < 300; ++i) {
    put(i);
    EXPECT_LE(database_->deferred_bytes(), 2u << 20);
  }
  EXPECT_EQ(entries(), 300);
}

// Bytes that were only written may be lost by the system after a sync that failed: they stay in memory until RocksDB has them.
TEST_F(JournaledDatabaseTest, WhatIsNotDurableStaysInMemory) {
  open(16 << 20, never);
  for (int i = 0; i < 100; ++i) put(i, 0, false);
  EXPECT_LE(database_->deferred_bytes(), 2u << 20) << "but what a file had that was filled, and synced for that";
  EXPECT_EQ(entries(), 100);
}

TEST_F(JournaledDatabaseTest, NothingIsDeferredOnADiskThatIsNearlyFull) {
  open(16 << 20, never, ~std::uint64_t{0});
  for (int i = 0; i < 100; ++i) put(i);
  EXPECT_EQ(database_->deferred_bytes(), 0u);
}

// Reads go on.
TEST_F(JournaledDatabaseTest, WhatWaitsIsFoundWhileRocksDbTakesNothing) {
  open(64 << 20, never);
  for (int i = 0; i < 400; ++i) put(i);
  put(7, 1);
  ASSERT_GT(database_->deferred_bytes(), 8u << 20);
  {
    const DiskFaults faults([&](const DiskCall& call) {
      const bool theirs = call.kind == Kind::write && call.path.find("/rocksdb/") != std::string::npos;
      return theirs || call.kind == Kind::space ? ENOSPC : 0;
    });
    for (const int i : {399, 398, 300, 200, 7, 0}) EXPECT_EQ(get(i), value_of(i, i == 7 ? 1 : 0)) << i;
    EXPECT_EQ(get(400), "");
    EXPECT_GT(database_->deferred_bytes(), 0u) << "RocksDB has no place for it";
  }
}

}  // namespace
}  // namespace penstock::storage
