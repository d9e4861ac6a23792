// What the tests of this module share: streams of engine insitu in one process, and an array with halos to lend.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/test_support.hpp"
#include "penstock/penstock.hpp"

namespace penstock::stream {

// The inside of a two-dimensional array with a halo of one element.
struct Halo {
  Dims inside;
  std::vector<double> all;
  explicit Halo(Dims count, double first = 0) : inside(count), all((count[0] + 2) * (count[1] + 2)) {
    std::iota(all.begin(), all.end(), first);
  }
  std::uint64_t row() const { return inside[1] + 2; }
  double* data() { return all.data() + row() + 1; }
  std::vector<std::int64_t> strides() const {
    return {static_cast<std::int64_t>(row() * sizeof(double)), sizeof(double)};
  }
  double at(std::uint64_t i, std::uint64_t j) const { return all[(i + 1) * row() + j + 1]; }
};

class InsituTest : public testing::Test {
 protected:
  static StreamOptions with(const std::function<void(StreamOptions&)>& change = [](auto&) {}) {
    StreamOptions options;
    options.engine = "insitu";
    options.open_timeout_ms = options.step_timeout_ms = options.close_timeout_ms = 20'000;
    change(options);
    return options;
  }
  ContextOptions context_options() const {
    ContextOptions options;
    options.directory = folder_.path();
    options.listen = "127.0.0.1";
    return options;
  }
  // One step, of one array that is lent.
  static void write(Writer& writer, Variable<double> v, Halo& halo, const Box& box) {
    auto step = writer.begin_step();
    step.lend(v, box, halo.data(), halo.strides());
    step.end();
  }
  static void write(Writer& writer, Variable<double> v, Halo& halo) { write(writer, v, halo, whole(halo.inside)); }

  SilentLog silent_;
  TestFolder folder_;
  Context context_{context_options()};
};

}  // namespace penstock::stream
