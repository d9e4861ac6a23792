// Objects that become present when they are on disk, and what others do to their keys meanwhile.
#include <gtest/gtest.h>

#include "pool/store/disk_queue.hpp"
#include "pool/store/object_record.hpp"
#include "pool/store/store_test_support.hpp"

namespace penstock::pool {
namespace {

class StoreAfterDisk : public testing::Test {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.memory_bytes = 1 << 20;
    options.tiers.resize(1);
    store_ = std::make_unique<StoreOnEngine>(options, fake_tiers(disk_, slow_));
  }
  // Rows from first on, in one batch.
  fabric::Future<void> start(std::uint64_t first, std::uint64_t count) {
    return store_->start(put_task(store_->store(), first, count));
  }
  static fabric::Task<void> put_task(ObjectStore& store, std::uint64_t first, std::uint64_t count) {
    std::vector<ObjectStore::Write> writes;
    for (std::uint64_t i = first; i < first + count; ++i) {
      auto blob = store.try_reserve(100);
      fill_with(blob->writable(), i);
      writes.push_back(StoreOnEngine::write_of({.row = numbered("row", i)}, std::move(blob)));
    }
    co_await store.put(std::move(writes), true, true, soon());
  }
  void finish(fabric::Future<void> putting) {
    disk_->closed = false;
    putting.get(soon());
  }
  std::size_t entries() {
    std::lock_guard lock(disk_->mutex);
    return disk_->entries.size() - disk_->entries.count(DiskQueue::floor_key());
  }

