// The store over its usual tier, in a folder of the test's own. What needs a disk that fails: store_disk_test.cpp.
#include "pool/store/object_store.hpp"

#include <deque>
#include <fstream>

#include "pool/store/store_test_support.hpp"

namespace penstock::pool {
namespace {

TEST(ObjectStore, KeepsObjectsInMemoryWithoutATier) {
  StoreOnEngine s(small_store(""));
  s.put({.row = "a", .number = 1});
  s.put({.row = "large", .number = 2, .bytes = MiB});
  const auto small = s.load("a");
  ASSERT_TRUE(small);
  EXPECT_TRUE(is_filled_with(small->object.blob->bytes(), 1));
  EXPECT_FALSE(small->object.blob->shareable());
  EXPECT_TRUE(s.load("large")->object.blob->shareable());
  EXPECT_FALSE(s.load("b"));
  const auto statistics = s.statistics();
  EXPECT_EQ(statistics.objects, 2u);
  EXPECT_EQ(statistics.bytes, 100 + MiB);
  EXPECT_EQ(statistics.memory_used, ObjectMemory::charge_of(100) + ObjectMemory::charge_of(MiB));
  EXPECT_EQ(code_of([&] { s.put({.row = "d", .durable = true}); }), Errc::unsupported);
  EXPECT_TRUE(s.drop("a"));
  EXPECT_FALSE(s.drop("a"));
  s.flush();
}

TEST(ObjectStore, RefusesWhatItCannotKeep) {
  StoreOnEngine s(small_store(""));
  EXPECT_EQ(code_of([&] { s.put({.row = "a", .bytes = 5 * MiB}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([&] { s.put({.row = std::string(max_key_bytes + 1, 'x')}); }), Errc::invalid_argument);
  EXPECT_EQ(s.statistics().memory_used, 0u);
}

TEST(ObjectStore, DurableObjectsAreThereAfterARestart) {
  TestFolder folder;
  {
    StoreOnEngine s(small_store(folder / "tier"));
    s.put({.row = "small", .number = 1, .version = 3, .durable = true});
    s.put({.row = "large", .number = 2, .bytes = MiB, .durable = true});
    s.put({.row = "", .column = "", .number = 3, .bytes = 0, .after_disk = true});
    EXPECT_TRUE(s.on_disk("small") && s.on_disk("large") && s.on_disk("", ""));
  }
  StoreOnEngine s(small_store(folder / "tier"));
  EXPECT_FALSE(s.in_memory("small"));
  for (const auto& [row, column, number] : {std::tuple{"small", "c", 1u}, {"large", "c", 2u}, {"", "", 3u}}) {
    const auto found = s.load(row, column);
    ASSERT_TRUE(found) << row;
    EXPECT_TRUE(is_filled_with(found->object.blob->bytes(), number));
    EXPECT_EQ(found->object.put_us, number);
    EXPECT_EQ(found->object.tag, number);
    ASSERT_TRUE(found->object.metadata);
    EXPECT_EQ(*found->object.metadata, numbered("number ", number));
    EXPECT_EQ(found->object.checksum, storage::checksum(found->object.blob->bytes()));
  }
  EXPECT_EQ(s.load("small")->object.version, 3u);
  EXPECT_EQ(s.statistics().recalls, 3u);
}

TEST(ObjectStore, WritesBehindAndFlushes) {
  TestFolder folder;
  {
    StoreOnEngine s(small_store(folder / "tier"));
    for (std::uint64_t i = 0; i < 200; ++i) s.put({.row = numbered("r", i), .number = i, .bytes = 10 * i});
    s.flush();
    EXPECT_EQ(s.statistics().unwritten_bytes, 0u);
    EXPECT_TRUE(s.on_disk("r199"));
  }
  StoreOnEngine s(small_store(folder / "tier"));
  EXPECT_EQ(s.statistics().objects, 200u);
  EXPECT_TRUE(is_filled_with(s.load("r199")->object.blob->bytes(), 199));
}

TEST(ObjectStore, EvictsTheLeastRecentlyUsedFirst) {
  TestFolder folder;
  auto options = small_store(folder / "tier", 4 * MiB);
  options.high_watermark = 0.75;
  options.low_watermark = 0.5;
  StoreOnEngine s(options);
  const auto name = [](int i) { return numbered("r", static_cast<std::uint64_t>(i)); };
  for (int i = 0; i < 12; ++i)
    s.put({.row = name(i), .number = static_cast<std::uint64_t>(i), .bytes = 256 * KiB, .durable = true});
  for (int i : {0, 3, 5}) ASSERT_TRUE(s.load(name(i)));  // used again: 1 2 4 6 7 8 9 10 11 0 3 5
  EXPECT_EQ(s.statistics().evictions, 0u);
  s.put({.row = "one more", .bytes = 256 * KiB, .durable = true});
  // 3 MiB and the new one are above 3 MiB: down to 2 MiB with it.
  EXPECT_EQ(s.statistics().evictions, 5u);
  for (int i : {1, 2, 4, 6, 7}) EXPECT_FALSE(s.in_memory(name(i))) << i;
  for (int i : {8, 9, 10, 11, 0, 3, 5}) EXPECT_TRUE(s.in_memory(name(i))) << i;
  EXPECT_TRUE(is_filled_with(s.load(name(1))->object.blob->bytes(), 1));
}

TEST(ObjectStore, AReservationWaitsUntilALeaseEnds) {
  TestFolder folder;
  StoreOnEngine s(small_store(folder / "tier", 4 * MiB));
  s.put({.row = "a", .number = 1, .bytes = 3 * MiB, .durable = true});
  auto lease = s.load("a");
  const auto [code, why] = error_of([&] { s.put({.row = "b", .bytes = 2 * MiB, .deadline = base::Deadline(30ms)}); });
  EXPECT_EQ(code, Errc::pool_full);
  EXPECT_NE(why.find("leased"), std::string::npos) << why;
  EXPECT_NE(why.find("3MiB of 4MiB are in use"), std::string::npos) << why;

  auto waiting = s.start(s.store().reserve(2 * MiB, soon()));
  ASSERT_TRUE(s.until([](const auto& now) { return now.waiting == 1; }));
  EXPECT_FALSE(waiting.done());
  EXPECT_TRUE(is_filled_with(lease->object.blob->bytes(), 1));
  lease.reset();
  EXPECT_TRUE(waiting.get(soon()));
  EXPECT_FALSE(s.in_memory("a"));
  EXPECT_TRUE(s.on_disk("a"));
}

TEST(ObjectStore, WithoutATierAFullMemorySaysSo) {
  StoreOnEngine s(small_store("", 1 * MiB));
  s.put({.row = "a", .bytes = 900 * KiB});
  const auto [code, why] = error_of([&] { s.put({.row = "b", .bytes = 200 * KiB, .deadline = base::Deadline(10ms)}); });
  EXPECT_EQ(code, Errc::pool_full);
  EXPECT_NE(why.find("no tier"), std::string::npos) << why;
  auto waiting = s.start(s.store().reserve(200 * KiB, soon()));
  ASSERT_TRUE(s.until([](const auto& now) { return now.waiting == 1; }));
  EXPECT_TRUE(s.drop("a"));
  EXPECT_TRUE(waiting.get(soon()));
}

TEST(ObjectStore, ReservationsAreServedInTheirOrder) {
  StoreOnEngine s(small_store("", 1 * MiB));
  s.put({.row = "a", .bytes = 600 * KiB});
  auto large = s.start(s.store().reserve(800 * KiB, soon()));
  auto small = s.start(s.store().reserve(1 * KiB, soon()));
  auto late = s.start(s.store().reserve(900 * KiB, base::Deadline(20ms)));
  EXPECT_THROW(late.get(soon()), Error);
  EXPECT_FALSE(large.done());
  EXPECT_FALSE(small.done()) << "it fits, but came later";
  s.drop("a");
  EXPECT_EQ(large.get(soon())->size(), 800 * KiB);
  EXPECT_EQ(small.get(soon())->size(), 1 * KiB);
}

// By what a server notes of others, room may come for those who wait.
TEST(ObjectStore, ItsOwnBooksDoNotWaitBehindOthers) {
  StoreOnEngine s(small_store("", 4 * MiB));
  auto used = s.run(s.store().reserve(3 * MiB, soon()));
  auto large = s.start(s.store().reserve(2 * MiB, soon()));
  ASSERT_TRUE(s.until([](const auto& now) { return now.waiting == 1; }));
  EXPECT_TRUE(s.run(s.store().reserve(300, soon(), true)));
  EXPECT_THROW(s.run(s.store().reserve(300, base::Deadline(20ms))), Error) << "others have their turn";
  EXPECT_THROW(s.run(s.store().reserve(64 * KiB, base::Deadline(20ms), true)), Error) << "nor is this small";
  auto rest = s.run(s.store().reserve_all({0}, soon(), true));
  EXPECT_FALSE(large.done());
  used.reset();
  EXPECT_TRUE(large.get(soon()));
}

TEST(ObjectStore, OwnBooksAreTheFirstToGetWhatComesFree) {
  StoreOnEngine s(small_store("", 1 * MiB));
  std::vector<std::uint64_t> sizes(1 * MiB / ObjectStore::charge_of(1000), 1000);
  auto all = s.run(s.store().reserve_all(std::move(sizes), soon()));
  // They have a little beside the memory, so that what makes room can be written when it is full.
  auto beside = s.run(s.store().reserve_all({30'000, 30'000}, soon(), true));
  auto others = s.start(s.store().reserve(30'000, soon()));
  auto own = s.start(s.store().reserve(30'000, soon(), true));
  ASSERT_TRUE(s.until([](const auto& now) { return now.waiting == 2; }));
  all.resize(all.size() - 29);
  EXPECT_TRUE(own.get(soon()));
  EXPECT_FALSE(others.done());
  all.clear();
  EXPECT_TRUE(others.get(soon()));
}

TEST(ObjectStore, SeveralAreReservedTogetherOrNotAtAll) {
  StoreOnEngine s(small_store("", 1 * MiB));
  s.put({.row = "a", .bytes = 400 * KiB});
  std::vector<std::uint64_t> sizes(4, 200 * KiB);
  EXPECT_EQ(code_of([&] { s.run(s.store().reserve_all(sizes, base::Deadline(10ms))); }), Errc::pool_full);
  EXPECT_EQ(s.statistics().memory_used, 400 * KiB);
  sizes.pop_back();
  EXPECT_EQ(s.run(s.store().reserve_all(sizes, soon())).size(), 3u);
}

// The first would fit in what is free, and so would the second, but not both: memory must grow for them.
TEST(ObjectStore, MemoryGrowsForSeveralThatFitOneByOne) {
  StoreOnEngine s(small_store("", 512 * MiB));  // in segments of 32 MiB
  const auto most = s.run(s.store().reserve(27 * MiB, soon()));
  std::vector<std::uint64_t> sizes(2, 4 * MiB);
  EXPECT_EQ(s.run(s.store().reserve_all(sizes, soon())).size(), 2u);
}

TEST(ObjectStore, AWaiterThatGoesAwayLeavesTheQueue) {
  StoreOnEngine s(small_store("", 1 * MiB));
  s.put({.row = "a", .bytes = 600 * KiB});
  // Started and dropped on the engine, as a call is whose caller gives up.
  s.on_engine([&] {
    auto task = s.store().reserve(800 * KiB, soon());
    task.begin();
    EXPECT_EQ(s.store().statistics().waiting, 1u);
  });
  EXPECT_EQ(s.statistics().waiting, 0u);
  EXPECT_TRUE(s.run(s.store().reserve(300 * KiB, soon())));
}

TEST(ObjectStore, TenTimesItsMemoryGoesThrough) {
  TestFolder folder;
  constexpr std::uint64_t limit = 8 * MiB;
  StoreOnEngine s(small_store(folder / "tier", limit));
  StoreRandom random(3);
  SCOPED_TRACE(numbered("PENSTOCK_TEST_SEED=", store_test_seed()));
  std::vector<std::uint64_t> sizes;
  std::uint64_t total = 0;
  while (total < 10 * limit) {
    sizes.push_back(random.chance(50) ? random.from(1, 1000) : random.from(1, 2 * MiB));
    total += sizes.back();
  }
  // Several at a time, so that they wait for each other's write-behind.
  std::deque<fabric::Future<void>> running;
  for (std::uint64_t i = 0; i < sizes.size(); ++i) {
    StoreOnEngine::Put put{.row = numbered("r", i), .number = i, .bytes = sizes[i]};
    running.push_back(s.start(StoreOnEngine::put_task(s.store(), put)));
    if (running.size() < 4) continue;
    running.front().get(soon());
    running.pop_front();
  }
  for (auto& put : running) put.get(soon());
  for (std::uint64_t i = 0; i < sizes.size(); ++i) {
    const auto found = s.load(numbered("r", i));
    ASSERT_TRUE(found) << i;
    ASSERT_TRUE(is_filled_with(found->object.blob->bytes(), i)) << i;
  }
  const auto statistics = s.statistics();
  EXPECT_EQ(statistics.bytes, total);
  EXPECT_LE(statistics.memory_peak, limit);
  EXPECT_LE(statistics.segment_bytes, limit + 1 * MiB);
  EXPECT_GT(statistics.evictions, 0u);
  EXPECT_EQ(statistics.disk_error, "");
}

TEST(ObjectStore, VersionsAreKeptOrReplacedAlsoOnDisk) {
  TestFolder folder;
  {
    StoreOnEngine s(small_store(folder / "tier"));
    for (std::uint64_t v = 1; v <= 3; ++v)
      s.put({.row = "kept", .number = v, .version = v, .durable = v == 2, .keep_older = true});
    for (std::uint64_t v = 1; v <= 3; ++v) s.put({.row = "replaced", .number = v, .version = v, .durable = true});
    s.put({.row = "replaced", .number = 99, .version = 2, .durable = true});  // not newer: skipped
    for (std::uint64_t v = 1; v <= 3; ++v)
      s.put({.row = "collapsed", .number = v, .version = v, .durable = true, .keep_older = v < 3});
    EXPECT_TRUE(s.drop("kept", "c", 2));
    s.flush();
  }
  {
    auto tier = storage::open_tier(small_store(folder / "tier").tiers[0]);
    std::size_t entries = 0;
    tier->scan("", [&](const auto&) { return ++entries, true; });
    EXPECT_EQ(entries, 5u) << "kept 1 and 3, replaced 3, collapsed 3, the version floor";
  }
  StoreOnEngine s(small_store(folder / "tier"));
  EXPECT_TRUE(is_filled_with(s.load("kept")->object.blob->bytes(), 3));
  EXPECT_TRUE(is_filled_with(s.load("kept", "c", 1)->object.blob->bytes(), 1));
  EXPECT_FALSE(s.load("kept", "c", 2));
  EXPECT_EQ(s.load("replaced")->object.version, 3u);
  EXPECT_TRUE(is_filled_with(s.load("replaced")->object.blob->bytes(), 3));
  EXPECT_FALSE(s.load("collapsed", "c", 1));
  EXPECT_TRUE(s.drop("kept"));
  EXPECT_FALSE(s.load("kept", "c", 1));
}

// Also those of objects that only a tier holds. What a tier holds is not refused.
TEST(ObjectStore, MetadataAreBoundedAndCountAfterARestart) {
  TestFolder folder;
  constexpr std::uint64_t objects = 32, each = 64 << 10, taken = each + SharedTexts::overhead;
  const std::string another(1000, 'x');
  const auto row = [](std::uint64_t i) { return numbered("row", i); };
  const auto put = [](ObjectStore& store, std::string row, std::uint64_t i) -> fabric::Task<void> {
    auto blob = co_await store.reserve(100'000, soon());
    fill_with(blob->writable(), i);
    std::vector<ObjectStore::Write> writes(1);
    writes[0] = StoreOnEngine::write_of({row, "c", i, 100'000}, std::move(blob));
    writes[0].object.metadata = store.keep_metadata(std::string(each, static_cast<char>('a' + i)));
    co_await store.put(std::move(writes), true, false, soon());
  };
  const auto refused = [](StoreOnEngine& run, std::string_view text) {
    Errc code = Errc::ok;
    run.on_engine([&] { code = code_of([&] { (void)run.store().keep_metadata(text); }); });
    return code == Errc::pool_full;
  };
  {
    StoreOnEngine run(small_store(folder / "tier", 2 * objects * taken));
    for (std::uint64_t i = 0; i < objects; ++i) run.run(put(run.store(), row(i), i));
    EXPECT_EQ(run.statistics().metadata_bytes, objects * taken);
    EXPECT_TRUE(refused(run, another));
    EXPECT_FALSE(refused(run, "a short one"));
    EXPECT_FALSE(refused(run, std::string(each, 'a'))) << "an object has it";
    EXPECT_TRUE(run.drop(row(0), "c", {}, true));
    EXPECT_TRUE(run.until([&](const auto& now) { return now.metadata_bytes == (objects - 1) * taken; }));
    EXPECT_FALSE(refused(run, another));
  }
  StoreOnEngine run(small_store(folder / "tier", objects * taken));
  EXPECT_EQ(run.statistics().metadata_bytes, (objects - 1) * taken);
  EXPECT_TRUE(refused(run, another) && refused(run, "a short one"));
  for (std::uint64_t i = 1; i < objects; ++i) {
    const auto found = run.load(row(i));
    ASSERT_TRUE(found && is_filled_with(found->object.blob->bytes(), i)) << i;
    EXPECT_EQ(*found->object.metadata, std::string(each, static_cast<char>('a' + i)));
  }
}

TEST(ObjectStore, VersionsGoOnAfterARestart) {
  TestFolder folder;
  {
    StoreOnEngine s(small_store(folder / "tier"));
    EXPECT_EQ(s.store().first_version(), 1u);
    s.put({.row = "a", .version = 7, .durable = true});
    s.put({.row = "b", .version = 9, .durable = true});
    EXPECT_TRUE(s.drop("a", "c", {}, true));
    EXPECT_FALSE(s.load("a"));
  }
  StoreOnEngine s(small_store(folder / "tier"));
  EXPECT_EQ(s.store().first_version(), 8u);
  EXPECT_FALSE(s.load("a"));
  EXPECT_EQ(s.load("b")->object.version, 9u);
  EXPECT_EQ(s.statistics().objects, 1u) << "the floor is no object";
}

TEST(ObjectStore, ADroppedObjectCountsWhileSomebodyUsesIt) {
  TestFolder folder;
  StoreOnEngine s(small_store(folder / "tier"));
  s.put({.row = "a", .number = 5, .bytes = MiB, .durable = true});
  auto lease = s.load("a");
  EXPECT_TRUE(s.drop("a", "c", {}, true));
  EXPECT_FALSE(s.load("a"));
  EXPECT_TRUE(is_filled_with(lease->object.blob->bytes(), 5));
  EXPECT_EQ(s.statistics().memory_used, MiB);
  lease.reset();
  EXPECT_EQ(s.statistics().memory_used, 0u);
}

TEST(ObjectStore, BytesThatRotOnDiskAreFound) {
  TestFolder folder;
  const auto path = folder / "tier";
  {
    StoreOnEngine s(small_store(path));
    s.put({.row = "a", .number = 5, .bytes = MiB, .durable = true});
    s.put({.row = "b", .number = 6, .bytes = MiB, .durable = true});
  }
  // A byte in the middle of one of the data files.
  bool damaged = false;
  for (const auto& file : std::filesystem::recursive_directory_iterator(path)) {
    if (damaged || !file.is_regular_file() || file.file_size() < MiB || file.file_size() > MiB + 64 * KiB) continue;
    std::fstream stream(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(MiB / 2);
    const char byte = static_cast<char>(stream.get() ^ 0x10);
    stream.seekp(MiB / 2);
    stream.put(byte);
    damaged = true;
  }
  ASSERT_TRUE(damaged);
  StoreOnEngine s(small_store(path));
  int wrong = 0;
  for (const std::string row : {"a", "b"}) {
    const auto [code, message] =
        error_of([&] { ASSERT_TRUE(is_filled_with(s.load(row)->object.blob->bytes(), row == "a" ? 5 : 6)); });
    if (code == Errc::ok) continue;
    EXPECT_EQ(code, Errc::protocol) << message;
    EXPECT_NE(message.find(row + "/c in " + path), std::string::npos) << message;
    ++wrong;
  }
  EXPECT_EQ(wrong, 1);
  EXPECT_LE(s.statistics().memory_used, MiB);
}

TEST(ObjectStore, BatchesAreOneWrite) {
  TestFolder folder;
  StoreOnEngine s(small_store(folder / "tier"));
  std::vector<ObjectStore::Write> writes;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    auto blob = s.run(s.store().reserve(100, soon()));
    fill_with(blob->writable(), i);
    writes.push_back(StoreOnEngine::write_of({.row = "r", .column = std::to_string(i), .number = i}, std::move(blob)));
  }
  s.run(s.store().put(std::move(writes), true, false, soon()));
  EXPECT_EQ(s.statistics().write_groups, 1u);
  EXPECT_TRUE(s.on_disk("r", "999"));
  // A batch that names a key twice.
  std::vector<ObjectStore::Write> twice;
  for (std::uint64_t v = 1; v <= 2; ++v) {
    auto blob = s.run(s.store().reserve(100, soon()));
    fill_with(blob->writable(), v);
    twice.push_back(StoreOnEngine::write_of({.row = "t", .number = v, .version = v}, std::move(blob)));
  }
  s.run(s.store().put(std::move(twice), true, true, soon()));
  EXPECT_TRUE(is_filled_with(s.load("t")->object.blob->bytes(), 2));
}

}  // namespace
}  // namespace penstock::pool
