// What the tests of compute share: real worker processes, and a table of scenarios and results.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/test_support.hpp"
#include "memory/segment.hpp"
#include "pool/compute/compute_workers.hpp"

namespace penstock::pool::compute {

// The test's row of build/compute-table.md. Tests run as processes of their own, some at once.
inline void record(const std::string& scenario, const std::string& result) {
  const memory::UniqueFd lock(::open(COMPUTE_TABLE ".lock", O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ::flock(lock.get(), LOCK_EX);
  std::map<std::string, std::string> rows;
  std::ifstream in(COMPUTE_TABLE);
  for (std::string line; std::getline(in, line);) {
    const auto bar = line.find(" | ", 2);
    if (line.starts_with("| ") && bar != std::string::npos && !line.starts_with("| Scenario"))
      rows[line.substr(2, bar - 2)] = line.substr(bar + 3, line.size() - bar - 5);
  }
  std::string cell = result;
  for (char& c : cell)
    if (c == '|' || c == '\n') c = ' ';
  rows[scenario] = cell;
  std::ofstream out(COMPUTE_TABLE, std::ios::trunc);
  out << "| Scenario | Result |\n|---|---|\n";
  for (const auto& [name, text] : rows) out << "| " << name << " | " << text << " |\n";
}

// Bytes in a memory file, as a server's slab has them, at an odd page.
template <class T>
ComputeInput slab_input(std::string name, const std::vector<T>& values, Dims shape, std::uint64_t offset = 4096) {
  ComputeInput input;
  input.name = std::move(name);
  const auto bytes = values.size() * sizeof(T);
  const auto segment = std::make_shared<memory::Segment>(memory::Segment::create(offset + bytes + 1));
  if (bytes != 0) std::memcpy(segment->data() + offset, values.data(), bytes);
  input.dtype = dtype_of<T>();
  input.shape = shape;
  input.bytes = {segment->data() + offset, bytes};
  input.fd = segment->fd();
  input.offset = offset;
  input.owner = segment;
  return input;
}

// Bytes on the heap.
template <class T>
ComputeInput heap_input(std::string name, const std::vector<T>& values, Dims shape) {
  ComputeInput input;
  const auto kept = std::make_shared<std::vector<T>>(values);
  input.name = std::move(name);
  input.dtype = dtype_of<T>();
  input.shape = shape;
  input.bytes = std::as_bytes(std::span(*kept));
  input.owner = kept;
  return input;
}

template <class T>
std::vector<T> values_of(const ComputeResult& result) {
  EXPECT_EQ(result.dtype, dtype_of<T>());
  std::vector<T> values(result.bytes.size() / sizeof(T));
  std::memcpy(values.data(), result.bytes.data(), values.size() * sizeof(T));
  return values;
}

inline std::string text_of(const ComputeResult& result) {
  return {reinterpret_cast<const char*>(result.bytes.data()), result.bytes.size()};
}

// A Python that has NumPy: the one that scripts/run_tests names (.venv's), or the one CMake found; "" if it has none.
inline const std::string& python() {
  static const std::string found = [] {
    const char* named = std::getenv("PENSTOCK_TEST_PYTHON");
    const std::string python = named != nullptr ? named : COMPUTE_PYTHON;
    return std::system((python + " -c 'import numpy' 2>/dev/null").c_str()) == 0 ? python : "";
  }();
  return found;
}

class ComputeFixture : public ::testing::Test {
 protected:
  ComputeFixture() {
    options.worker_program = COMPUTE_WORKER;
    options.plugins = {COMPUTE_PLUGIN};
    options.python = python();
    options.python_worker = COMPUTE_PYTHON_WORKER;
    options.workers = 2;
  }
  ~ComputeFixture() override {
    futures.clear();
    workers.reset();
    progress.call([] {});  // calls that were cut off have ended, and with the last of them the workers were reaped
    EXPECT_TRUE(::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD) << "a worker survived, or was not reaped";
  }
  void use_python(std::initializer_list<std::string> names) {
    for (const auto& name : names) options.python_functions["py_" + name] = {COMPUTE_PYTHON_FUNCTIONS, name};
  }

  ComputeWorkers& compute() {
    if (!workers) workers = std::make_unique<ComputeWorkers>(progress, threads, options);
    return *workers;
  }
  fabric::Future<ComputeResult> start(const std::string& function, std::vector<ComputeInput> inputs = {},
                                      const std::string& arguments = "", std::optional<ComputeLimits> limits = {},
                                      base::Deadline deadline = soon()) {
    ComputeRequest request{function, arguments, std::move(inputs), limits};
    return fabric::spawn(progress, compute().run(std::move(request), deadline));
  }
  template <class... A>
  ComputeResult run(A&&... arguments) {
    return start(std::forward<A>(arguments)...).get(soon());
  }
  template <class... A>
  std::string fails_with(Errc code, A&&... arguments) {
    try {
      run(std::forward<A>(arguments)...);
    } catch (const Error& error) {
      EXPECT_EQ(name_of(error.code()), name_of(code)) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "it did not fail";
    return "";
  }
  ComputeStatistics statistics() {
    ComputeStatistics copy;
    progress.call([&] { copy = compute().statistics(); });
    return copy;
  }
  // The server goes on: another call works.
  void expect_unharmed() {
    EXPECT_DOUBLE_EQ(values_of<double>(run("energy", std::vector{heap_input<double>("x", {3, 4}, {2})}))[0], 25);
  }

  fabric::Progress progress;
  fabric::Workers threads{progress, 2};
  ComputeOptions options;
  std::unique_ptr<ComputeWorkers> workers;
  std::vector<fabric::Future<ComputeResult>> futures;
};

}  // namespace penstock::pool::compute
