// The store over a disk that is slow, full or wrong when the test says so, and orders of events that only then happen.
#include "pool/store/disk_queue.hpp"
#include "pool/store/store_test_support.hpp"

namespace penstock::pool {
namespace {

class StoreDisk : public testing::Test {
 protected:
  std::shared_ptr<FakeDisk> disk = std::make_shared<FakeDisk>(), slow = std::make_shared<FakeDisk>();
  std::atomic<bool> closing{false};

  std::unique_ptr<StoreOnEngine> open(std::uint64_t memory_bytes = 4 * MiB) {
    return std::make_unique<StoreOnEngine>(small_store("", memory_bytes), fake_tiers(disk));
  }
  std::unique_ptr<StoreOnEngine> open_two(std::uint64_t first_limit) {
    auto options = small_store("", 4 * MiB);
    options.tiers.resize(2);
    options.tiers[0].limit_bytes = first_limit;
    return std::make_unique<StoreOnEngine>(options, fake_tiers(disk, slow));
  }
  // Objects on the disk: every version, without the store's own.
  static std::size_t entries(FakeDisk& disk) {
    std::lock_guard lock(disk.mutex);
    return disk.entries.size() - disk.entries.count(DiskQueue::floor_key());
  }
  static bool until(const std::function<bool()>& holds) {
    const auto deadline = soon();
    while (!holds()) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }
};

TEST_F(StoreDisk, AfterDiskMeansThatNobodySeesItBefore) {
  auto s = open();
  disk->closed = true;
  auto hidden = s->start(StoreOnEngine::put_task(s->store(), {.row = "hidden", .after_disk = true}));
  auto seen = s->start(StoreOnEngine::put_task(s->store(), {.row = "seen", .durable = true}));
  ASSERT_TRUE(until([&] { return disk->waiting > 0; }));
  EXPECT_FALSE(s->load("hidden"));
  EXPECT_TRUE(s->load("seen"));
  EXPECT_FALSE(s->on_disk("seen"));
  EXPECT_FALSE(hidden.done() || seen.done());
  disk->closed = false;
  hidden.get(soon());
  seen.get(soon());
  EXPECT_TRUE(s->on_disk("hidden") && s->on_disk("seen"));
}

TEST_F(StoreDisk, ADurablePutThatTakesTooLongTimesOutAndGoesOn) {
  auto s = open();
  disk->closed = true;
  EXPECT_EQ(code_of([&] { s->put({.row = "a", .after_disk = true, .deadline = base::Deadline(20ms)}); }),
            Errc::timeout);
  disk->closed = false;
  s->flush();
  EXPECT_TRUE(s->on_disk("a"));
}

TEST_F(StoreDisk, ConcurrentDurablePutsShareWrites) {
  auto s = open();
  disk->closed = true;
  std::vector<fabric::Future<void>> puts;
  for (std::uint64_t i = 0; i < 100; ++i)
    puts.push_back(
        s->start(StoreOnEngine::put_task(s->store(), {.row = numbered("r", i), .number = i, .durable = true})));
  s->on_engine([] {});
  disk->closed = false;
  for (auto& put : puts) put.get(soon());
  EXPECT_LE(s->statistics().write_groups, 5u);
  EXPECT_EQ(entries(*disk), 100u);
}

TEST_F(StoreDisk, AFullDiskFailsDurablePutsAndMemoryGoesOn) {
  auto s = open(1 * MiB);
  disk->full = true;
  const auto [code, why] = error_of([&] { s->put({.row = "hidden", .after_disk = true}); });
  EXPECT_EQ(code, Errc::system);
  EXPECT_NE(why.find("fake/fast: no space left"), std::string::npos) << why;
  EXPECT_FALSE(s->load("hidden"));
  EXPECT_EQ(code_of([&] { s->put({.row = "seen", .number = 3, .durable = true}); }), Errc::system);
  EXPECT_TRUE(is_filled_with(s->load("seen")->object.blob->bytes(), 3))
      << "it is in memory, and will be written behind";
  s->put({.row = "memory", .number = 4, .bytes = 700 * KiB});
  const auto [full, why_full] =
      error_of([&] { s->put({.row = "more", .bytes = 700 * KiB, .deadline = base::Deadline(200ms)}); });
  EXPECT_EQ(full, Errc::pool_full);
  EXPECT_NE(why_full.find("no space left"), std::string::npos) << why_full;
  EXPECT_EQ(code_of([&] { s->flush(); }), Errc::system);
  EXPECT_NE(s->statistics().disk_error, "");
  EXPECT_EQ(entries(*disk), 0u);

  disk->full = false;
  s->put({.row = "more", .number = 5, .bytes = 700 * KiB});
  s->flush();
  EXPECT_EQ(s->statistics().disk_error, "");
  EXPECT_EQ(s->statistics().unwritten_bytes, 0u);
  EXPECT_EQ(entries(*disk), 3u);
  for (const auto& [row, number] : {std::pair{"seen", 3u}, {"memory", 4u}, {"more", 5u}})
    EXPECT_TRUE(is_filled_with(s->load(row)->object.blob->bytes(), number)) << row;
}

TEST_F(StoreDisk, OneThatDoesNotFitDoesNotFailOthersOfItsGroup) {
  auto s = open();
  disk->limit = 1 * MiB;
  disk->closed = true;
  std::vector<fabric::Future<void>> puts;
  for (std::uint64_t i = 0; i < 8; ++i)
    puts.push_back(s->start(StoreOnEngine::put_task(
        s->store(), {.row = numbered("r", i), .number = i, .bytes = i == 5 ? 2 * MiB : 10 * KiB, .after_disk = true})));
  s->on_engine([] {});
  disk->closed = false;
  for (std::uint64_t i = 0; i < 8; ++i)
    EXPECT_EQ(code_of([&] { puts[i].get(soon()); }), i == 5 ? Errc::system : Errc::ok) << i;
  EXPECT_EQ(entries(*disk), 7u);
}

TEST_F(StoreDisk, ADropWinsOverAWriteBehindInFlight) {
  auto s = open();
  disk->closed = true;
  s->put({.row = "a", .bytes = 100 * KiB});
  ASSERT_TRUE(until([&] { return disk->waiting == 1; }));
  EXPECT_TRUE(s->drop("a"));
  EXPECT_FALSE(s->load("a"));
  EXPECT_EQ(s->statistics().unwritten_bytes, 0u);
  EXPECT_GT(s->statistics().memory_used, 0u) << "the disk still reads it";
  // And a put of the same version after it wins over the drop.
  s->put({.row = "a", .number = 2, .bytes = 50 * KiB});
  disk->closed = false;
  s->flush();
  EXPECT_EQ(entries(*disk), 1u);
  EXPECT_TRUE(s->drop("a", "c", {}, true));
  EXPECT_EQ(entries(*disk), 0u);
  EXPECT_EQ(s->statistics().memory_used, 0u);
}

TEST_F(StoreDisk, ADropOfWhatWasNotYetWrittenCostsNothing) {
  auto options = small_store("", 4 * MiB);
  options.write_behind = false;
  StoreOnEngine s(options, fake_tiers(disk));
  s.put({.row = "a"});
  EXPECT_TRUE(s.drop("a", "c", {}, true));
  s.put({.row = "b"});
  EXPECT_EQ(disk->puts + disk->erases, 0u);
  EXPECT_EQ(s.statistics().unwritten_bytes, 100u);
  s.put({.row = "large", .bytes = 3 * MiB});
  s.put({.row = "pressed", .bytes = 3 * MiB});  // now memory is short, and what is there must be written
  EXPECT_GT(disk->puts, 0u);
  s.flush();
  EXPECT_EQ(entries(*disk), 3u);
}

TEST_F(StoreDisk, ADropWinsOverAPutThatIsNotYetVisible) {
  auto s = open();
  disk->closed = true;
  auto put = s->start(StoreOnEngine::put_task(s->store(), {.row = "a", .after_disk = true}));
  ASSERT_TRUE(until([&] { return disk->waiting == 1; }));
  auto drop = s->start(s->store().drop({}, "a", "c", {}, true, soon()));
  disk->closed = false;
  put.get(soon());
  EXPECT_TRUE(drop.get(soon()));
  EXPECT_FALSE(s->load("a"));
  EXPECT_EQ(entries(*disk), 0u);
}

TEST_F(StoreDisk, AnObjectOnDiskStaysUntilItsSuccessorIsThere) {
  auto s = open();
  s->put({.row = "a", .number = 1, .version = 1, .durable = true});
  disk->full = true;
  s->put({.row = "a", .number = 2, .version = 2});
  EXPECT_EQ(code_of([&] { s->flush(); }), Errc::system);
  EXPECT_EQ(s->load("a")->object.version, 2u);
  EXPECT_EQ(entries(*disk), 1u);
  s.reset();  // as if killed: 2 was acknowledged in memory only, and is tried again while the store lives
  disk->full = false;
  s = open();
  EXPECT_EQ(s->load("a")->object.version, 1u);
  s->put({.row = "a", .number = 3, .version = 2});
  s->put({.row = "a", .number = 4, .version = 3});
  s->flush();
  EXPECT_EQ(entries(*disk), 1u);
  EXPECT_TRUE(is_filled_with(s->load("a")->object.blob->bytes(), 4));
}

TEST_F(StoreDisk, ADropThatTheDiskRefusesIsTriedAgain) {
  auto s = open();
  s->put({.row = "a", .durable = true});
  s->put({.row = "b", .durable = true});
  disk->erases_to_fail = 1'000'000;
  EXPECT_EQ(code_of([&] { s->drop("a", "c", {}, true); }), Errc::system);
  EXPECT_FALSE(s->load("a"));
  EXPECT_TRUE(s->drop("b"));
  s->put({.row = "b", .number = 2, .durable = true});  // under the version of the one that is still there
  disk->erases_to_fail = 0;
  s->flush();
  EXPECT_TRUE(until([&] { return entries(*disk) == 1; }));
  s.reset();
  s = open();
  EXPECT_FALSE(s->load("a"));
  EXPECT_TRUE(is_filled_with(s->load("b")->object.blob->bytes(), 2));
}

// What had begun before is no answer about what is there now.
TEST_F(StoreDisk, AFlushTriesAgainWhatFailedOfAnEarlierTry) {
  auto s = open();
  s->put({.row = "a", .durable = true});
  s->put({.row = "b", .durable = true});
  disk->closed = true;
  EXPECT_TRUE(s->drop("b"));
  ASSERT_TRUE(until([&] { return disk->waiting == 1; }));
  auto flush = s->start(s->store().flush(soon()));
  s->statistics();  // it has begun
  disk->erases_to_fail = 1;
  disk->closed = false;
  flush.get(soon());
  EXPECT_EQ(entries(*disk), 1u);
  EXPECT_EQ(disk->erases, 2u);
}

TEST_F(StoreDisk, ConcurrentLoadsShareOneRead) {
  open()->put({.row = "a", .number = 7, .bytes = MiB, .durable = true});
  auto s = open();
  disk->closed = true;
  std::vector<fabric::Future<std::optional<ObjectStore::Loaded>>> loads;
  for (int i = 0; i < 20; ++i) loads.push_back(s->start(s->store().load({}, "a", "c", {}, soon())));
  EXPECT_EQ(code_of([&] { s->load("a", "c", {}, base::Deadline(10ms)); }), Errc::timeout);
  disk->closed = false;
  for (auto& load : loads) {
    const auto found = load.get(soon());
    ASSERT_TRUE(found);
    EXPECT_TRUE(is_filled_with(found->object.blob->bytes(), 7));
  }
  EXPECT_EQ(disk->gets, 1u);
  EXPECT_EQ(s->statistics().recalls, 1u);
}

TEST_F(StoreDisk, MemoryForWhatWasFoundIsMadeBeforeItIsAskedFor) {
  constexpr std::uint64_t limit = 32 * MiB, segment = 2 * MiB;
  EXPECT_EQ(open(limit)->statistics().segment_bytes, 0u) << "nothing was found";
  const auto put = [&](std::uint64_t from, std::uint64_t to) {
    auto s = open(limit);
    for (auto i = from; i < to; ++i)
      s->put({.row = numbered("r", i), .number = i, .bytes = 256 * KiB, .durable = true});
  };
  put(0, 12);
  auto s = open(limit);
  EXPECT_TRUE(s->until([](const auto& now) { return now.segment_bytes == 2 * segment; }));
  EXPECT_EQ(s->statistics().memory_used, 0u);
  EXPECT_EQ(disk->gets, 0u);
  for (std::uint64_t i = 0; i < 12; ++i)
    EXPECT_TRUE(is_filled_with(s->load(numbered("r", i))->object.blob->bytes(), i));
  EXPECT_EQ(s->statistics().segment_bytes, 2 * segment);
  s.reset();
  put(12, 80);
  s = open(limit);
  EXPECT_TRUE(s->until([](const auto& now) { return now.segment_bytes == max_empty_segments * segment; }));
  for (std::uint64_t i = 0; i < 80; ++i)
    EXPECT_TRUE(is_filled_with(s->load(numbered("r", i))->object.blob->bytes(), i));
}

TEST_F(StoreDisk, MemoryIsMadeAheadOfThoseWhoAsk) {
  constexpr std::uint64_t limit = 32 * MiB, segment = 2 * MiB;
  StoreOptions options;
  options.memory_bytes = limit;
  options.memory_ahead = 0.25;
  StoreOnEngine s(options);
  const auto mapped = [&](std::uint64_t segments) {
    return s.until([&](const auto& now) { return now.segment_bytes == segments * segment; });
  };
  EXPECT_TRUE(mapped(4)) << "from the start";
  const auto many = s.run(s.store().reserve_all(std::vector<std::uint64_t>(8, 512 * KiB), soon()));
  const auto one = s.run(s.store().reserve(512 * KiB, soon()));
  EXPECT_TRUE(mapped(6)) << "in place of what was taken";
}

TEST_F(StoreDisk, ARecallWaitsForMemoryAndSaysSo) {
  open()->put({.row = "a", .number = 7, .bytes = MiB, .durable = true});
  auto s = open(2 * MiB);
  auto arriving = s->run(s->store().reserve(2 * MiB, soon()));
  EXPECT_EQ(code_of([&] { s->load("a", "c", {}, base::Deadline(20ms)); }), Errc::pool_full);
  EXPECT_EQ(s->statistics().waiting, 0u) << "nobody wants it any more";
  auto load = s->start(s->store().load({}, "a", "c", {}, soon()));
  ASSERT_TRUE(s->until([](const auto& now) { return now.waiting == 1; }));
  arriving.reset();
  EXPECT_TRUE(is_filled_with(load.get(soon())->object.blob->bytes(), 7));
}

TEST_F(StoreDisk, ADropWhileTheObjectIsRecalled) {
  open()->put({.row = "a", .number = 7, .bytes = MiB, .durable = true});
  auto s = open(2 * MiB);
  // While it is read: whoever had asked before gets it.
  disk->closed = true;
  auto load = s->start(s->store().load({}, "a", "c", {}, soon()));
  ASSERT_TRUE(until([&] { return disk->waiting == 1; }));
  auto drop = s->start(s->store().drop({}, "a", "c", {}, true, soon()));
  disk->closed = false;
  EXPECT_TRUE(drop.get(soon()));
  auto found = load.get(soon());
  EXPECT_TRUE(!found || is_filled_with(found->object.blob->bytes(), 7));
  found.reset();
  EXPECT_FALSE(s->load("a"));
  EXPECT_EQ(entries(*disk), 0u);
  // While it waits for memory: then it is gone, and what was put instead is found.
  s->put({.row = "b", .number = 1, .bytes = MiB, .durable = true});
  auto arriving = s->run(s->store().reserve(2 * MiB, soon()));
  ASSERT_FALSE(s->in_memory("b"));
  auto gone = s->start(s->store().load({}, "b", "c", {}, soon()));
  ASSERT_TRUE(s->until([](const auto& now) { return now.waiting == 1; }));
  EXPECT_TRUE(s->drop("b", "c", {}, true));
  arriving.reset();
  EXPECT_FALSE(gone.get(soon()));
  EXPECT_EQ(s->statistics().disk_error, "");
}

TEST_F(StoreDisk, OtherBytesOnDiskAreNoticedThoughTheTierDoesNot) {
  open()->put({.row = "row", .number = 7, .bytes = 64 * KiB, .durable = true});
  auto s = open();
  disk->entries.begin()->second.data[1000] ^= std::byte{1};
  const auto [code, why] = error_of([&] { s->load("row"); });
  EXPECT_EQ(code, Errc::protocol);
  EXPECT_NE(why.find("row/c in fake/fast"), std::string::npos) << why;
  EXPECT_TRUE(s->until([](const auto& now) { return now.memory_used == 0; }));  // the reading thread lets go of it
}

TEST_F(StoreDisk, AFullFirstTierIsPassedOver) {
  disk->limit = 100 * KiB;
  auto s = open_two(0);
  for (std::uint64_t i = 0; i < 4; ++i)
    s->put({.row = numbered("r", i), .number = i, .bytes = 60 * KiB, .durable = true});
  EXPECT_EQ(entries(*disk), 1u);
  EXPECT_EQ(entries(*slow), 3u);
  s.reset();
  s = open_two(0);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(is_filled_with(s->load(numbered("r", i))->object.blob->bytes(), i));
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(s->drop(numbered("r", i), "c", {}, true));
  EXPECT_EQ(entries(*disk) + entries(*slow), 0u);
}

TEST_F(StoreDisk, TheFirstTiersLeastRecentlyUsedMoveDown) {
  auto s = open_two(1 * MiB);
  const auto name = [](std::uint64_t i) { return numbered("r", i); };
  for (std::uint64_t i = 0; i < 20; ++i) {
    s->put({.row = name(i), .number = i, .bytes = 100 * KiB, .durable = true});
    ASSERT_TRUE(s->load(name(0)));  // in use all the time
  }
  ASSERT_TRUE(until([&] {  // a move is counted when it has ended
    if (s->statistics().demotions <= 8 || entries(*disk) + entries(*slow) != 20) return false;
    std::lock_guard lock(disk->mutex);
    std::uint64_t bytes = 0;
    for (const auto& [key, value] : disk->entries) bytes += value.data.size();
    return bytes <= 900 * KiB;
  }));
  {
    std::lock_guard lock(disk->mutex);
    EXPECT_TRUE(std::any_of(disk->entries.begin(), disk->entries.end(),
                            [&](const auto& e) { return e.first.find(name(0)) != std::string::npos; }));
    // As after a crash in the middle of a move: one is in both.
    std::lock_guard other(slow->mutex);
    slow->entries.insert(*disk->entries.begin());
  }
  s.reset();
  s = open_two(1 * MiB);
  EXPECT_EQ(entries(*disk) + entries(*slow), 20u) << "the second copy is removed";
  EXPECT_EQ(s->statistics().objects, 20u);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_TRUE(is_filled_with(s->load(name(i))->object.blob->bytes(), i));
}

TEST_F(StoreDisk, TheVersionThatCountsIsTheNewestOfAllTiers) {
  // A newer version in the slow tier, because the fast one was full; the older one could not be removed before the crash.
  disk->limit = 100 * KiB;
  auto s = open_two(0);
  s->put({.row = "a", .number = 1, .bytes = 90 * KiB, .version = 1, .durable = true});
  const auto older = disk->entries;
  s->put({.row = "a", .number = 2, .bytes = 90 * KiB, .version = 2, .durable = true});
  s->flush();
  s.reset();
  disk->entries.insert(older.begin(), older.end());
  s = open_two(0);
  EXPECT_EQ(s->statistics().objects, 1u);
  EXPECT_TRUE(is_filled_with(s->load("a")->object.blob->bytes(), 2));
  s->flush();
  EXPECT_EQ(entries(*disk), 0u);
}

TEST_F(StoreDisk, ClosingEndsThoseWhoWait) {
  auto s = open(1 * MiB);
  auto lease = s->run(s->store().reserve(1 * MiB, soon()));
  auto waiting = s->start(s->store().reserve(1 * MiB, soon()));
  ASSERT_TRUE(s->until([](const auto& now) { return now.waiting == 1; }));
  auto progress = s->shared_progress();
  s.reset();
  EXPECT_EQ(code_of([&] { waiting.get(soon()); }), Errc::cancelled);
  lease.reset();

  // And those who wait for the disk, which goes on for a while.
  open()->put({.row = "old", .durable = true});
  s = open();
  progress = s->shared_progress();
  disk->closed = true;
  std::vector<fabric::Future<void>> waits;
  for (std::uint64_t i = 0; i < 4; ++i)
    waits.push_back(s->start(StoreOnEngine::put_task(s->store(), {.row = numbered("r", i), .durable = true})));
  waits.push_back(s->start(s->store().flush(base::Deadline::never())));
  auto load = s->start(s->store().load({}, "old", "c", {}, base::Deadline::never()));
  ASSERT_TRUE(until([&] { return disk->waiting > 1; }));
  std::thread opens([this] {
    until([this] { return closing.load(); });
    disk->closed = false;
  });
  closing = true;
  s.reset();
  opens.join();
  for (auto& wait : waits) EXPECT_EQ(code_of([&] { wait.get(soon()); }), Errc::cancelled);
  EXPECT_EQ(code_of([&] { load.get(soon()); }), Errc::cancelled);
}

// ------------------------------------------------------------------------------------------------------- random orders

struct KeyModel {
  std::uint64_t version = 0;                     // the newest ever
  std::map<std::uint64_t, std::uint64_t> there;  // version -> number
};

// Changes one key, one thing after the other, and looks at what it finds. The disk may be full at times.
Task<void> live(StoreOnEngine& s, std::string row, std::uint64_t seed, int steps, KeyModel& model) {
  auto random = std::make_unique<StoreRandom>(seed);
  auto& store = s.store();
  for (int i = 0; i < steps; ++i) {
    const auto what = random->from(1, 100);
    if (what <= 45) {
      StoreOnEngine::Put put;
      put.row = row;
      put.number = random->from(1, ~std::uint64_t{0} >> 1);
      put.bytes = random->chance(30) ? random->from(40 * KiB, 120 * KiB) : random->from(0, 3000);
      put.version = ++model.version;
      put.durable = random->chance(40);
      put.after_disk = put.durable && random->chance(50);
      put.keep_older = random->chance(40);
      bool there = true;
      try {
        co_await StoreOnEngine::put_task(store, put);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::system) << error.what();
        there = !put.after_disk;
      }
      if (there && !put.keep_older) model.there.clear();
      if (there) model.there[put.version] = put.number;
    } else if (what <= 65) {
      std::optional<std::uint64_t> version;
      if (random->chance(40)) version = random->from(1, model.version + 1);
      const bool durable = random->chance(30);
      const bool expected = version ? model.there.contains(*version) : !model.there.empty();
      bool had = expected;
      try {
        had = co_await store.drop({}, row, "c", version, durable, soon());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::system) << error.what();
      }
      EXPECT_EQ(had, expected) << row;
      if (version) model.there.erase(*version);
      else model.there.clear();
    } else {
      std::optional<std::uint64_t> version;
      if (random->chance(40)) version = random->from(1, model.version + 1);
      const auto found = co_await store.load({}, row, "c", version, soon());
      const auto expected = version               ? model.there.find(*version)
                            : model.there.empty() ? model.there.end()
                                                  : std::prev(model.there.end());
      EXPECT_EQ(found.has_value(), expected != model.there.end()) << row;
      if (found && expected != model.there.end()) {
        EXPECT_EQ(found->object.version, expected->first);
        EXPECT_TRUE(is_filled_with(found->object.blob->bytes(), expected->second))
            << row << " version " << expected->first;
      }
    }
  }
}

