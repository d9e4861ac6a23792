// The conformance suite of tiers: every kind that is built in passes every case. A new kind adds its name to tier_kinds().
#include "storage/tier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "base/test_support.hpp"
#include "storage/file.hpp"

namespace penstock::storage {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t size, std::uint64_t seed) {
  Bytes out(size);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < size; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(out.data() + i, &word, std::min<std::size_t>(8, size - i));
  }
  return out;
}

class TierTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    options_.kind = GetParam();
    options_.path = folder_ / "tier";
    open();
  }

  void open() { tier_ = open_tier(options_); }
  void reopen() {
    tier_.reset();
    open();
  }
  void put(std::string_view key, const Bytes& data, std::string_view metadata = "", bool sync = false) {
    const TierWrite write{key, metadata, data, std::nullopt};
    tier_->put({&write, 1}, sync);
  }
  Bytes get(std::string_view key) {
    const auto entry = tier_->find(key);
    if (!entry) throw Error(Errc::not_found, "no entry");
    Bytes out(entry->data_bytes);
    tier_->get(key, out);
    EXPECT_EQ(entry->checksum, checksum(out));
    EXPECT_EQ(entry->key, key);
    return out;
  }
  std::vector<std::string> keys(std::string_view prefix = "") {
    std::vector<std::string> out;
    tier_->scan(prefix, [&](const TierEntry& entry) {
      out.push_back(entry.key);
      return true;
    });
    return out;
  }

  SilentLog silent_;  // cases about damage make tiers warn
  TestFolder folder_;
  TierOptions options_;
  std::unique_ptr<Tier> tier_;
};

TEST_P(TierTest, PutFindGetErase) {
  EXPECT_EQ(tier_->kind(), GetParam());
  const Bytes data = pattern(1000, 1);
  put("key", data, "metadata", true);
  const auto entry = tier_->find("key");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->data_bytes, 1000u);
  EXPECT_EQ(entry->metadata, "metadata");
  EXPECT_EQ(get("key"), data);
  EXPECT_FALSE(tier_->find("other"));
  EXPECT_EQ(code_of([&] { tier_->get("other", {}); }), Errc::not_found);
  Bytes wrong(999);
  EXPECT_EQ(code_of([&] { tier_->get("key", wrong); }), Errc::invalid_argument);
  EXPECT_TRUE(tier_->erase("key", true));
  EXPECT_FALSE(tier_->erase("key", false));
  EXPECT_FALSE(tier_->find("key"));
  EXPECT_EQ(tier_->statistics().objects, 0u);
  EXPECT_EQ(tier_->statistics().bytes, 0u);
}

TEST_P(TierTest, Replace) {
  for (const bool first_synced : {false, true}) {
    for (const bool second_synced : {false, true}) {
      for (const std::size_t first : {10, 5000, 200000}) {
        for (const std::size_t second : {0, 20, 6000, 300000}) {
          put("key", pattern(first, 1), "one", first_synced);
          put("key", pattern(second, 2), "two", second_synced);
          EXPECT_EQ(get("key"), pattern(second, 2));
          EXPECT_EQ(tier_->find("key")->metadata, "two");
          EXPECT_EQ(tier_->statistics().objects, 1u);
          EXPECT_EQ(tier_->statistics().bytes, second);
        }
      }
    }
  }
  reopen();
  EXPECT_EQ(get("key"), pattern(300000, 2));
  EXPECT_EQ(tier_->statistics().objects, 1u);
}

TEST_P(TierTest, BinaryKeys) {
  std::vector<std::string> names = {std::string("\0", 1),
                                    std::string("a\0b", 3),
                                    std::string("a\0", 2),
                                    "a",
                                    "a/b",
                                    "../a",
                                    "a%b",
                                    "a%00b",
                                    "\xff",
                                    "\xff\xff",
                                    ".",
                                    "..",
                                    "/",
                                    "",
                                    " ",
                                    "\n\t",
                                    std::string(4096, 'r') + std::string("\0\0", 2) + std::string(4096, 'c'),
                                    std::string(4096, 'r') + std::string("\0\0", 2) + std::string(4095, 'c') + "d",
                                    std::string(max_key_bytes, '\xfe')};
  for (std::size_t i = 0; i < names.size(); ++i) put(names[i], pattern(100 + i, i), names[i], i % 2 == 0);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(get(names[i]), pattern(100 + i, i));
    auto sorted = names;
    std::sort(sorted.begin(), sorted.end());  // std::string compares unsigned bytes
    EXPECT_EQ(keys(), sorted);
    reopen();
  }
  EXPECT_EQ(code_of([&] { put(std::string(max_key_bytes + 1, 'x'), {}); }), Errc::invalid_argument);
}

