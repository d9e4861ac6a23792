// Disjoint sets of the numbers 0, 1, ...: which are joined (union-find). A set's root is its lowest number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace penstock::analysis {

class DisjointSets {
 public:
  explicit DisjointSets(std::size_t size) : parents_(size) { std::iota(parents_.begin(), parents_.end(), 0); }

  std::size_t size() const { return parents_.size(); }
  std::int32_t root(std::int32_t number) {
    while (parents_[number] != number) number = parents_[number] = parents_[parents_[number]];
    return number;
  }
  void join(std::int32_t a, std::int32_t b) {
    a = root(a);
    b = root(b);
    parents_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::int32_t> parents_;  // not above the number itself
};

}  // namespace penstock::analysis
