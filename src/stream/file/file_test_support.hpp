// What the tests of the file engine share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/test_support.hpp"
#include "penstock/penstock.hpp"
#include "stream/file/hdf5_part.hpp"

namespace penstock::stream {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    if (penstock_file_part == nullptr) GTEST_SKIP() << "built without HDF5 (Debian: libhdf5-dev)";
  }
  ContextOptions context_options() const {
    ContextOptions options;
    options.directory = folder_.path();
    options.listen = "127.0.0.1";
    return options;
  }
  StreamOptions options(const std::function<void(StreamOptions&)>& change = [](StreamOptions&) {}) const {
    StreamOptions options;
    options.engine = "file";
    options.folder = steps_;
    options.open_timeout_ms = options.step_timeout_ms = options.close_timeout_ms = 20'000;
    change(options);
    return options;
  }
  // Steps of one rank, in which T is shape {4, 6} and every element of step t is 100 t + its place.
  void write_steps(std::uint64_t steps, const StreamOptions& options, bool close = true) {
    auto writer = context_.create_stream("heat", solo(), options);
    const auto T = writer.define<double>("T", {4, 6});
    for (std::uint64_t t = 0; t < steps; ++t) {
      auto step = writer.begin_step();
      step.put(T, values_of(step.number()).data());
      step.end();
    }
    if (close) writer.close();
    else writer.lose();
  }
  static std::vector<double> values_of(std::uint64_t step) {
    std::vector<double> values(24);
    std::iota(values.begin(), values.end(), 100.0 * static_cast<double>(step));
    return values;
  }
  static std::vector<double> read_T(ReadStep& step) {
    std::vector<double> values(24);
    step.get(step.variable("T").id, Selection::all(), values.data());
    step.wait();
    return values;
  }

  SilentLog silent_;
  TestFolder folder_;
  const std::string steps_ = folder_ / "heat.steps";
  Context context_{context_options()};
};

}  // namespace penstock::stream