  std::shared_ptr<FakeDisk> disk_ = std::make_shared<FakeDisk>(), slow_ = std::make_shared<FakeDisk>();
  std::unique_ptr<StoreOnEngine> store_;
};

TEST_F(StoreAfterDisk, NobodySeesThemBeforeTheyAreOnDisk) {
  disk_->closed = true;
  auto done = start(0, 50);
  EXPECT_FALSE(store_->load("row7"));
  finish(std::move(done));
  for (std::uint64_t i = 0; i < 50; ++i) {
    const auto row = numbered("row", i);
    ASSERT_TRUE(store_->on_disk(row));
    EXPECT_TRUE(is_filled_with(store_->load(row)->object.blob->bytes(), i));
  }
  EXPECT_EQ(entries(), 50u);
  EXPECT_EQ(disk_->puts, 1u);
}

// What a failed write of several puts left is looked for when each is tried alone: else it would be counted twice.
TEST_F(StoreAfterDisk, APutThatIsTriedAgainIsNotFresh) {
  disk_->closed = true;
  std::vector<fabric::Future<void>> puts;
  for (std::uint64_t i = 0; i < 20; ++i) puts.push_back(start(i, 1));
  store_->on_engine([] {});  // all are in the queue, most of them for one group
  disk_->puts_to_fail = 1'000;
  for (auto& put : puts) finish(std::move(put));
  EXPECT_LT(disk_->puts_to_fail, 1'000);
  EXPECT_EQ(disk_->not_fresh, 0u);
}

TEST_F(StoreAfterDisk, ADropWins) {
  disk_->closed = true;
  auto done = start(0, 10);
  auto dropped = store_->start(store_->store().drop({}, "row3", "c", {}, true, soon()));
  auto absent = store_->start(store_->store().drop({}, "row11", "c", {}, true, soon()));
  finish(std::move(done));
  EXPECT_TRUE(dropped.get(soon()));
  EXPECT_FALSE(absent.get(soon()));
  EXPECT_FALSE(store_->load("row3"));
  EXPECT_TRUE(store_->load("row4"));
  EXPECT_EQ(entries(), 9u);
}

TEST_F(StoreAfterDisk, WhatIsGivenUpOnItsWayDoesNotCome) {
  store_->put({.row = "row1", .number = 7});
  disk_->closed = true;
  auto done = start(0, 10);  // row1: the same version, in memory already
  store_->on_engine([&] { store_->store().give_up_on_its_way(); });
  auto again = start(4, 1);  // the same version once more, from somebody else
  EXPECT_EQ(code_of([&] { finish(std::move(done)); }), Errc::stale_view);
  again.get(soon());
  store_->flush();
  for (std::uint64_t i = 0; i < 10; ++i)
    EXPECT_EQ(store_->load(numbered("row", i)).has_value(), i == 1 || i == 4) << "row" << i;
  EXPECT_EQ(entries(), 2u);
}

TEST_F(StoreAfterDisk, ANewerVersionWins) {
  disk_->closed = true;
  auto done = start(0, 10);
  auto newer = store_->start(
      StoreOnEngine::put_task(store_->store(), {.row = "row3", .number = 99, .version = 2, .after_disk = true}));
  store_->put({.row = "row4", .number = 98, .version = 2});
  EXPECT_EQ(store_->load("row4")->object.version, 2u);
  finish(std::move(done));
  newer.get(soon());
  store_->flush();
  EXPECT_TRUE(is_filled_with(store_->load("row3")->object.blob->bytes(), 99));
  EXPECT_TRUE(is_filled_with(store_->load("row4")->object.blob->bytes(), 98));
  EXPECT_TRUE(is_filled_with(store_->load("row5")->object.blob->bytes(), 5));
  EXPECT_EQ(entries(), 10u);
}

TEST_F(StoreAfterDisk, WhatIsOnItsWayIsKnownByItsVersion) {
  disk_->closed = true;
  auto done = start(0, 3);
  auto put = store_->start(StoreOnEngine::put_task(
      store_->store(), {.row = "row1", .number = 99, .bytes = 50, .version = 4, .after_disk = true}));
  const auto coming = [&](const std::string& row) {
    ObjectStore::OnItsWay out;
    store_->on_engine([&] { out = store_->store().on_its_way(pack_key({}, row, "c")); });
    return out;
  };
  EXPECT_EQ(coming("row0").version, 1u);
  EXPECT_EQ(coming("row0").bytes, 100u);
  EXPECT_EQ(coming("row1").version, 4u);
  EXPECT_EQ(coming("row1").bytes, 50u);
  EXPECT_EQ(coming("row3").version, 0u);
  // Versions below the newest count as well.
  const auto taken = [&](std::uint64_t version, std::size_t size, std::uint64_t number) {
    std::vector<std::byte> data(size);
    fill_with(data, number);
    StoredObject object;
    object.version = version;
    object.bytes = size;
    object.checksum = storage::checksum(data);
    bool out = false;
    store_->on_engine([&] { out = store_->store().is_taken_on_its_way(pack_key({}, "row1", "c"), object); });
    return out;
  };
  EXPECT_FALSE(taken(1, 100, 1));
  EXPECT_TRUE(taken(1, 100, 99));
  EXPECT_FALSE(taken(4, 50, 99));
  EXPECT_TRUE(taken(4, 50, 1));
  EXPECT_FALSE(taken(2, 50, 1));
  finish(std::move(done));
  put.get(soon());
  for (const auto* row : {"row0", "row1", "row2"}) EXPECT_EQ(coming(row).version, 0u);
  EXPECT_TRUE(is_filled_with(store_->load("row1")->object.blob->bytes(), 99));
}

// However long the disk fails, what failed puts may have left there is a bounded list.
TEST_F(StoreAfterDisk, ADiskThatFailsOnOwesABoundedNumberOfErases) {
  disk_->full = slow_->full = true;
  disk_->erases_to_fail = slow_->erases_to_fail = 1'000'000;
  int puts = 0;
  std::string last;
  for (; puts < 500 && last.find("before the failed ones are undone") == std::string::npos; ++puts)
    last = error_of([&] { start(static_cast<std::uint64_t>(puts) * 100, 100).get(soon()); }).second;
  EXPECT_GE(puts, 100);
  EXPECT_LT(puts, 500);
  EXPECT_NE(last.find(": fake/"), std::string::npos) << last;  // and why it fails
  disk_->full = slow_->full = false;
  disk_->erases_to_fail = slow_->erases_to_fail = 0;
  const auto deadline = soon();
  while (!deadline.passed() && code_of([&] { start(90'000, 1).get(soon()); }) != Errc::ok) std::this_thread::yield();
  EXPECT_TRUE(store_->load(numbered("row", 90'000)));
}

TEST_F(StoreAfterDisk, AFullDiskLeavesNothing) {
  disk_->full = slow_->full = true;
  EXPECT_THROW(finish(start(0, 10)), Error);
  EXPECT_FALSE(store_->load("row3"));
  EXPECT_EQ(entries(), 0u);
  disk_->full = false;
  store_->flush();  // what the disk may have of them all the same is erased first
  finish(start(0, 10));
  EXPECT_EQ(entries(), 10u);
}

// The tier had them when its sync failed. Nobody was told of them: nor is anybody when the tier is read again.
TEST_F(StoreAfterDisk, AFailedSyncLeavesNothing) {
  slow_->full = true;
  for (const bool alone : {false, true}) {
    disk_->puts_to_fail = 1;
    disk_->erases_to_fail = 1;
    if (alone) EXPECT_THROW(store_->put({.row = "row3", .after_disk = true}), Error);
    else EXPECT_THROW(finish(start(0, 10)), Error);
    EXPECT_FALSE(store_->load("row3"));
    store_->flush();
    EXPECT_EQ(entries(), 0u);
  }
  finish(start(0, 10));
  EXPECT_EQ(entries(), 10u);
}

// A client that hears nothing puts again: the same bytes, and the same version.
TEST_F(StoreAfterDisk, OfAPutAndItsRepetitionOneThatFailsLeavesTheOther) {
  slow_->full = true;
  for (const bool first_fails : {true, false}) {
    const std::string row = first_fails ? "first" : "second";
    const auto key = tier_key(pack_key({}, row, "c"), 1);
    const auto there = [&] {
      const std::lock_guard lock(disk_->mutex);
      return disk_->entries.contains(key);
    };
    disk_->closed = true;
    const auto put = [&] {
      return store_->start(StoreOnEngine::put_task(store_->store(), {.row = row, .number = 7, .after_disk = true}));
    };
    auto first = put();
    while (disk_->waiting == 0) std::this_thread::yield();
    auto second = put();
    store_->on_engine([&] {  // which would give the disk the second one
      disk_->puts_to_fail = first_fails ? 1 : 0;
      disk_->closed = false;
      while (!there()) std::this_thread::yield();
      disk_->closed = true;
      disk_->puts_to_fail = first_fails ? 0 : 1;
    });
    disk_->closed = false;
    auto& failing = first_fails ? first : second;
    auto& other = first_fails ? second : first;
    EXPECT_THROW(failing.get(soon()), Error);
    other.get(soon());
    store_->flush();
    EXPECT_TRUE(store_->on_disk(row));
    EXPECT_TRUE(there()) << row;
  }
}

TEST_F(StoreAfterDisk, TheyAreEvictedLikeOthers) {
  for (std::uint64_t first = 0; first < 40'000; first += 500) finish(start(first, 500));
  EXPECT_GT(store_->statistics().evictions, 0u);
  for (std::uint64_t i = 0; i < 40'000; i += 997)
    EXPECT_TRUE(is_filled_with(store_->load(numbered("row", i))->object.blob->bytes(), i));
}

// What may be demoted is remembered by key; those of keys that are gone are forgotten again.
TEST_F(StoreAfterDisk, WhatWasDroppedIsForgotten) {
  StoreOptions options;
  options.memory_bytes = 1 << 20;
  options.tiers.resize(2);
  options.tiers[0].limit_bytes = 1 << 30;
  store_ = std::make_unique<StoreOnEngine>(options, fake_tiers(disk_, slow_));
  const auto drop = [&](const std::string& row) {
    return store_->start(store_->store().drop({}, row, "c", {}, false, soon()));
  };
  for (std::uint64_t first = 0; first < 40'000; first += 500) {
    finish(start(first, 500));
    for (std::uint64_t i = first; i < first + 500; ++i) drop(numbered("row", i));
  }
  EXPECT_LT(store_->statistics().index_bytes, 2u << 20);
  for (std::uint64_t i = 0; i < 40'000; i += 50) {
    std::vector<fabric::Future<void>> putting;
    for (std::uint64_t n = i; n < i + 50; ++n)
      putting.push_back(store_->start(
          StoreOnEngine::put_task(store_->store(), {.row = numbered("single", n), .bytes = 10, .after_disk = true})));
    for (auto& put : putting) put.get(soon());
    for (std::uint64_t n = i; n < i + 50; ++n) drop(numbered("single", n));
  }
  EXPECT_LT(store_->statistics().index_bytes, 2u << 20);
}

}  // namespace
}  // namespace penstock::pool
