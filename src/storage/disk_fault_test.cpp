// Tiers on a disk that fails (disk_faults.hpp).
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/test_support.hpp"
#include "storage/disk_faults.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;
using Kind = DiskCall::Kind;

Bytes filled(std::size_t size, int with) { return Bytes(size, static_cast<std::byte>(with)); }

bool is_below(const DiskCall& call, std::string_view folder) {
  return call.path.find("/" + std::string(folder) + "/") != std::string::npos;
}

// In a folder of its own, where tiers are at `tier`.
class DiskFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.path = folder_ / "tier";
    options_.rocksdb_cache_bytes = 4 << 20;
  }
  // Empty when tiers of that kind are not built in.
  std::unique_ptr<Tier> open(const std::string& kind) {
    const auto kinds = tier_kinds();
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) return nullptr;
    options_.kind = kind;
    return open_tier(options_);
  }
  static void put(Tier& tier, std::string_view key, const Bytes& data, bool sync) {
    const TierWrite write{key, "", data, std::nullopt};
    tier.put({&write, 1}, sync);
  }
  // None: nothing is there.
  static std::optional<Bytes> get(Tier& tier, std::string_view key) {
    const auto entry = tier.find(key);
    if (!entry) return std::nullopt;
    Bytes out(entry->data_bytes);
    tier.get(key, out);
    return out;
  }
  // Where a full disk is not tried at each call.
  static bool soon(const std::function<bool()>& action) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (;;) {
      try {
        return action();
      } catch (const TierFull&) {
        if (std::chrono::steady_clock::now() > deadline) throw;
        std::this_thread::yield();
      }
    }
  }
  static std::size_t files_in(const fs::path& folder) {
    const auto is_file = [](const auto& entry) { return entry.is_regular_file(); };
    return static_cast<std::size_t>(
        std::count_if(fs::recursive_directory_iterator(folder), fs::recursive_directory_iterator(), is_file));
  }

  static bool is_log(const DiskCall& call) { return is_below(call, "rocksdb") && call.path.ends_with(".log"); }
  // As it was left by a process that was killed now, with another's path.
  TierOptions copy() const {
    auto options = options_;
    options.path = folder_ / "copy";
    fs::remove_all(options.path);
    fs::copy(options_.path, options.path, fs::copy_options::recursive);
    return options;
  }
  SilentLog silent_;
  TestFolder folder_;
  TierOptions options_;
};

