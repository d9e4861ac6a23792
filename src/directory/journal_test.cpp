#include "directory/journal.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/fault.hpp"
#include "base/test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::directory {
namespace {

using namespace std::chrono_literals;
using Time = DirectoryState::Time;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

ReplayedJournal replay_text(const std::string& bytes) {
  return replay_journal(std::as_bytes(std::span(bytes)), {}, Time{});
}

// One line for each entry and lease.
std::string describe(const DirectoryState& state) {
  auto snapshot = state.snapshot();
  std::sort(snapshot.leases.begin(), snapshot.leases.end());
  std::string text = std::to_string(snapshot.tree) + " " + std::to_string(snapshot.revision) + "\n";
  for (const auto& [id, ttl] : snapshot.leases) text += std::to_string(id) + "+" + std::to_string(ttl) + "\n";
  for (const auto& e : snapshot.entries)
    text += e.path + "=" + e.value + " " + std::to_string(e.revision) + " " + std::to_string(e.created) + " " +
            std::to_string(e.lease) + "\n";
  return text;
}

// A random operation; what it changed.
std::vector<DirectoryChange> random_step(std::mt19937_64& random, DirectoryState& state, Time now) {
  const std::string path = "/k/" + std::to_string(random() % 20);
  const auto leases = state.snapshot().leases;
  const std::uint64_t lease = leases.empty() || random() % 2 ? 0 : leases[random() % leases.size()].first;
  std::optional<DirectoryChange> change;
  switch (random() % 6) {
    case 0: change = state.remove(path, {}); break;
    case 1:
      if (leases.size() < 10) change = state.grant(std::chrono::milliseconds(100 + random() % 100), now);
      break;
    case 2:
      if (lease != 0 && random() % 3 == 0) change = state.revoke(lease);
      break;
    default: change = state.put(path, std::string(random() % 300, static_cast<char>('a' + random() % 26)), {}, lease);
  }
  if (!change) return {};
  return {std::move(*change)};
}

TEST(DirectoryJournal, FindsEverythingAgain) {
  TestFolder folder;
  std::mt19937_64 random(7);
  std::string expected;
  for (int round = 0; round < 5; ++round) {
    DirectoryJournal journal(folder.path());
    DirectoryState state = journal.recover({}, Time{});
    if (round > 0) {
      EXPECT_EQ(describe(state), expected);
    }
    for (int i = 0; i < 300; ++i) {
      journal.append(random_step(random, state, Time{}));
      if (i == 200) journal.compact(state.snapshot());
    }
    expected = describe(state);
  }
}

TEST(DirectoryJournal, LeasesLastOneTtlAfterARestart) {
  TestFolder folder;
  std::uint64_t lease = 0;
  {
    DirectoryJournal journal(folder.path());
    DirectoryState state = journal.recover({}, Time{});
    const auto granted = state.grant(100ms, Time{});
    lease = granted.lease;
    const std::vector<DirectoryChange> changes{granted, *state.put("/a", "x", {}, lease)};
    journal.append(changes);
  }
  DirectoryJournal journal(folder.path());
  const Time later = Time{} + 1h;
  DirectoryState state = journal.recover({}, later);
  EXPECT_TRUE(state.expire(later + 99ms).empty());
  EXPECT_TRUE(state.heartbeat(lease, later + 99ms));
  EXPECT_TRUE(state.expire(later + 198ms).empty());
  EXPECT_EQ(state.expire(later + 199ms).size(), 1U);
  EXPECT_EQ(state.entries(), 0U);
}

TEST(DirectoryJournal, OneProcessAtATime) {
  TestFolder folder;
  DirectoryJournal journal(folder.path());
  EXPECT_EQ(code_of([&] { DirectoryJournal other(folder.path()); }), Errc::wrong_state);
}

TEST(DirectoryJournal, CompactsWhatOutgrowsItsSnapshot) {
  TestFolder folder;
  DirectoryJournal journal(folder.path());
  DirectoryState state = journal.recover({}, Time{});
  std::uint64_t largest = 0;
  int compactions = 0;
  for (int i = 0; i < 64; ++i) {
    const std::vector<DirectoryChange> changes{*state.put("/a", std::string(100'000, 'x'), {}, 0)};
    journal.append(changes);
    largest = std::max(largest, journal.bytes());
    if (journal.wants_compaction()) {
      journal.compact(state.snapshot());
      ++compactions;
    }
  }
  EXPECT_GT(compactions, 3);
  EXPECT_LT(largest, 2'000'000U);
  EXPECT_EQ(std::filesystem::file_size(journal.path()), journal.bytes());
}

// Whatever a crash leaves behind what was synced (nothing, a part, zeros, garbage, later pages without earlier ones): all
// that was acknowledged is there.
TEST(DirectoryJournal, AnyTornTailIsDroppedAndNothingBeforeIt) {
  std::mt19937_64 random(11);
  DirectoryState state(5);
  const std::string snapshot = encode_journal(state.snapshot(), 0xabcd1234);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    DirectoryState now(5);
    std::string file = snapshot;
    for (int i = 0; i < 20; ++i) {
      const auto changes = random_step(random, now, Time{});
      file += encode_changes(changes, 0xabcd1234, file.size());
    }
    const std::string expected = describe(now);
    const std::uint64_t synced = file.size();
    std::vector<DirectoryChange> lost;
    while (lost.size() < 5)
      for (auto& change : random_step(random, now, Time{})) lost.push_back(std::move(change));
    std::string tail = encode_changes(lost, 0xabcd1234, synced);
    const std::size_t cut = random() % tail.size();
    switch (random() % 3) {
      case 0: tail.resize(cut); break;
      case 1: tail.replace(0, cut, cut, '\0'); break;
      default:
        for (std::size_t i = 0; i < cut; ++i) tail[i] = static_cast<char>(random());
    }
    const auto replayed = replay_text(file + tail);
    if (cut != 0 && tail.size() == encode_changes(lost, 0xabcd1234, synced).size()) {
      EXPECT_EQ(describe(*replayed.state), expected);
      EXPECT_EQ(replayed.dropped_bytes, tail.size());
    } else {
      EXPECT_GE(replayed.state->revision(), DirectoryState(*replay_text(file).state).revision());
    }
  }
}

TEST(DirectoryJournal, DamageBeforeWhatWasSyncedIsRefused) {
  DirectoryState state(5);
  std::string file = encode_journal(state.snapshot(), 77);
  const std::size_t start = file.size();
  for (int i = 0; i < 10; ++i) {
    const std::vector<DirectoryChange> changes{*state.put("/a", std::to_string(i), {}, 0)};
    file += encode_changes(changes, 77, file.size());
  }
  const std::size_t last =
      file.size() - encode_changes(std::vector<DirectoryChange>{*state.put("/a", "9", {}, 0)}, 77, 0).size();
  for (std::size_t at = start; at < last; ++at) {
    std::string broken = file;
    broken[at] ^= 0x10;
    EXPECT_EQ(code_of([&] { replay_text(broken); }), Errc::protocol) << at;
  }
  for (std::size_t at = 0; at < start; ++at)
    EXPECT_EQ(code_of([&] { replay_text(file.substr(0, at)); }), Errc::protocol) << at;
}

TEST(DirectoryJournal, ADamagedFileIsLeftAsItIs) {
  TestFolder folder;
  write(folder / "directory.journal", "something else altogether");
  DirectoryJournal journal(folder.path());
  EXPECT_EQ(code_of([&] { journal.recover({}, Time{}); }), Errc::protocol);
  EXPECT_EQ(read(journal.path()), "something else altogether");
  EXPECT_EQ(code_of([&] { journal.append(std::vector<DirectoryChange>(1)); }), Errc::system);
}

TEST(DirectoryJournal, AFullDiskIsAnErrorAndTheJournalGoesOnWhenThereIsRoom) {
  TestFolder folder;
  DirectoryJournal journal(folder.path());
  DirectoryState state = journal.recover({}, Time{});
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 300, old.rlim_max };
  const std::vector<DirectoryChange> fits{*state.put("/a", "x", {}, 0)};
  const std::vector<DirectoryChange> large{*state.put("/b", std::string(1000, 'x'), {}, 0)};
  const std::vector<DirectoryChange> later{*state.put("/c", "x", {}, 0)};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Errc first = code_of([&] { journal.append(fits); });
  const Errc second = code_of([&] { journal.append(large); });
  const Errc third = code_of([&] { journal.append(later); });
  const Errc fourth = code_of([&] { journal.compact(state.snapshot()); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(first, Errc::ok);
  EXPECT_EQ(second, Errc::system);
  EXPECT_EQ(third, Errc::system);
  EXPECT_EQ(fourth, Errc::system);
  EXPECT_TRUE(journal.broken());
  EXPECT_TRUE(replay_text(read(journal.path())).state->get("/a"));
  journal.compact(state.snapshot());
  EXPECT_EQ(describe(*replay_text(read(journal.path())).state), describe(state));
}

// ------------------------------------------------------------------------------------------------------- kill -9

int points_left = 0;

bool die_at_point(std::string_view, base::FaultPhase) {
  if (--points_left == 0) ::raise(SIGKILL);
  return false;
}

// The child: random operations, each acknowledged through the pipe (the sequence number of the step) once it is on disk.
[[noreturn]] void run_child(const std::string& folder, std::uint64_t seed, int acknowledge) {
  std::mt19937_64 random(seed);
  try {
    DirectoryJournal journal(folder);
    DirectoryState state = journal.recover({}, Time{});
    points_left = static_cast<int>(1 + random() % 1500);
    base::fault_hook = die_at_point;
    for (std::uint32_t step = 0;; ++step) {
      std::vector<DirectoryChange> batch;
      for (std::uint64_t n = 1 + random() % 4; n > 0; --n)
        for (auto& change : random_step(random, state, Time{})) batch.push_back(std::move(change));
      journal.append(batch);
      if (random() % 30 == 0) journal.compact(state.snapshot());
      const auto revision = state.revision();
      if (::write(acknowledge, &revision, sizeof revision) != sizeof revision) ::_exit(1);
    }
  } catch (const std::exception&) {
    ::_exit(1);
  }
}

// What the same seed gives up to a revision.
std::string state_at(const std::string& journal_tree, std::uint64_t seed, std::uint64_t revision, bool& exact) {
  std::mt19937_64 random(seed);
  DirectoryState state(std::stoull(journal_tree));
  random();  // points_left
  std::string at_revision;
  exact = false;
  while (state.revision() <= revision) {
    for (std::uint64_t n = 1 + random() % 4; n > 0; --n) random_step(random, state, Time{});
    if (state.revision() == revision) {
      exact = true;
      at_revision = describe(state);
    }
    random();  // compaction
  }
  return at_revision;
}

TEST(DirectoryJournal, KilledAtAnyPointItKeepsWhatItAcknowledged) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TestFolder folder;
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) run_child(folder.path(), seed, ends[1]);
    ::close(ends[1]);
    std::uint64_t acknowledged = 0, value = 0;
    struct pollfd readable {
      ends[0], POLLIN, 0
    };
    while (::poll(&readable, 1, 60'000) == 1 && ::read(ends[0], &value, sizeof value) == sizeof value)
      acknowledged = value;
    ::close(ends[0]);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;

    DirectoryJournal journal(folder.path());
    DirectoryState state = journal.recover({}, Time{});
    EXPECT_GE(state.revision(), acknowledged);
    bool exact = false;
    const std::string text = describe(state);
    const std::string expected = state_at(text.substr(0, text.find(' ')), seed, state.revision(), exact);
    // Leases may have been granted without a new revision: only entries are compared then.
    if (exact) {
      const auto entries = [](const std::string& t) { return t.substr(std::min(t.find('/'), t.size())); };
      EXPECT_EQ(entries(text), entries(expected));
    }
    journal.append(random_step(*std::make_unique<std::mt19937_64>(seed), state, Time{}));
  }
}

}  // namespace
}  // namespace penstock::directory