TEST_F(StoreDisk, RandomLivesOfManyKeysAgreeWithAModel) {
  constexpr int keys = 12;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(numbered(numbered("PENSTOCK_TEST_SEED=", store_test_seed()) + ", life ", seed));
    disk = std::make_shared<FakeDisk>();
    auto s = open(512 * KiB);
    std::vector<KeyModel> models(keys);
    std::vector<fabric::Future<void>> lives;
    for (std::uint64_t k = 0; k < keys; ++k)
      lives.push_back(s->start(live(*s, numbered("key", k), 1000 * seed + k, 120, models[k])));
    StoreRandom weather(seed);
    for (auto& life : lives) {
      const auto deadline = soon();
      while (!life.done() && !deadline.passed()) {
        disk->full = weather.chance(20);
        std::this_thread::yield();
      }
    }
    disk->full = false;
    for (auto& life : lives) life.get(soon());
    s->flush();
    const auto statistics = s->statistics();
    std::size_t versions = 0;
    for (const auto& model : models) versions += model.there.size();
    ASSERT_EQ(entries(*disk), versions) << "on disk is what should be, and nothing else";
    ASSERT_EQ(statistics.unwritten_bytes, 0u);
    ASSERT_LE(statistics.memory_peak, 512 * KiB);
    s.reset();
    s = open();
    for (std::uint64_t k = 0; k < keys; ++k) {
      ASSERT_EQ(s->load(numbered("key", k)).has_value(), !models[k].there.empty());
      for (const auto& [version, number] : models[k].there) {
        const auto found = s->load(numbered("key", k), "c", version);
        ASSERT_TRUE(found);
        ASSERT_TRUE(is_filled_with(found->object.blob->bytes(), number));
      }
    }
    if (HasFailure()) return;
  }
}