TEST_P(TierTest, ScanPrefixOrderAndStop) {
  for (int i = 299; i >= 0; --i) put("row/" + std::to_string(1000 + i), pattern(4, static_cast<std::uint64_t>(i)), "m");
  put("rov", {});
  put("rox", {});
  const auto found = keys("row/");
  ASSERT_EQ(found.size(), 300u);
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
  EXPECT_EQ(keys("row/105").size(), 10u);
  EXPECT_TRUE(keys("s").empty());
  EXPECT_EQ(keys().front(), "rov");
  EXPECT_EQ(keys("\xff").size(), 0u);
  int seen = 0;
  tier_->scan("row/", [&](const TierEntry& entry) {
    EXPECT_EQ(entry.metadata, "m");
    EXPECT_EQ(entry.data_bytes, 4u);
    tier_->erase(entry.key, false);  // a visit may call the tier
    return ++seen < 100;
  });
  EXPECT_EQ(seen, 100);
  EXPECT_EQ(keys("row/").size(), 200u);
}

TEST_P(TierTest, EmptyAndLarge) {
  const std::string metadata(max_metadata_bytes, '\x80');
  put("empty", {}, metadata, true);
  put("large", pattern(32 << 20, 3), "", true);
  EXPECT_EQ(tier_->find("empty")->metadata, metadata);
  EXPECT_EQ(get("empty"), Bytes());
  EXPECT_EQ(get("large"), pattern(32 << 20, 3));
  EXPECT_EQ(code_of([&] { put("more", {}, metadata + "x"); }), Errc::invalid_argument);
  reopen();
  EXPECT_EQ(tier_->find("empty")->metadata, metadata);
  EXPECT_EQ(get("large"), pattern(32 << 20, 3));
  EXPECT_EQ(tier_->statistics().bytes, 32u << 20);
}

TEST_P(TierTest, BatchesOfMixedSizes) {
  std::vector<std::string> names;
  std::vector<Bytes> data;
  for (int i = 0; i < 300; ++i) {
    names.push_back("key" + std::to_string(i));
    data.push_back(pattern(i % 50 == 0 ? 100000 : static_cast<std::size_t>(i), static_cast<std::uint64_t>(i)));
  }
  std::vector<TierWrite> writes;
  for (int i = 0; i < 300; ++i) writes.push_back({names[i], "m", data[i], checksum(data[i])});
  const Bytes last = pattern(70000, 999);
  writes.push_back({names[7], "again", last, std::nullopt});  // the last of one key counts
  tier_->put(writes, true);
  tier_->put({}, true);
  data[7] = last;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(tier_->statistics().objects, 300u);
    for (int i = 0; i < 300; ++i) EXPECT_EQ(get(names[i]), data[i]) << i;
    EXPECT_EQ(tier_->find(names[7])->metadata, "again");
    reopen();
  }
}

TEST_P(TierTest, WrongChecksumGivenIsSeenAtGet) {
  const Bytes small = pattern(100, 1), large = pattern(100000, 2);
  const TierWrite writes[] = {{"small", "", small, 1}, {"large", "", large, 1}};
  tier_->put(writes, true);
  for (const auto& write : writes) {
    Bytes out(write.data.size());
    EXPECT_EQ(code_of([&] { tier_->get(write.key, out); }), Errc::protocol);
  }
  EXPECT_EQ(tier_->statistics().errors, 2u);
}

// Changes one byte of `data` wherever it lies below `folder`. How many places there were.
int flip_byte_of(const Bytes& data, const fs::path& folder) {
  const std::string needle(reinterpret_cast<const char*>(data.data()) + data.size() / 2, 16);
  int found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), {});
    const std::size_t at = content.find(needle);
    if (at == std::string::npos) continue;
    std::fstream out(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(at + 8));
    out.put(static_cast<char>(content[at + 8] ^ 0x10));
    ++found;
  }
  return found;
}

