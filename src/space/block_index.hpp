// The blocks of one part of a version: which of them meet a box, and how much of it they hold.
//
// Blocks are disjoint (whoever inserts has asked first_met), come one by one and go all at once. The newest few are a list; the
// others lie in packed trees (model::BoxIndex) of twice, four times ... as many, which are packed together as the list fills: the
// logarithmic method of Bentley and Saxe (1980). A tree has at most largest_tree blocks, so that no insert packs for long; the
// price is one search in each tree (docs/internals/space.md has the figures). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "model/box_index.hpp"

namespace penstock::space {

class BlockIndex {
 public:
  static constexpr std::size_t longest_list = 32;
  static constexpr std::size_t largest_tree = std::size_t{1} << 16;

  // A valid box that is not empty, of the dimensions of those before it.
  void insert(const Box& block);
  // Calls see for each block that shares an element with the box, in no order, until it returns false.
  void for_each(const Box& box, const std::function<bool(const Box&)>& see) const;
  std::optional<Box> first_met(const Box& box) const;
  // How many elements of the box blocks hold: it is covered when that is all of them.
  std::uint64_t covered(const Box& box) const;
  std::size_t size() const;
  std::size_t memory_bytes() const;

 private:
  std::vector<Box> list_;
  std::vector<model::BoxIndex> trees_;  // smaller and smaller, after the largest
};

}  // namespace penstock::space