// Several change and read the same key at once: what is found is always some put's bytes, whole.
Task<void> race(StoreOnEngine& s, std::uint64_t seed, std::uint64_t& version) {
  auto random = std::make_unique<StoreRandom>(seed);
  auto& store = s.store();
  for (int i = 0; i < 80; ++i) {
    const auto what = random->from(1, 100);
    if (what <= 40) {
      StoreOnEngine::Put put;
      put.row = "contested";
      put.version = ++version;
      put.number = put.version;
      put.bytes = random->from(1, 60 * KiB);
      put.durable = random->chance(50);
      put.after_disk = put.durable && random->chance(50);
      put.keep_older = random->chance(20);
      co_await StoreOnEngine::put_task(store, put);
    } else if (what <= 60) {
      co_await store.drop({}, "contested", "c", {}, random->chance(30), soon());
    } else {
      const auto found = co_await store.load({}, "contested", "c", {}, soon());
      if (found) {
        EXPECT_TRUE(is_filled_with(found->object.blob->bytes(), found->object.version));
      }
    }
  }
}

TEST_F(StoreDisk, RacesForOneKeyLeaveTableAndDiskAlike) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(numbered(numbered("PENSTOCK_TEST_SEED=", store_test_seed()) + ", race ", seed));
    disk = std::make_shared<FakeDisk>();
    auto s = open(256 * KiB);
    std::uint64_t version = 0;
    std::vector<fabric::Future<void>> racers;
    for (std::uint64_t r = 0; r < 4; ++r) racers.push_back(s->start(race(*s, 5000 + 10 * seed + r, version)));
    for (auto& racer : racers) racer.get(soon());
    s->flush();
    const auto before = s->load("contested");
    const auto on_disk = entries(*disk);
    s->drop("contested", "c", {}, false);
    s->flush();
    EXPECT_EQ(entries(*disk), 0u);
    EXPECT_EQ(before.has_value(), on_disk > 0);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace penstock::pool