// Things that happen, and who waits for them.
class Events {
 public:
  void happened(const std::string& name) {
    std::lock_guard lock(mutex_);
    names_.insert(name);
    changed_.notify_all();
  }
  // False when it did not happen in time.
  bool wait(const std::string& name, std::chrono::milliseconds most = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return names_.contains(name); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> names_;
};
constexpr std::chrono::milliseconds a_while(300);  // for what must not happen

// A put whose entry was written and not synced may be there: then with its file, and it counts.
TEST_F(DiskFaultTest, APutThatWasNotSyncedHasItsFile) {
  auto tier = open("disk");
  if (!tier) return;
  put(*tier, "replaced", filled(200'000, 1), true);
  put(*tier, "erased", filled(200'000, 2), true);
  const auto fails_to_sync = [](const auto& action) {
    std::atomic<int> failures{0};
    const DiskFaults faults(
        [&](const DiskCall& call) { return call.kind == Kind::sync && is_log(call) && failures++ == 0 ? EIO : 0; });
    EXPECT_EQ(code_of(action), Errc::system);
    EXPECT_EQ(failures, 1);
  };
  fails_to_sync([&] { put(*tier, "new", filled(300'000, 3), true); });
  fails_to_sync([&] { put(*tier, "replaced", filled(100'000, 4), true); });
  fails_to_sync([&] { tier->erase("erased", true); });
  tier->sync();  // opens the database again, which shows what the log has
  for (const bool again : {false, true}) {
    EXPECT_EQ(get(*tier, "new"), filled(300'000, 3));
    EXPECT_EQ(get(*tier, "replaced"), filled(100'000, 4));
    EXPECT_FALSE(get(*tier, "erased"));
    EXPECT_EQ(tier->statistics().objects, 2u);
    EXPECT_EQ(tier->statistics().bytes, 400'000u);
    EXPECT_EQ(files_in(options_.path + "/objects"), 2u);
    if (again) break;
    tier.reset();
    tier = open("disk");
    EXPECT_EQ(tier->statistics().errors, 0u);
    EXPECT_EQ(tier->statistics().dropped, 0u);
  }
}

// Whatever fails beside it, a put that returned is there: at once, and in what a kill leaves.
TEST_F(DiskFaultTest, PutsThatReturnedAreThereAfterErrorsOfOthers) {
  const auto tier = open("disk");
  if (!tier) return;
  constexpr int threads = 4, puts = 60;
  std::atomic<int> syncs{0}, failed{0};
  std::vector<std::vector<int>> there(threads);
  {
    const DiskFaults faults([&](const DiskCall& call) {
      if (!is_log(call)) return 0;
      if (call.kind == Kind::sync) return ++syncs % 7 == 0 ? EIO : 0;
      return call.kind == Kind::write && call.bytes > 3000 ? ENOSPC : 0;
    });
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) {
      running.emplace_back([&, t] {
        for (int i = 0; i < puts; ++i) {
          const std::size_t bytes = i % 20 == 7 ? 3500 : i % 10 == 3 ? 100'000 : 100;
          try {
            put(*tier, std::to_string(t) + "/" + std::to_string(i), filled(bytes, i), i % 3 != 0);
            there[static_cast<std::size_t>(t)].push_back(i);
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::system);
            ++failed;
          }
        }
      });
    }
    for (auto& thread : running) thread.join();
  }
  EXPECT_GE(failed, threads * puts / 20);
  tier->sync();
  const auto copied = open_tier(copy());
  for (Tier* one : {tier.get(), copied.get()}) {
    for (int t = 0; t < threads; ++t) {
      for (const int i : there[static_cast<std::size_t>(t)]) {
        const auto data = get(*one, std::to_string(t) + "/" + std::to_string(i));
        ASSERT_TRUE(data) << t << "/" << i;
        EXPECT_EQ(*data, filled(data->size(), i));
      }
    }
    std::uint64_t counted = 0;
    one->scan("", [&](const TierEntry&) { return ++counted > 0; });
    EXPECT_EQ(one->statistics().objects, counted);
  }
}

// Writes fail at once and say why, reads go on, and soon after there is space everything works.
TEST_F(DiskFaultTest, AFullDiskStopsWritesUntilThereIsSpace) {
  for (const std::string kind : {"rocksdb", "disk"}) {
    options_.path = folder_ / kind;
    const auto tier = open(kind);
    if (!tier) return;
    put(*tier, "kept", filled(200'000, 1), true);
    put(*tier, "erased", filled(100, 2), true);
    for (const bool known : {false, true}) {  // whether the file system says how much is free
      const DiskFaults faults([&](const DiskCall& call) {
        if (call.kind == Kind::space) return known ? ENOSPC : 0;
        return call.kind == Kind::allocate || (call.kind == Kind::write && is_below(call, "rocksdb")) ? ENOSPC : 0;
      });
      for (int i = 0; i < 3; ++i) {
        try {
          put(*tier, "more", filled(100, 3), i == 0);
          FAIL() << "it was put on a full disk";
        } catch (const TierFull& error) {
          EXPECT_NE(std::string(error.what()).find("no space left"), std::string::npos) << error.what();
          EXPECT_NE(std::string(error.what()).find(options_.path), std::string::npos) << error.what();
        }
      }
      EXPECT_THROW(tier->erase("erased", true), TierFull);
      EXPECT_EQ(get(*tier, "kept"), filled(200'000, 1));
    }
    EXPECT_TRUE(soon([&] { return tier->erase("erased", true); }));
    EXPECT_FALSE(tier->find("more"));
    EXPECT_EQ(tier->statistics().objects, 1u);
    put(*tier, "more", filled(100, 3), true);
    EXPECT_EQ(get(*tier, "kept"), filled(200'000, 1));
    EXPECT_EQ(get(*tier, "more"), filled(100, 3));
    EXPECT_EQ(tier->statistics().objects, 2u);
  }
}

// A database that stopped on a full disk is opened by the first write after the disk is freed, however lately one has failed.
TEST_F(DiskFaultTest, WhoFreesAFullDiskMayWriteAtOnce) {
  for (const std::string kind : {"rocksdb", "disk"}) {
    options_.path = folder_ / kind;
    const auto tier = open(kind);
    if (!tier) return;
    put(*tier, "kept", filled(200'000, 1), true);
    {
      const DiskFaults faults(
          [](const DiskCall& call) { return call.kind == Kind::write && is_below(call, "rocksdb") ? ENOSPC : 0; });
      EXPECT_THROW(put(*tier, "more", filled(100, 2), true), TierFull);  // stops the database
    }
    std::filesystem::resize_file(options_.path + "/SPARE", 0);  // as when it has been used
    {
      const DiskFaults faults(
          [](const DiskCall& call) { return call.kind == Kind::space || call.kind == Kind::allocate ? ENOSPC : 0; });
      for (int i = 0; i < 3; ++i) EXPECT_THROW(put(*tier, "more", filled(100, 2), true), TierFull);
    }
    EXPECT_NO_THROW(put(*tier, "more", filled(100, 3), true));
    EXPECT_EQ(get(*tier, "kept"), filled(200'000, 1));
    EXPECT_EQ(get(*tier, "more"), filled(100, 3));
  }
}

// Reads go on while a write looks for the space to open the database again, which it does not do at each call.
TEST_F(DiskFaultTest, ReadsDoNotWaitForSpaceOnAFullDisk) {
  const auto tier = open("disk");
  if (!tier) return;
  put(*tier, "kept", filled(200'000, 1), true);
  Events events;
  std::atomic<int> allocations{0};
  const DiskFaults faults([&](const DiskCall& call) {
    if (call.kind == Kind::allocate && ++allocations == 1) {
      events.happened("allocating");
      EXPECT_TRUE(events.wait("read"));
    }
    return call.kind == Kind::allocate || (call.kind == Kind::write && is_below(call, "rocksdb")) ? ENOSPC : 0;
  });
  EXPECT_THROW(put(*tier, "more", filled(100, 2), true), TierFull);  // stops the database
  allocations = 0;
  std::thread writer([&] { EXPECT_THROW(put(*tier, "more", filled(100, 2), true), TierFull); });
  EXPECT_TRUE(events.wait("allocating"));
  EXPECT_EQ(get(*tier, "kept"), filled(200'000, 1));
  events.happened("read");
  writer.join();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_THROW(put(*tier, "more", filled(100, 2), true), TierFull);
  EXPECT_LE(allocations, 2 + (std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds(100));
}

// A database that cannot be opened again is tried again; meanwhile calls fail, and nothing waits.
TEST_F(DiskFaultTest, ADatabaseThatCannotBeOpenedAgainIsTriedAgain) {
  const auto tier = open("rocksdb");
  if (!tier) return;
  put(*tier, "kept", filled(100, 1), true);
  {
    const DiskFaults faults([](const DiskCall& call) {
      const bool writes = call.kind == Kind::write || call.kind == Kind::sync;
      return writes && is_below(call, "rocksdb") ? EIO : 0;
    });
    for (int i = 0; i < 5; ++i) EXPECT_EQ(code_of([&] { put(*tier, "lost", filled(100, 2), true); }), Errc::system);
    EXPECT_EQ(code_of([&] { tier->find("kept"); }), Errc::system);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    try {
      put(*tier, "new", filled(100, 3), true);
      break;
    } catch (const Error&) {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(get(*tier, "new"), filled(100, 3));
  EXPECT_EQ(get(*tier, "kept"), filled(100, 1));
}

// When RocksDB could not be compacted on a full disk it is tried again, although nothing was erased since.
TEST_F(DiskFaultTest, SpaceThatCouldNotBeFreedIsTriedAgain) {
  const auto tier = open("rocksdb");
  if (!tier) return;
  put(*tier, "erased", filled(200'000, 1), true);
  tier->erase("erased", true);
  std::atomic<int> told{0};
  base::set_log_sink([&](base::Level, std::string_view line) {
    if (line.find("what was erased still takes space") != std::string_view::npos) ++told;
  });
  {
    const DiskFaults faults([&](const DiskCall& call) { return call.kind == Kind::space ? ENOSPC : 0; });
    for (const int tries : {1, 2}) {
      EXPECT_THROW(put(*tier, "more", filled(100, 1), true), TierFull);
      EXPECT_EQ(told, tries);
    }
  }
  base::set_log_sink({});
}

// While RocksDB writes data anew that is partly garbage it lies there twice: who finds no space then waits until it does not.
TEST_F(DiskFaultTest, SpaceThatIsBeingCollectedIsWaitedFor) {
  const auto tier = open("rocksdb");
  if (!tier) return;
  const auto write = [&](int number) { put(*tier, "object" + std::to_string(number), filled(10'000, number), false); };
  {
    int failures = 0;
    const DiskFaults faults([&](const DiskCall& call) {
      return call.kind == Kind::space && call.path == options_.path && failures++ == 0 ? ENOSPC : 0;
    });
    write(0);  // makes space; from now on nothing was erased
    EXPECT_GE(failures, 2);
  }
  Events events;
  std::mutex mutex;  // guards what follows
  fs::path oldest;   // of the files of data, when the first of them was about to be written anew
  const auto on_compacting_thread = [] {
    char name[16] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    return std::string_view(name).starts_with("rocksdb:low");
  };
  const DiskFaults faults([&](const DiskCall& call) {
    if (call.kind == Kind::write && call.path.ends_with(".blob") && on_compacting_thread()) {
      {
        std::lock_guard lock(mutex);
        if (!oldest.empty()) return 0;
        oldest = call.path;
        for (const auto& entry : fs::directory_iterator(options_.path + "/rocksdb"))
          if (entry.path().extension() == ".blob") oldest = std::min(oldest, entry.path());
      }
      events.happened("collecting");
      events.wait("no space");
    }
    if (call.kind != Kind::space || call.path != options_.path) return 0;
    std::lock_guard lock(mutex);
    if (oldest.empty() || !fs::exists(oldest)) return 0;
    events.happened("no space");
    return ENOSPC;
  });
  int count = 1;
  while (count < 10'000 && !events.wait("collecting", std::chrono::milliseconds(0))) write(count++);
  ASSERT_LT(count, 10'000);
  write(count);
  EXPECT_TRUE(events.wait("no space", std::chrono::milliseconds(0)));
  for (int i = 0; i <= count; ++i) EXPECT_EQ(get(*tier, "object" + std::to_string(i)), filled(10'000, i));
}

}  // namespace
}  // namespace penstock::storage
