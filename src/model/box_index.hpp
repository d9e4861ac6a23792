// A packed tree of bounding boxes that answers "which boxes touch this one" without looking at all of them.
//
// Immutable once built, safe to query from any thread. Leaves hold the boxes along a space-filling (Morton) curve; each
// node above bounds `fan_out` below it, as in Kamel and Faloutsos' packed R-tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::model {

class BoxIndex {
 public:
  static constexpr std::size_t fan_out = 16;

  BoxIndex() = default;
  // Boxes are valid and of the same dimensions; empty ones keep their number and are never found.
  explicit BoxIndex(std::span<const Box> boxes);

  // Appends the numbers of the boxes that share an element with `box`, ascending.
  void query(const Box& box, std::vector<std::uint32_t>& out) const;
  // Calls see for each box that shares an element with `box`, in curve order, until it returns false.
  void for_each(const Box& box, const std::function<bool(const Box&)>& see) const;
  // The highest number of a box that holds the point, or -1.
  std::int64_t last_holding(const std::uint64_t* point) const;
  // True when two boxes share an element; also true when finding out would take more than about `budget` looks.
  bool any_overlap(std::uint64_t budget = 50'000'000) const;
  std::size_t size() const { return numbers_.size(); }  // without empty boxes
  std::size_t memory_bytes() const;

 private:
  // Of each node: the lowest place in each dimension, then the end in each dimension.
  struct Level {
    std::size_t nodes;
    std::vector<std::uint64_t> bounds;
  };
  // Returns how many bounds it looked at.
  template <class Visit>
  std::uint64_t visit(const std::uint64_t* low, const std::uint64_t* high, Visit&& visit) const;
  template <class Visit>
  void visit_box(const Box& box, Visit&& see) const;
  bool touches(const std::uint64_t* bounds, const std::uint64_t* low, const std::uint64_t* high) const;

  std::size_t dims_ = 0;
  std::vector<std::uint32_t> numbers_;  // of the leaves, in curve order
  std::vector<Level> levels_;           // leaves first; the last has at most fan_out nodes
};

}  // namespace penstock::model
