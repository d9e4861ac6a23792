// The store in a process that is killed (SIGKILL) at any moment: nothing that was acknowledged as durable is lost.
//
// The child is this program again, asked by its environment for the one test that writes. It tells what it is about to do to a
// key and what was acknowledged through a pipe, so that the history outlives it. What is found afterwards must be the state
// after some operation at or behind the last one acknowledged as durable, whole.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "pool/store/store_test_support.hpp"

namespace penstock::pool {
namespace {

constexpr const char* folder_variable = "PENSTOCK_STORE_CRASH_FOLDER";
constexpr const char* pipe_variable = "PENSTOCK_STORE_CRASH_PIPE";
constexpr const char* seed_variable = "PENSTOCK_STORE_CRASH_SEED";
constexpr std::uint64_t keys = 24;

// An object says by its number how long it is; some are files of their own.
std::uint64_t bytes_of(std::uint64_t number) { return number % 7 == 0 ? number % 200'000 : number % 2000; }

// "A key version number": about to put, or (number 0) drop. "K key": the last one is durable.
class History {
 public:
  explicit History(int fd) : fd_(fd) {}
  void attempt(std::uint64_t key, std::uint64_t version, std::uint64_t number) {
    say("A " + std::to_string(key) + " " + std::to_string(version) + " " + std::to_string(number) + "\n");
  }
  void durable(std::uint64_t key) { say("K " + std::to_string(key) + "\n"); }

 private:
  // One write: whole in the pipe, or not at all.
  void say(const std::string& line) {
    if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw std::runtime_error("history");
  }
  int fd_;
};

Task<void> change(ObjectStore& store, History& history, std::uint64_t key, std::uint64_t seed, std::uint64_t steps) {
  auto random = std::make_unique<StoreRandom>(seed * 1000 + key);
  const auto row = numbered("key", key);
  const auto* present = store.table().find({}, row, "c");
  std::uint64_t version = std::max(present ? present->version + 1 : 1, store.first_version());
  for (std::uint64_t i = 0; i < steps; ++i) {
    const bool durable = random->chance(60);
    if (random->chance(80)) {
      StoreOnEngine::Put put;
      put.row = row;
      put.version = version++;
      put.number = random->from(1, 1'000'000);
      put.bytes = bytes_of(put.number);
      put.durable = durable;
      put.after_disk = durable && random->chance(50);
      history.attempt(key, put.version, put.number);
      co_await StoreOnEngine::put_task(store, put);
    } else {
      history.attempt(key, 0, 0);
      co_await store.drop({}, row, "c", {}, durable, soon());
    }
    if (durable) history.durable(key);
  }
}

void write_until_killed(const std::string& folder, int fd, std::uint64_t seed, std::uint64_t steps) {
  StoreOnEngine s(small_store(folder, 2 << 20));
  History history(fd);
  std::vector<fabric::Future<void>> running;
  for (std::uint64_t key = 0; key < keys; ++key)
    running.push_back(s.start(change(s.store(), history, key, seed, steps)));
  for (auto& task : running) task.get(base::Deadline(120s));
}

// By key: states that may be found; the first is the last one known to be durable.
struct State {
  std::uint64_t version = 0, number = 0;  // 0: absent
};
using States = std::map<std::uint64_t, std::vector<State>>;

void take_history(const std::string& text, States& states) {
  std::istringstream lines(text);
  std::string word;
  while (lines >> word) {
    std::uint64_t key = 0;
    State state;
    lines >> key;
    auto& possible = states[key];
    if (word == "A") {
      lines >> state.version >> state.number;
      possible.push_back(state);
    } else {
      possible.erase(possible.begin(), possible.end() - 1);
    }
  }
}

struct Pipe {
  int ends[2];
  Pipe() {
    if (::pipe2(ends, 0) != 0) throw std::runtime_error("pipe");
    ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
  ~Pipe() {
    close_writer();
    ::close(ends[0]);
  }
};

// Starts the child, kills it after so many bytes of history (never, for 0), and returns all of it.
std::string run_child(const std::string& folder, std::uint64_t seed, std::size_t kill_after) {
  Pipe pipe;
  const auto fd = std::to_string(pipe.ends[1]), seed_text = std::to_string(seed);
  std::vector<std::string> environment;
  for (char** e = environ; *e != nullptr; ++e) environment.push_back(*e);
  environment.push_back(std::string(folder_variable) + "=" + folder);
  environment.push_back(std::string(pipe_variable) + "=" + fd);
  environment.push_back(std::string(seed_variable) + "=" + seed_text);
  std::vector<char*> envp;
  for (auto& e : environment) envp.push_back(e.data());
  envp.push_back(nullptr);
  std::string self = "/proc/self/exe", filter = "--gtest_filter=StoreCrash.TheChildWrites", quiet = "--gtest_brief=1";
  char* const argv[] = {self.data(), filter.data(), quiet.data(), nullptr};
  const auto executable = std::filesystem::read_symlink("/proc/self/exe").string();
  pid_t child = 0;
  if (::posix_spawn(&child, executable.c_str(), nullptr, nullptr, argv, envp.data()) != 0)
    throw std::runtime_error("spawn");
  pipe.close_writer();
  std::string history;
  char buffer[4096];
  bool killed = false;
  for (;;) {
    const auto got = ::read(pipe.ends[0], buffer, sizeof buffer);
    if (got <= 0) break;
    history.append(buffer, static_cast<std::size_t>(got));
    if (!killed && kill_after > 0 && history.size() >= kill_after) {
      ::kill(child, SIGKILL);
      killed = true;
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(killed ? WIFSIGNALED(status) || WIFEXITED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return history;
}

void check(const std::string& folder, States& states) {
  StoreOnEngine s(small_store(folder));
  std::size_t there = 0;
  for (auto& [key, possible] : states) {
    const auto found = s.load(numbered("key", key));
    State state;
    if (found) {
      ++there;
      state = {found->object.version, static_cast<std::uint64_t>(found->object.put_us)};
      ASSERT_EQ(found->object.bytes, bytes_of(state.number));
      ASSERT_TRUE(is_filled_with(found->object.blob->bytes(), state.number)) << "key " << key;
    }
    const bool allowed = std::any_of(possible.begin(), possible.end(), [&](const State& p) {
      return p.version == state.version && p.number == state.number;
    });
    ASSERT_TRUE(allowed) << "key " << key << " has version " << state.version << "; durable was version "
                         << possible.front().version << ", " << possible.size() - 1 << " more were begun";
    possible = {state};
  }
  EXPECT_EQ(s.statistics().objects, there);
}

TEST(StoreCrash, TheChildWrites) {
  const char* folder = std::getenv(folder_variable);
  if (folder == nullptr) {  // by itself: some steps, and all of their history
    TestFolder own;
    Pipe pipe;
    write_until_killed(own / "tier", pipe.ends[1], 1, 3);
    pipe.close_writer();
    std::string history(1 << 16, '\0');
    history.resize(
        static_cast<std::size_t>(std::max<ssize_t>(::read(pipe.ends[0], history.data(), history.size()), 0)));
    States states;
    for (std::uint64_t key = 0; key < keys; ++key) states[key] = {State{}};
    take_history(history, states);
    check(own / "tier", states);
    return;
  }
  write_until_killed(folder, std::atoi(std::getenv(pipe_variable)),
                     std::strtoull(std::getenv(seed_variable), nullptr, 10), 100'000);
}

TEST(StoreCrash, WhatWasAcknowledgedAsDurableSurvivesSigkill) {
  constexpr std::uint64_t seeds = 20, folders = 10;
  StoreRandom random(77);
  std::size_t acknowledged = 0;
  for (std::uint64_t f = 0; f < folders; ++f) {
    TestFolder folder;
    States states;
    for (std::uint64_t key = 0; key < keys; ++key) states[key] = {State{}};
    for (std::uint64_t life = 0; life < seeds / folders; ++life) {
      const auto seed = random.from(1, 1'000'000'000);
      SCOPED_TRACE(numbered(numbered("PENSTOCK_TEST_SEED=", store_test_seed()) + ", child ", seed));
      const auto history = run_child(folder / "tier", seed, random.from(200, 20'000));
      acknowledged += static_cast<std::size_t>(std::count(history.begin(), history.end(), 'K'));
      take_history(history, states);
      check(folder / "tier", states);
      if (HasFailure()) return;
    }
  }
  RecordProperty("acknowledged", static_cast<int>(acknowledged));
  EXPECT_GT(acknowledged, 100u);
}

}  // namespace
}  // namespace penstock::pool
