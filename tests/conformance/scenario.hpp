// What the stream scenarios share: a directory of their own, a writer and readers on threads, engines and planes to run
// over, and for streams in a pool a staging server (a real process: $PENSTOCK_SERVER) that lives as long as the scenario.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "penstock/penstock.hpp"

namespace penstock::scenario {

using namespace std::chrono_literals;

// A registration directory that disappears with the test.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "penstock-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The engines, and whether streams of an engine are read over a data plane. A new engine is one line here.
struct Engine {
  std::string name;
  bool has_planes;
};
inline const std::vector<Engine>& engines() {
  static const std::vector<Engine> all{
      {"direct", true},
      {"pool", true},
      {"insitu", false},
#ifdef PENSTOCK_HAVE_FILES
      {"file", false},
#endif
  };
  return all;
}

inline std::string plane_name(DataPlane plane) {
  static constexpr const char* names[] = {"automatic", "shm", "tcp", "ucx"};
  return names[static_cast<int>(plane)];
}

// The engine of a scenario's streams and the plane over which they are read: automatic for an engine without planes.
struct Place {
  std::string engine = "direct";
  DataPlane plane = DataPlane::shm;
};
inline std::ostream& operator<<(std::ostream& out, const Place& place) {  // as the scenario table names its columns
  if (place.plane == DataPlane::automatic) return out << place.engine;
  return out << (place.engine == "direct" ? "" : place.engine + "_") << plane_name(place.plane);
}

// One server of a pool, registered in a folder; killed when it goes: a scenario is over, and nothing of it worth keeping.
class ServerProcess {
 public:
  explicit ServerProcess(const std::string& folder, const std::vector<std::string>& more = {}, bool wait = true) {
    const char* named = std::getenv("PENSTOCK_SERVER");
    const std::string program = named ? named : PENSTOCK_SERVER_PROGRAM;
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    std::vector<std::string> words{program,
                                   "--with-parent",
                                   "--ready-fd",
                                   "3",
                                   "pool=scenarios",
                                   "registration=" + folder,
                                   "listen=127.0.0.1",
                                   "memory=512MiB",
                                   "http=off",
                                   "log=warn"};
#ifdef PENSTOCK_HAVE_UCX
    words.push_back("data_plane=ucx");  // to readers that ask for it
#endif
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ready[1], 3);
    const int failed = posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ready[1]);
    ready_ = ready[0];
    if (failed) throw std::runtime_error("the server " + program + " did not start");
    if (wait) wait_ready();
  }
  void wait_ready() {
    char line[512];
    const auto size = read(ready_, line, sizeof line);
    if (size <= 0) throw std::runtime_error("a server ended before it was ready");
    ready_line_.assign(line, static_cast<std::size_t>(size));
  }
  // The address of the pool's directory, with its token.
  std::string directory() const {
    static constexpr std::string_view key = "\"directory\":\"";
    const auto begin = ready_line_.find(key) + key.size();
    return ready_line_.substr(begin, ready_line_.find('"', begin) - begin);
  }
  // It does not answer until it is resumed.
  void stop() {
    int status = 0;
    kill(pid_, SIGSTOP);
    if (waitpid(pid_, &status, WUNTRACED) != pid_ || !WIFSTOPPED(status))
      throw std::runtime_error("the server did not stop");
  }
  void resume() { kill(pid_, SIGCONT); }
  ~ServerProcess() {
    close(ready_);
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;

 private:
  pid_t pid_ = -1;
  int ready_ = -1;
  std::string ready_line_;
};