TEST_P(TierTest, DamageOnDiskIsSeen) {
  const Bytes damaged = pattern(200000, 1), whole = pattern(200000, 2);
  put("damaged", damaged, "", true);
  put("whole", whole, "", true);
  reopen();  // RocksDB: from its log to its tables
  tier_.reset();
  ASSERT_GE(flip_byte_of(damaged, options_.path), 1);
  open();
  Bytes out(damaged.size());
  EXPECT_EQ(code_of([&] { tier_->get("damaged", out); }), Errc::protocol);
  EXPECT_EQ(get("whole"), whole);
  put("damaged", whole, "", true);  // the tier goes on
  EXPECT_EQ(get("damaged"), whole);
}

// What a tier with a log had there when its process was killed: whole, and with an end that is not.
TEST_P(TierTest, ALogIsReadAgain) {
  if (!fs::exists(options_.path + "/rocksdb")) return;
  put("first", pattern(300, 1), "", true);
  put("replaced", pattern(300, 2), "", true);
  put("replaced", pattern(5000, 3), "m", false);
  put("erased", pattern(300, 4), "", true);
  tier_->erase("erased", false);
  put("last", pattern(300, 5), "", true);
  TierOptions copy = options_;
  copy.path = folder_ / "copy";
  for (const bool damaged : {false, true}) {
    fs::remove_all(copy.path);
    fs::copy(options_.path, copy.path, fs::copy_options::recursive);
    const Bytes last = pattern(300, 5);
    if (damaged) {
      ASSERT_EQ(flip_byte_of(last, copy.path + "/rocksdb"), 1);
    }
    std::atomic<int> warnings{0};
    base::set_log_sink([&](base::Level level, std::string_view line) {
      if (level == base::Level::warn && line.find("dropping") != std::string_view::npos) ++warnings;
    });
    const auto tier = open_tier(copy);
    base::set_log_sink([](base::Level, std::string_view) {});
    EXPECT_EQ(warnings, damaged ? 1 : 0);
    EXPECT_EQ(tier->statistics().objects, damaged ? 2u : 3u);
    EXPECT_EQ(tier->find("last").has_value(), !damaged);
    EXPECT_FALSE(tier->find("erased"));
    EXPECT_EQ(tier->find("replaced")->metadata, "m");
    Bytes replaced(5000), first(300);
    tier->get("replaced", replaced);
    tier->get("first", first);
    EXPECT_EQ(replaced, pattern(5000, 3));
    EXPECT_EQ(first, pattern(300, 1));
    const TierWrite write{"new", "", first, std::nullopt};
    tier->put({&write, 1}, true);
    EXPECT_TRUE(tier->find("new"));
  }
}

// The log keeps what is not in RocksDB's tables yet, and no more than that.
TEST_P(TierTest, ManySmallBatches) {
  tier_.reset();
  options_.rocksdb_cache_bytes = 4 << 20;
  open();
  const Bytes data = pattern(500, 1);
  std::uint64_t most_log_bytes = 0;
  const int batches = fs::exists(options_.path + "/rocksdb") ? 300 : 5;
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<std::string> names;
    for (int i = 0; i < 100; ++i) names.push_back(std::to_string(10000 + batch) + "/" + std::to_string(100 + i));
    std::vector<TierWrite> writes;
    for (const auto& name : names) writes.push_back({name, "m", data, std::nullopt, true});
    tier_->put(writes, batch % 3 == 0);
    EXPECT_TRUE(tier_->find(names[50]));
    EXPECT_TRUE(tier_->erase(names[7], false));
    EXPECT_FALSE(tier_->find(names[7]));
    if (batch % 50 == 0) {
      EXPECT_EQ(keys(std::to_string(10000 + batch)).size(), 99u);
    }
    most_log_bytes = std::max(most_log_bytes, tier_->statistics().journal_bytes);
  }
  EXPECT_LE(most_log_bytes, 2 * options_.rocksdb_cache_bytes);  // of some 18 MiB
  const auto objects = static_cast<std::size_t>(batches) * 99;
  EXPECT_EQ(tier_->statistics().objects, objects);
  reopen();
  EXPECT_EQ(tier_->statistics().objects, objects);
  EXPECT_EQ(keys().size(), objects);
}

// Each copy is what a killed server leaves, which then starts again and puts little.
TEST_P(TierTest, RestartsAddNothingToALog) {
  if (!fs::exists(options_.path + "/rocksdb")) return;
  for (int life = 0; life < 6; ++life) {
    put("life " + std::to_string(life), pattern(100, 1), "", true);
    TierOptions next = options_;
    next.path = folder_ / std::to_string(life);
    fs::copy(options_.path, next.path, fs::copy_options::recursive);
    options_ = next;
    reopen();
    EXPECT_EQ(tier_->statistics().journal_bytes, 0u);
  }
  EXPECT_EQ(keys().size(), 6u);
}

