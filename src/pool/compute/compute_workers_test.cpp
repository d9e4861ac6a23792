// Calls through real worker processes: what works, and each way in which a function can misbehave.
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/test_support.hpp"
#include "pool/compute/compute_test_support.hpp"

namespace penstock::pool::compute {

namespace {

using namespace std::chrono_literals;
using ::testing::Test;

void expect_has(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' does not say '" << part << "'";
}

// A named pipe in a folder of its own.
struct Fifo {
  TestFolder folder;
  std::string path = folder / "pipe";
  int fd = -1;
  Fifo() {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  }
  ~Fifo() { ::close(fd); }
  pid_t next_pid() {
    pollfd one{fd, POLLIN, 0};
    EXPECT_EQ(::poll(&one, 1, 30'000), 1);
    pid_t pid = -1;
    EXPECT_EQ(::read(fd, &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    return pid;
  }
  ComputeInput input() const {
    ComputeInput made;
    const auto kept = std::make_shared<std::string>(path);
    made.bytes = std::as_bytes(std::span(*kept));
    made.owner = kept;
    return made;
  }
};

using ComputeTest = ComputeFixture;

TEST_F(ComputeTest, PluginFunctions) {
  EXPECT_DOUBLE_EQ(values_of<double>(run(
                       "energy", std::vector{slab_input<double>("a", {1, 2}, {2}), heap_input<double>("b", {3}, {1}),
                                             slab_input<double>("c", {4}, {1}, 4104)}))[0],
                   30);
  EXPECT_EQ(run("energy").info, R"({"unit": "J"})");
  EXPECT_EQ(text_of(run("echo_arguments", std::vector<ComputeInput>{}, R"({"a": [1, {"b": 2}]})")),
            R"({"a": [1, {"b": 2}]})");
  auto boxed = heap_input<double>(std::string("k\0y", 3), {1, 2}, {1, 2});
  boxed.box = Box{{5, 7}, {1, 2}};
  EXPECT_EQ(text_of(run("describe", std::vector{boxed, heap_input<double>("z", {}, {0})})),
            std::string("k\0y@5,7,;z@;", 12));
  record("function of a shared object", "right result, info and names; three inputs in two slabs and the heap");
}

TEST_F(ComputeTest, LargeResultsComeInAFile) {
  std::vector<double> values(1 << 20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  const auto result = run("doubled", std::vector{slab_input(std::string("x"), values, {1024, 1024})});
  EXPECT_EQ(result.shape, (Dims{1024, 1024}));
  const auto doubled = values_of<double>(result);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(doubled[i], 2.0 * static_cast<double>(i));
  record("result of 8 MiB", "written by the worker into a memory file, intact");
}

TEST_F(ComputeTest, PythonFunctions) {
  if (python().empty()) GTEST_SKIP() << "needs a Python with NumPy (PENSTOCK_TEST_PYTHON)";
  use_python({"doubled", "energy", "text", "nothing", "write_input", "fails", "unsendable", "hog", "huge", "leave",
              "crash", "prints", "spin"});
  std::vector<double> values(1 << 18, 1.5);
  const auto doubled = run("py_doubled", std::vector{slab_input(std::string("x"), values, {512, 512}, 4104)});
  EXPECT_EQ(doubled.shape, (Dims{512, 512}));
  EXPECT_EQ(values_of<double>(doubled), std::vector<double>(1 << 18, 3.0));
  const auto energy =
      run("py_energy", std::vector{heap_input<double>("a", {3}, {1}), heap_input<double>("b", {4}, {1})},
          R"({"scale": 2})");
  EXPECT_DOUBLE_EQ(values_of<double>(energy)[0], 50);
  EXPECT_EQ(energy.info, R"({"blocks": 2})");
  auto raw = heap_input<std::uint8_t>("r", {1, 2, 3}, {3});
  raw.dtype = DType::none;
  raw.shape = {};
  EXPECT_EQ(text_of(run("py_text", std::vector{heap_input<std::int16_t>("s", {1}, {1}), raw})), "s:int16 r:uint8");
  EXPECT_TRUE(run("py_nothing").bytes.empty());
  EXPECT_EQ(values_of<std::int64_t>(run("py_prints"))[0], 1);
  expect_has(fails_with(Errc::invalid_argument, "py_fails"), "ValueError: no good");
  expect_has(fails_with(Errc::invalid_argument, "py_unsendable"), "object");
  expect_has(fails_with(Errc::invalid_argument, "py_energy", std::vector<ComputeInput>{}, R"({"wrong": 1})"), "wrong");
  expect_has(fails_with(Errc::invalid_argument, "py_write_input", std::vector{heap_input<double>("a", {3}, {1})}),
             "read-only");
  record("Python function",
         "NumPy arrays mapped read-only; array, number, text, None, info; exceptions with file and line");

  ComputeLimits limits;
  limits.memory_bytes = 64u << 20;
  const auto hog = fails_with(Errc::memory, "py_hog", std::vector<ComputeInput>{}, "", limits);
  record("memory limit of 64 MiB, Python", hog);
  limits.result_bytes = 1u << 20;
  limits.memory_bytes = 1u << 30;
  const auto huge = fails_with(Errc::memory, "py_huge", std::vector<ComputeInput>{}, "", limits);
  expect_has(huge, "larger than the 1048576 allowed");
  record("huge result refused, Python", huge);
  const auto crash = fails_with(Errc::peer_lost, "py_crash");
  expect_has(crash, "SIGSEGV");
  record("crash by signal, Python", crash);
  const auto left = fails_with(Errc::peer_lost, "py_leave");
  expect_has(left, "ended with status 5");
  record("exit, Python", left);
  limits.wall = 200ms;
  const auto spin = fails_with(Errc::timeout, "py_spin", std::vector<ComputeInput>{}, "", limits);
  expect_has(spin, "limit of 200 ms");
  record("time limit of 200 ms, Python", spin);
  EXPECT_EQ(values_of<std::int64_t>(run("py_prints"))[0], 1);
}

TEST_F(ComputeTest, TimeLimit) {
  ComputeLimits limits;
  limits.wall = 100ms;
  const auto begin = base::Clock::now();
  run("pid");  // a worker is there
  const auto error = fails_with(Errc::timeout, "block", std::vector<ComputeInput>{}, "", limits);
  expect_has(error, "ran for more than its limit of 100 ms");
  EXPECT_LT(base::Clock::now() - begin, 20s);
  record("time limit of 100 ms", error);
  const auto at_deadline =
      fails_with(Errc::timeout, "block", std::vector<ComputeInput>{}, "", std::nullopt, base::Deadline(500ms));
  expect_has(at_deadline, "deadline");
  record("the call's deadline passes", at_deadline);
  expect_unharmed();
}

TEST_F(ComputeTest, CpuLimit) {
  ComputeLimits limits;
  limits.cpu = 150ms;
  const auto error = fails_with(Errc::timeout, "spin", std::vector<ComputeInput>{}, "", limits);
  expect_has(error, "used all of its CPU time (150 ms)");
  record("CPU limit of 150 ms", error);
  // Waiting costs no CPU: only the wall's limit ends it.
  limits.wall = 400ms;
  expect_has(fails_with(Errc::timeout, "block", std::vector<ComputeInput>{}, "", limits), "ran for more");
  expect_unharmed();
}

TEST_F(ComputeTest, MemoryLimit) {
  ComputeLimits limits;
  limits.memory_bytes = 64u << 20;
  const auto error =
      fails_with(sanitized ? Errc::peer_lost : Errc::memory, "hog", std::vector<ComputeInput>{}, "", limits);
  expect_has(error, sanitized ? "ended with status" : "out of memory");
  record("memory limit of 64 MiB", error);
  limits.memory_bytes = 128u << 20;  // more than the last worker had: limits are each call's own
  run("energy", std::vector<ComputeInput>{}, "", limits);
  // Inputs are mapped, and do not count.
  std::vector<double> values(16u << 20, 1.0);
  limits.memory_bytes = 8u << 20;
  EXPECT_DOUBLE_EQ(
      values_of<double>(run("energy", std::vector{slab_input(std::string("x"), values, {16u << 20})}, "", limits))[0],
      static_cast<double>(16u << 20));
  record("128 MiB of inputs with a memory limit of 8 MiB", "right result: mapped inputs do not count");
}

TEST_F(ComputeTest, Crashes) {
  const struct {
    const char *function, *says;
  } rows[] = {{"segfault", "SIGSEGV"}, {"aborts", "SIGABRT"}, {"exits", "ended with status 7"}};
  for (const auto& row : rows) {
    const auto error = fails_with(Errc::peer_lost, row.function);
    if (!sanitized) expect_has(error, row.says);
    expect_has(error, row.function);
    record(std::string("a function that ") + row.function, error);
  }
  const auto error = fails_with(Errc::peer_lost, "write_input", std::vector{slab_input<double>("x", {1}, {1})});
  if (!sanitized) expect_has(error, "SIGSEGV");
  record("a function writes its input", error);
  EXPECT_EQ(statistics().crashes, 4u);
  EXPECT_EQ(statistics().workers_lost, 4u);
  expect_unharmed();
}

TEST_F(ComputeTest, ExceptionsAndResultsOutOfBounds) {
  const auto threw = fails_with(Errc::invalid_argument, "throws");
  expect_has(threw, "no good");
  record("exception of a plug-in", threw);
  const auto huge = fails_with(Errc::memory, "huge");
  expect_has(huge, "larger than the 268435456 allowed");
  record("huge result refused (1 TiB)", huge);
  EXPECT_EQ(statistics().workers_lost, 1u);  // out of memory wears a worker out, an exception does not
  expect_unharmed();
}

TEST_F(ComputeTest, NothingLeaksIntoWorkers) {
  ::setenv("PENSTOCK_TOKEN", "secret", 1);
  const int open_file = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  EXPECT_EQ(values_of<std::int64_t>(run("escape"))[0], 0);
  ::close(open_file);
  ::unsetenv("PENSTOCK_TOKEN");
  record("a function writes a file; looks for tokens and descriptors", "writing fails, nothing is found");
}

TEST_F(ComputeTest, UnknownFunction) {
  const auto error = fails_with(Errc::not_found, "enrgy");
  expect_has(error, "did you mean 'energy'?");
  record("unknown function", error);
  expect_has(fails_with(Errc::not_found, "histogramm"), "did you mean 'histogram'?");
  fails_with(Errc::invalid_argument, "energy", std::vector<ComputeInput>{}, "[1]");
  fails_with(Errc::invalid_argument, "energy", std::vector<ComputeInput>{}, "{nonsense");
  auto wrong = heap_input<double>("x", {1, 2}, {3});
  fails_with(Errc::invalid_argument, "energy", std::vector{wrong});
  const auto all = fabric::run_task(progress, compute().functions(soon()), soon());
  EXPECT_EQ(all.size(), 8u + 16u);
}

TEST_F(ComputeTest, WorkerKilledInMidCall) {
  Fifo fifo;
  auto future = start("block_once_told", {fifo.input()});
  ::kill(fifo.next_pid(), SIGKILL);
  try {
    future.get(soon());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer_lost);
    expect_has(error.what(), "was killed by SIGKILL");
    record("worker killed by SIGKILL in mid-call", error.what());
  }
  expect_unharmed();
}

TEST_F(ComputeTest, IdleWorkerKilled) {
  const auto pid = static_cast<pid_t>(values_of<std::int64_t>(run("pid"))[0]);
  const memory::UniqueFd watch(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  ::kill(pid, SIGKILL);
  pollfd one{watch.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&one, 1, 10'000), 1);
  // The first call after it may still meet the dead one before its end was seen; the next does not.
  try {
    run("pid");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer_lost);
  }
  EXPECT_NE(values_of<std::int64_t>(run("pid"))[0], pid);
}

TEST_F(ComputeTest, WorkersAreReused) {
  const auto pid = values_of<std::int64_t>(run("pid"))[0];
  for (int i = 0; i < 20; ++i) EXPECT_EQ(values_of<std::int64_t>(run("pid"))[0], pid);
  EXPECT_EQ(statistics().workers_started, 1u);
}

TEST_F(ComputeTest, IdleWorkersEnd) {
  options.idle_time = 1ms;
  const auto pid = static_cast<pid_t>(values_of<std::int64_t>(run("pid"))[0]);
  const memory::UniqueFd watch(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd one{watch.get(), POLLIN, 0};
  if (watch) {
    EXPECT_EQ(::poll(&one, 1, 10'000), 1);
  }
  expect_unharmed();
}

TEST_F(ComputeTest, TwoHundredCallsOverTwoWorkers) {
  for (int i = 0; i < 200; ++i)
    futures.push_back(start("energy", {heap_input<double>("x", {static_cast<double>(i)}, {1})}));
  for (int i = 0; i < 200; ++i)
    EXPECT_DOUBLE_EQ(values_of<double>(futures[static_cast<std::size_t>(i)].get(soon()))[0], 1.0 * i * i);
  const auto counts = statistics();
  EXPECT_LE(counts.workers_started, 2u);
  EXPECT_EQ(counts.failed, 0u);
  record("200 calls at once over 2 workers",
         "all right, " + std::to_string(counts.workers_started) + " workers started");
}

TEST_F(ComputeTest, CrashesAmongManyCalls) {
  for (int i = 0; i < 40; ++i) {
    if (i % 8 == 3) futures.push_back(start("segfault"));
    else futures.push_back(start("energy", {heap_input<double>("x", {static_cast<double>(i)}, {1})}));
  }
  for (int i = 0; i < 40; ++i) {
    auto& future = futures[static_cast<std::size_t>(i)];
    if (i % 8 == 3) {
      EXPECT_THROW(future.get(soon()), Error);
    } else {
      EXPECT_DOUBLE_EQ(values_of<double>(future.get(soon()))[0], 1.0 * i * i);
    }
  }
  record("5 crashes among 40 calls", "only the 5 fail");
}

TEST_F(ComputeTest, WaitingIsBounded) {
  options.workers = 1;
  options.max_waiting = 2;
  Fifo fifo;
  ComputeLimits limits;
  auto first = start("block_once_told", {fifo.input()}, "", limits);
  const auto pid = fifo.next_pid();
  auto second = start("energy", {}, "", std::nullopt, base::Deadline(1ms));
  EXPECT_THROW(second.get(soon()), Error);  // its deadline, in the queue
  auto third = start("energy"), fourth = start("energy");
  const auto refused = fails_with(Errc::overloaded, "energy");
  record("more calls than may wait", refused);
  ::kill(pid, SIGKILL);
  EXPECT_THROW(first.get(soon()), Error);
  third.get(soon());
  fourth.get(soon());
}

TEST_F(ComputeTest, BothKindsShareTheBound) {
  if (python().empty()) GTEST_SKIP() << "needs a Python with NumPy (PENSTOCK_TEST_PYTHON)";
  options.workers = 1;
  use_python({"prints"});
  for (int i = 0; i < 3; ++i) {
    expect_unharmed();
    EXPECT_EQ(values_of<std::int64_t>(run("py_prints"))[0], 1);
  }
  EXPECT_EQ(statistics().workers_started, 6u);
}

TEST_F(ComputeTest, ClosingFailsCallsUnderWay) {
  Fifo fifo;
  auto busy = start("block_once_told", {fifo.input()});
  fifo.next_pid();
  workers.reset();
  try {
    busy.get(soon());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::cancelled);
  }
}

// Each way in which a worker may break the protocol: its call fails, and the server lives.
TEST_F(ComputeTest, HostileWorkers) {
  const struct {
    const char* way;
    Errc code;
  } rows[] = {
      {"noise", Errc::protocol},       {"short_reply", Errc::protocol},      {"wrong_id", Errc::protocol},
      {"wrong_shape", Errc::protocol}, {"file_that_is_not", Errc::protocol}, {"file_out_of_bounds", Errc::protocol},
      {"two_hellos", Errc::protocol},  {"bad_status", Errc::protocol},       {"hangs_up", Errc::peer_lost},
      {"bad_hello", Errc::protocol},   {"dies_at_start", Errc::system},      {"silent_start", Errc::timeout}};
  const TestFolder folder;
  for (const auto& row : rows) {
    const auto path = folder / row.way;
    std::ofstream(path) << "";
    ComputeOptions hostile = options;
    hostile.worker_program = COMPUTE_HOSTILE;
    hostile.plugins = {path};
    hostile.start_time = std::string(row.way) == "silent_start" ? 200ms : 20'000ms;
    workers = std::make_unique<ComputeWorkers>(progress, threads, hostile);
    const auto error = fails_with(row.code, "f", std::vector{heap_input<double>("x", {1}, {1})});
    record(std::string("worker that sends garbage: ") + row.way, error);
  }
  workers = std::make_unique<ComputeWorkers>(progress, threads, options);
  expect_unharmed();
}

TEST_F(ComputeTest, BrokenPluginsAreReported) {
  const TestFolder folder;
  const auto path = folder / "no-plugin.so";
  std::ofstream(path) << "this is no shared object";
  options.plugins.push_back(path);
  expect_unharmed();
  options.plugins = {"/nowhere/plugin.so"};
  workers.reset();
  EXPECT_THROW(compute(), Error);
  options.plugins = {COMPUTE_PLUGIN};
  options.worker_program = "/nowhere/worker";
  expect_has(fails_with(Errc::system, "energy"), "/nowhere/worker");
}

// A server that dies takes its workers along, however busy they are.
TEST(ComputeServerDeath, EndsWorkers) {
  Fifo fifo;
  const std::string path = fifo.path;
  const char* argv[] = {COMPUTE_SERVER, COMPUTE_WORKER, COMPUTE_PLUGIN, path.c_str(), "2", nullptr};
  pid_t server = -1;
  ASSERT_EQ(::posix_spawn(&server, argv[0], nullptr, nullptr, const_cast<char**>(argv), environ), 0);
  std::vector<memory::UniqueFd> watches;
  for (int i = 0; i < 2; ++i) watches.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, fifo.next_pid(), 0)));
  const auto begin = base::Clock::now();
  ::kill(server, SIGKILL);
  for (const auto& watch : watches) {
    pollfd one{watch.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&one, 1, 20'000), 1) << "a worker outlived its server";
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(base::Clock::now() - begin);
  ::waitpid(server, nullptr, 0);
  record("server killed while 2 workers are busy", "both ended after " + std::to_string(took.count()) + " ms");
}

}  // namespace
}  // namespace penstock::pool::compute
