// Journals and the tiers that have one, on a disk that fails (disk_faults.hpp).
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
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
#include "storage/journal.hpp"
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
  static std::size_t files_in(const fs::path& folder) {
    const auto is_file = [](const auto& entry) { return entry.is_regular_file(); };
    return static_cast<std::size_t>(
        std::count_if(fs::recursive_directory_iterator(folder), fs::recursive_directory_iterator(), is_file));
  }

  // As it was left by a process that was killed now, with another's path.
  TierOptions copy() const {
    auto options = options_;
    options.path = folder_ / "copy";
    fs::remove_all(options.path);
    fs::copy(options_.path, options.path, fs::copy_options::recursive);
    return options;
  }
  std::unique_ptr<Journal> open_journal(std::size_t replayed = 0) const {
    std::size_t count = 0;
    auto journal =
        std::make_unique<Journal>(folder_ / "journal", 4096, 0, [&](Journal::Number, std::string_view) { ++count; });
    EXPECT_EQ(count, replayed);
    return journal;
  }
  static Journal::Number append(Journal& journal, std::size_t bytes) {
    return journal.append(std::string(bytes, 'x'), [](const Journal::Place&) {});
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

// A put whose journal was written and not synced may be there: then with its file, and it counts.
TEST_F(DiskFaultTest, APutThatWasNotSyncedHasItsFile) {
  auto tier = open("disk");
  if (!tier) return;
  put(*tier, "replaced", filled(200'000, 1), true);
  put(*tier, "erased", filled(200'000, 2), true);
  const auto fails_to_sync = [](const auto& action) {
    std::atomic<int> failures{0};
    const DiskFaults faults([&](const DiskCall& call) {
      return call.kind == Kind::sync && is_below(call, "journal") && failures++ == 0 ? EIO : 0;
    });
    EXPECT_EQ(code_of(action), Errc::system);
    EXPECT_EQ(failures, 1);
  };
  fails_to_sync([&] { put(*tier, "new", filled(300'000, 3), true); });
  fails_to_sync([&] { put(*tier, "replaced", filled(100'000, 4), true); });
  fails_to_sync([&] { tier->erase("erased", true); });
  for (const bool again : {false, true}) {
    EXPECT_EQ(get(*tier, "new"), filled(300'000, 3));
    EXPECT_EQ(get(*tier, "replaced"), filled(100'000, 4));
    EXPECT_FALSE(get(*tier, "erased"));
    EXPECT_EQ(tier->statistics().objects, 2u);
    EXPECT_EQ(tier->statistics().bytes, 400'000u);
    if (again) break;
    tier->sync();  // lets go of the replaced and the erased file
    EXPECT_EQ(files_in(options_.path + "/objects"), 2u);
    tier.reset();
    tier = open("disk");
    EXPECT_EQ(tier->statistics().errors, 0u);
    EXPECT_EQ(tier->statistics().dropped, 0u);
  }
}

// The system tells of bytes that it could not write once: to one of two syncs of a file.
TEST_F(DiskFaultTest, WhoSyncsAFileAtTheSameTimeHearsOfAFailure) {
  const auto journal = open_journal();
  const auto number = append(*journal, 1000);
  Events events;
  std::atomic<int> syncs{0};
  const DiskFaults faults([&](const DiskCall& call) {
    if (call.kind != Kind::sync || !call.path.ends_with(".log")) return 0;
    const int before = syncs++;
    events.happened(before == 0 ? "sync" : "another");
    if (before == 0) return events.wait("another", a_while) ? 0 : EIO;
    return before == 1 ? EIO : 0;
  });
  std::thread other([&] {
    events.wait("sync");
    EXPECT_EQ(code_of([&] { append(*journal, 4000); }), Errc::system);  // needs another file
  });
  EXPECT_EQ(code_of([&] { journal->sync(number); }), Errc::system);
  other.join();
  EXPECT_TRUE(journal->failed());
}

// A put that is on its way into the journal while that is repaired survives the process.
TEST_F(DiskFaultTest, WhatIsWrittenDuringARepairIsKept) {
  const auto tier = open("rocksdb");
  if (!tier) return;
  put(*tier, "first", filled(100, 1), true);
  Events events;
  std::atomic<bool> failed{false};
  const DiskFaults faults([&](const DiskCall& call) {
    if (call.kind == Kind::write && is_below(call, "journal") && call.bytes > 3000) {
      events.happened("put begun");
      if (events.wait("flushed", a_while)) events.wait("nothing", a_while);
    }
    if (call.kind != Kind::sync) return 0;
    if (failed && call.path.find("/MANIFEST-") != std::string::npos) events.happened("flushed");
    if (!is_below(call, "journal") || failed) return 0;
    events.happened("sync begun");
    events.wait("put begun");
    failed = true;
    return EIO;
  });
  std::thread slow([&] {
    events.wait("sync begun");
    put(*tier, "slow", filled(3000, 2), false);
  });
  EXPECT_EQ(code_of([&] { put(*tier, "not synced", filled(100, 3), true); }), Errc::system);
  put(*tier, "repairs", filled(100, 4), true);
  slow.join();
  const auto copied = open_tier(copy());
  EXPECT_EQ(get(*copied, "slow"), filled(3000, 2));
  EXPECT_EQ(get(*copied, "not synced"), filled(100, 3));
  EXPECT_EQ(get(*copied, "repairs"), filled(100, 4));
}

TEST_F(DiskFaultTest, AJournalFileThatCannotBeBegunDoesNotStay) {
  auto journal = open_journal();
  for (const bool name : {false, true}) {
    for (int i = 0; i < 3; ++i) {
      const DiskFaults faults([&](const DiskCall& call) {
        if (name) return call.kind == Kind::sync && call.path.ends_with("/journal") ? EIO : 0;
        return call.kind == Kind::write && call.bytes == journal_head_bytes ? EIO : 0;
      });
      EXPECT_EQ(code_of([&] { append(*journal, 3000); }), Errc::system);
      EXPECT_EQ(files_in(folder_ / "journal"), name ? 1u : 0u);
    }
    append(*journal, 3000);
    EXPECT_EQ(files_in(folder_ / "journal"), name ? 2u : 1u);
  }
  journal.reset();
  open_journal(2);
}

// Of a frame that ends in zeros a first part is as good as all of it. The next one, in another file, has its number.
TEST_F(DiskFaultTest, AFrameThatFailedIsNotTakenForTheNext) {
  auto journal = open_journal();
  append(*journal, 10);
  {
    int failures = 0;
    const DiskFaults faults(
        [&](const DiskCall& call) { return call.kind == Kind::write && failures++ == 0 ? EIO : 0; });
    EXPECT_EQ(code_of([&] { journal->append(std::string(100, '\0'), [](const Journal::Place&) {}); }), Errc::system);
    EXPECT_EQ(failures, 2);
  }
  append(*journal, 4000);
  journal->sync();
  journal.reset();
  std::vector<std::size_t> found;
  Journal again(folder_ / "journal", 4096, 0,
                [&](Journal::Number, std::string_view body) { found.push_back(body.size()); });
  EXPECT_EQ(found, (std::vector<std::size_t>{10, 4000}));
  {
    const DiskFaults faults([](const DiskCall& call) { return call.kind == Kind::write ? EIO : 0; });
    EXPECT_EQ(code_of([&] { append(again, 10); }), Errc::system);
  }
  EXPECT_FALSE(again.failed());  // a file that could not be begun
  append(again, 10);
  {
    const DiskFaults faults([](const DiskCall& call) { return call.kind == Kind::write ? EIO : 0; });
    EXPECT_EQ(code_of([&] { append(again, 10); }), Errc::system);
  }
  EXPECT_TRUE(again.failed());
}

TEST_F(DiskFaultTest, AJournalTakesWhatADiskHasLeft) {
  auto journal = open_journal();
  {
    const DiskFaults faults(
        [&](const DiskCall& call) { return call.kind == Kind::allocate && call.bytes > 1000 ? ENOSPC : 0; });
    for (int i = 0; i < 10; ++i) append(*journal, 10);
    append(*journal, 900);
    EXPECT_EQ(files_in(folder_ / "journal"), 3u);
    EXPECT_THROW(append(*journal, 1100), TierFull);
  }
  append(*journal, 1100);
  journal.reset();
  open_journal(12);
}

// Without space for a journal's file as it usually is.
TEST_F(DiskFaultTest, ATierOpensAndErasesOnADiskThatIsNearlyFull) {
  const auto tier = open("disk");
  if (!tier) return;
  put(*tier, "kept", filled(200'000, 1), true);
  put(*tier, "lost", filled(200'000, 2), false);
  const auto options = copy();
  for (const auto& entry : fs::recursive_directory_iterator(options.path))
    if (entry.path().string().ends_with("-u.obj")) fs::resize_file(entry.path(), 1000);
  const DiskFaults faults([&](const DiskCall& call) {
    return call.kind == Kind::allocate && is_below(call, "journal") && call.bytes > 100'000 ? ENOSPC : 0;
  });
  const auto copied = open_tier(options);
  EXPECT_EQ(copied->statistics().dropped, 1u);
  EXPECT_EQ(get(*copied, "kept"), filled(200'000, 1));
  EXPECT_TRUE(copied->erase("kept", true));
  EXPECT_EQ(files_in(options.path + "/objects"), 0u);
}

// When RocksDB could not be compacted on a full disk it is tried again, although nothing was erased since.
TEST_F(DiskFaultTest, SpaceThatCouldNotBeFreedIsTriedAgain) {
  const auto tier = open("rocksdb");
  if (!tier) return;
  const auto settle = [&] { tier->scan("", [](const TierEntry&) { return true; }); };
  put(*tier, "erased", filled(200'000, 1), true);
  tier->erase("erased", true);
  settle();
  std::atomic<int> told{0};
  base::set_log_sink([&](base::Level, std::string_view line) {
    if (line.find("what was erased still takes space") != std::string_view::npos) ++told;
  });
  {
    const DiskFaults faults([&](const DiskCall& call) {
      if (call.kind == Kind::space) return call.path == options_.path ? ENOSPC : 0;
      return call.kind == Kind::write && is_below(call, "rocksdb") ? ENOSPC : 0;
    });
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
