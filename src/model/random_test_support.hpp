// For the property tests of this module: one seeded source of randomness, whose seed is printed when a test fails.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "model/copy.hpp"
#include "penstock/types.hpp"

namespace penstock::model {

// PENSTOCK_TEST_SEED repeats a run; otherwise each run tries new cases.
inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* text = std::getenv("PENSTOCK_TEST_SEED");
    return text ? std::strtoull(text, nullptr, 10) : std::uint64_t{std::random_device{}()};
  }();
  return seed;
}

class Random {
 public:
  explicit Random(std::uint64_t salt) : engine_(test_seed() * 1'000'003 + salt) {}
  // Inclusive.
  std::uint64_t from(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(engine_);
  }
  bool chance(unsigned percent) { return from(1, 100) <= percent; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[from(0, values.size() - 1)];
  }
  template <class Range>
  void shuffle(Range& range) {
    std::shuffle(range.begin(), range.end(), engine_);
  }
  void fill(std::vector<std::byte>& bytes) {
    for (auto& byte : bytes) byte = static_cast<std::byte>(from(0, 255));
  }
  // Few dimensions are likelier; many get small sizes, so that a case stays within some thousand elements.
  Dims shape() {
    const std::size_t dims = chance(85) ? from(1, 4) : from(5, max_dims);
    const std::uint64_t largest = dims == 1 ? 200 : dims == 2 ? 40 : dims == 3 ? 12 : dims == 4 ? 6 : 3;
    Dims shape = Dims::filled(dims, 0);
    for (auto& size : shape) size = from(1, largest);
    return shape;
  }
  Box box_in(const Dims& shape, unsigned empty_percent = 0) {
    Box box = whole(shape);
    for (std::size_t d = 0; d < shape.size(); ++d) {
      box.start[d] = from(0, shape[d] - 1);
      box.count[d] = from(1, shape[d] - box.start[d]);
    }
    if (!shape.empty() && chance(empty_percent)) box.count[from(0, shape.size() - 1)] = 0;
    return box;
  }
  // Strides of an array without aliasing: dimensions in any order, with gaps, some walked backwards. `first` becomes
  // the offset of element (0, ...) and `bytes` the room it needs.
  Strides strides(const Dims& count, std::size_t elem_size, std::int64_t& first, std::size_t& bytes,
                  unsigned backwards_percent = 25) {
    std::vector<std::size_t> order(count.size());
    for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
    shuffle(order);
    Strides strides{};
    std::int64_t next = static_cast<std::int64_t>(elem_size);
    first = 0;
    for (const auto d : order) {
      if (chance(20)) next += static_cast<std::int64_t>(from(0, 9));
      strides[d] = next;
      next *= static_cast<std::int64_t>(std::max<std::uint64_t>(count[d], 1));
      if (chance(backwards_percent) && count[d] > 0) {
        first += strides[d] * static_cast<std::int64_t>(count[d] - 1);
        strides[d] = -strides[d];
      }
    }
    bytes = static_cast<std::size_t>(next);
    return strides;
  }

 private:
  std::mt19937_64 engine_;
};

// Calls f(index) for every element of an array, the last index fastest.
template <class F>
void for_each_index(const Dims& count, F&& f) {
  if (std::find(count.begin(), count.end(), 0u) != count.end()) return;
  Dims index = Dims::filled(count.size(), 0);
  for (;;) {
    f(index);
    std::size_t d = count.size();
    for (;;) {
      if (d-- == 0) return;
      if (++index[d] < count[d]) break;
      index[d] = 0;
    }
  }
}

inline std::int64_t offset_of(const Dims& index, const Strides& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < index.size(); ++d) offset += static_cast<std::int64_t>(index[d]) * strides[d];
  return offset;
}

inline std::string seed_text(std::uint64_t round) {
  return "PENSTOCK_TEST_SEED=" + std::to_string(test_seed()) + " round " + std::to_string(round);
}

}  // namespace penstock::model