// Parametrised by place. Every scenario uses options(), so that adding an engine or a plane is one line.
class Scenario : public testing::TestWithParam<Place> {
 protected:
  Scenario() {
    if (on("file")) std::filesystem::current_path(scratch_.path());  // where folders of steps are made
    if (on("pool")) server_ = std::make_unique<ServerProcess>(scratch_.path());
  }
  bool on(std::string_view engine) const { return GetParam().engine == engine; }
  bool keeps_steps() const { return on("pool") || on("file"); }  // whoever reads them
  DataPlane plane() const { return GetParam().plane; }
  ContextOptions context_options() const {
    ContextOptions options;
    options.directory = scratch_.path();
    options.listen = "127.0.0.1";
    return options;
  }
  StreamOptions options() const {
    StreamOptions options;
    options.engine = GetParam().engine;
    options.data_plane = plane();
    options.open_timeout_ms = options.step_timeout_ms = options.close_timeout_ms = 20'000;
    return options;
  }
  // Runs the bodies side by side and rethrows the first failure.
  static void together(std::vector<std::function<void()>> bodies) {
    std::vector<std::future<void>> running;
    for (auto& body : bodies) running.push_back(std::async(std::launch::async, std::move(body)));
    std::exception_ptr first;
    for (auto& r : running) {
      try {
        r.get();
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }
  // One writer rank and one reader rank.
  void pair(const std::function<void(Writer&)>& write, const std::function<void(Reader&)>& read) {
    pair(options(), options(), write, read);
  }
  void pair(const StreamOptions& writer_options, const StreamOptions& reader_options,
            const std::function<void(Writer&)>& write, const std::function<void(Reader&)>& read) {
    Context context(context_options());
    together({[&] {
                auto writer = context.create_stream("s", solo(), writer_options);
                write(writer);
                writer.close();
              },
              [&] {
                auto reader = context.open_stream("s", solo(), reader_options);
                read(reader);
              }});
  }
  // M writer ranks and N reader ranks, as threads; each time another stream: a pool would give its readers the last one.
  void cohorts(int m, int n, const std::function<void(Writer&, int)>& write,
               const std::function<void(Reader&, int)>& read) {
    Context context(context_options());
    const auto name = "s" + std::to_string(++streams_);
    together({[&] {
                run_thread_cohort(m, [&](std::shared_ptr<Cohort> cohort) {
                  auto writer = context.create_stream(name, cohort, options());
                  write(writer, cohort->rank());
                  writer.close();
                });
              },
              [&] {
                run_thread_cohort(n, [&](std::shared_ptr<Cohort> cohort) {
                  auto reader = context.open_stream(name, cohort, options());
                  read(reader, cohort->rank());
                });
              }});
  }
  // Until so many steps can be read: a pool takes them a moment after their end.
  static void await_steps(Reader& reader, std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (reader.steps().size() < count && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }
  ScratchDirectory scratch_;
  std::unique_ptr<ServerProcess> server_;
  int streams_ = 0;
};

inline std::string place_name(const testing::TestParamInfo<Place>& info) { return testing::PrintToString(info.param); }

// The places that this build has, of these engines; none named: of all.
inline std::vector<Place> places(const std::vector<std::string>& of = {}) {
  std::vector<Place> all;
  for (const auto& engine : engines()) {
    if (!of.empty() && std::find(of.begin(), of.end(), engine.name) == of.end()) continue;
    if (!engine.has_planes) {
      all.push_back({engine.name, DataPlane::automatic});
      continue;
    }
    for (const auto plane : {DataPlane::shm, DataPlane::tcp}) all.push_back({engine.name, plane});
#ifdef PENSTOCK_HAVE_UCX
    all.push_back({engine.name, DataPlane::ucx});
#endif
  }
  return all;
}

// Instantiates a suite for every engine: PENSTOCK_SCENARIOS(Suite), or for those named, where the contract of others
// differs (scenarios.yaml says how): PENSTOCK_SCENARIOS(Suite, "direct").
#define PENSTOCK_SCENARIOS(Suite, ...) \
  INSTANTIATE_TEST_SUITE_P(planes, Suite, testing::ValuesIn(scenario::places({__VA_ARGS__})), scenario::place_name)

// An array whose elements say where they are and of which step.
template <class T = double>
std::vector<T> numbered(std::uint64_t elements, std::uint64_t step = 0) {
  std::vector<T> values(elements);
  for (std::uint64_t i = 0; i < elements; ++i) values[i] = static_cast<T>(i + 1000 * step);
  return values;
}

template <class Body>
Errc code_of(Body body) {
  try {
    body();
  } catch (const Error& e) {
    return e.code();
  }
  return Errc::ok;
}

}  // namespace penstock::scenario
