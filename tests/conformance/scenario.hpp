// What the stream scenarios share: a directory of their own, a writer and readers on threads, planes to run over.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <numeric>
#include <string>
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

// Parametrised by plane. Every scenario uses options(), so that adding a plane is one line below.
class Scenario : public testing::TestWithParam<DataPlane> {
 protected:
  ContextOptions context_options() const {
    ContextOptions options;
    options.directory = scratch_.path();
    options.listen = "127.0.0.1";
    return options;
  }
  StreamOptions options() const {
    StreamOptions options;
    options.data_plane = GetParam();
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
  // M writer ranks and N reader ranks, as threads.
  void cohorts(int m, int n, const std::function<void(Writer&, int)>& write,
               const std::function<void(Reader&, int)>& read) {
    Context context(context_options());
    together({[&] {
                run_thread_cohort(m, [&](std::shared_ptr<Cohort> cohort) {
                  auto writer = context.create_stream("s", cohort, options());
                  write(writer, cohort->rank());
                  writer.close();
                });
              },
              [&] {
                run_thread_cohort(n, [&](std::shared_ptr<Cohort> cohort) {
                  auto reader = context.open_stream("s", cohort, options());
                  read(reader, cohort->rank());
                });
              }});
  }
  ScratchDirectory scratch_;
};

inline std::string plane_name(const testing::TestParamInfo<DataPlane>& info) {
  return info.param == DataPlane::shm ? "shm" : "tcp";
}

#define PENSTOCK_SCENARIOS(Suite) \
  INSTANTIATE_TEST_SUITE_P(planes, Suite, testing::Values(DataPlane::shm, DataPlane::tcp), scenario::plane_name)

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