TEST_P(TierTest, ConcurrentThreads) {
  constexpr int threads = 8, objects = 40;
  std::vector<std::thread> running;
  std::atomic<int> wrong{0};
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (int i = 0; i < objects; ++i) {
        const std::string key = std::to_string(t) + "/" + std::to_string(i);
        const Bytes data = pattern(i % 8 == 0 ? 150000 : 300, static_cast<std::uint64_t>(t * 1000 + i));
        put(key, data, key, i % 10 == 0);
        if (get(key) != data) ++wrong;
        if (i % 5 == 1) tier_->erase(key, false);
        if (i % 16 == 3) tier_->sync();
        if (i % 16 == 5) keys();
      }
    });
  }
  for (auto& thread : running) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(keys().size(), threads * objects * 4 / 5u);
  EXPECT_EQ(tier_->statistics().errors, 0u);
  reopen();
  EXPECT_EQ(keys().size(), threads * objects * 4 / 5u);
}

TEST_P(TierTest, SecondOpenerIsRefused) {
  put("key", pattern(10, 1));
  EXPECT_EQ(code_of([&] { open_tier(options_); }), Errc::wrong_state);
  EXPECT_EQ(get("key"), pattern(10, 1));
}

TEST_P(TierTest, AnotherKindAndForeignFoldersAreRefused) {
  tier_.reset();
  for (const auto kind : tier_kinds()) {
    auto other = options_;
    other.kind = kind;
    if (kind == options_.kind) continue;
    EXPECT_EQ(code_of([&] { open_tier(other); }), Errc::protocol);
  }
  fs::create_directory(folder_ / "foreign");
  std::ofstream(folder_ / "foreign/file") << "text";
  auto foreign = options_;
  foreign.path = folder_ / "foreign";
  EXPECT_EQ(code_of([&] { open_tier(foreign); }), Errc::protocol);
  auto unknown = options_;
  unknown.kind = "cassandra";
  EXPECT_EQ(code_of([&] { open_tier(unknown); }), Errc::unsupported);
}

TEST_P(TierTest, FormatsOfOtherReleases) {
  put("kept", pattern(300, 1), "", true);
  tier_.reset();
  const std::string mark = options_.path + "/TIER";
  const auto write = [&](const std::string& text) { std::ofstream(mark, std::ios::trunc) << text; };
  const auto read = [&] {
    std::ifstream in(mark);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string ours = read();
  write("penstock tier 4 " + options_.kind + "\n");
  try {
    open();
    FAIL() << "it cannot know that format";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_NE(std::string(error.what()).find("is of format 4, of a newer release"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("knows 3"), std::string::npos) << error.what();
  }
  for (const auto& wrong :
       std::vector<std::string>{"", "penstock tier", "penstock tier 2", "penstock tier x " + options_.kind}) {
    write(wrong);
    EXPECT_EQ(code_of([&] { open(); }), Errc::protocol);
  }
  const bool rocksdb = fs::exists(options_.path + "/rocksdb");
  EXPECT_TRUE(ours.starts_with(rocksdb ? "penstock tier 3 " : "penstock tier 1 "));
  if (!rocksdb) return write(ours);
  // Format 2 kept writes in a journal, which nobody reads any more: the folder stays as it is.
  write("penstock tier 2 " + options_.kind + "\n");
  fs::create_directory(options_.path + "/journal");
  std::ofstream(options_.path + "/journal/1.log") << "PSJRNL1";
  try {
    open();
    FAIL() << "the journal would be lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_NE(std::string(error.what()).find(options_.path + "/journal"), std::string::npos) << error.what();
  }
  EXPECT_EQ(read(), "penstock tier 2 " + options_.kind + "\n");
  fs::remove(options_.path + "/journal/1.log");
  for (const std::string format : {"1", "2"}) {
    tier_.reset();
    write("penstock tier " + format + " " + options_.kind + "\n");
    open();
    EXPECT_EQ(get("kept"), pattern(300, 1));
    EXPECT_EQ(read(), ours);  // releases that know it alone must not open it from now on
  }
}

TEST_P(TierTest, Limit) {
  tier_.reset();
  options_.limit_bytes = 250000;
  open();
  put("one", pattern(100000, 1));
  put("two", pattern(100000, 2));
  try {
    put("three", pattern(60000, 3));
    FAIL() << "more than the limit";
  } catch (const TierFull& error) {
    EXPECT_NE(std::string(error.what()).find("no space left"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(options_.path), std::string::npos);
  }
  EXPECT_FALSE(tier_->find("three"));
  put("two", pattern(120000, 4));  // what it replaces does not count
  tier_->erase("one", false);
  put("three", pattern(100000, 3));
  EXPECT_EQ(tier_->statistics().bytes, 220000u);
}

// The index still has the object whose file is gone; no other file may get its number.
TEST_P(TierTest, ALostFileTakesNoOtherWithIt) {
  for (const auto* key : {"m", "z", "a"}) put(key, pattern(100000, 1), "", true);
  const std::string killed = folder_ / "killed";  // what a process that is killed leaves: no number is noted as used
  fs::copy(options_.path, killed, fs::copy_options::recursive);
  tier_.reset();
  options_.path = killed;
  std::string newest, number;
  for (const auto& entry : fs::recursive_directory_iterator(options_.path)) {
    const auto name = entry.path().filename().string();
    const auto end = name.rfind("-s.");
    if (end == std::string::npos || name.substr(end - 16, 16) < number) continue;
    number = name.substr(end - 16, 16);
    newest = entry.path().string();
  }
  if (newest.empty()) return;  // rocksdb: no files
  fs::remove(newest);
  open();
  put("n", pattern(100000, 2), "", true);
  reopen();
  EXPECT_EQ(get("n"), pattern(100000, 2));
  EXPECT_EQ(get("m"), pattern(100000, 1));
  EXPECT_THROW(get("a"), Error);
}

TEST_P(TierTest, HalvesOfPutsAreDropped) {
  put("kept", pattern(100000, 1), "", true);
  tier_.reset();
  const fs::path objects = options_.path + "/objects/ab";
  if (!fs::exists(objects)) return;  // rocksdb: no files
  const std::string suffix = GetParam() == "hdf5" ? ".h5" : ".obj";
  std::ofstream(objects / ".tmp-0000000000000099") << "half";
  std::ofstream(objects / ("ab00000000000000-0000000000000077-u" + suffix)) << "not synced, not whole";
  std::ofstream(objects / ("ab00000000000000-0000000000000078-s" + suffix)) << "synced, damaged since";
  open();
  EXPECT_EQ(get("kept"), pattern(100000, 1));
  EXPECT_EQ(tier_->statistics().objects, 1u);
  if (GetParam() == "disk") {  // the index knows both for orphans
    EXPECT_EQ(tier_->statistics().dropped, 3u);
    return;
  }
  EXPECT_EQ(tier_->statistics().dropped, 2u);
  EXPECT_EQ(tier_->statistics().errors, 1u);
  EXPECT_TRUE(fs::exists(options_.path + "/damaged/ab00000000000000-0000000000000078-s" + suffix));
}

// Against a map, with reopening in between.
TEST_P(TierTest, RandomOperations) {
  for (const std::uint64_t seed : {1, 2}) {
    std::mt19937_64 random(seed);
    std::map<std::string, std::pair<std::size_t, std::uint64_t>> model;
    for (const auto& key : keys()) tier_->erase(key, false);
    for (std::uint64_t step = 0; step < 200; ++step) {
      const std::string key = std::to_string(random() % 20);
      const std::uint64_t what = random() % 20;
      if (what < 12) {
        const std::size_t size = random() % 3 == 0 ? random() % 200000 : random() % 3000;
        put(key, pattern(size, step), std::to_string(step), random() % 8 == 0);
        model[key] = {size, step};
      } else if (what < 18) {
        EXPECT_EQ(tier_->erase(key, what == 12), model.erase(key) == 1);
      } else if (what == 18) {
        tier_->sync();
      } else {
        reopen();
      }
    }
    std::size_t bytes = 0;
    for (const auto& [key, value] : model) {
      EXPECT_EQ(get(key), pattern(value.first, value.second)) << "seed " << seed;
      EXPECT_EQ(tier_->find(key)->metadata, std::to_string(value.second));
      bytes += value.first;
    }
    EXPECT_EQ(tier_->statistics().objects, model.size()) << "seed " << seed;
    EXPECT_EQ(tier_->statistics().bytes, bytes) << "seed " << seed;
  }
}

std::vector<std::string> kinds() {
  const auto all = tier_kinds();
  return {all.begin(), all.end()};
}
INSTANTIATE_TEST_SUITE_P(Kinds, TierTest, testing::ValuesIn(kinds()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock::storage
