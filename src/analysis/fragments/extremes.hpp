// The points of a fragment's surface that lie farthest in fixed directions, from which its hull and its oriented box are estimated.
//
// The directions are the corners of an icosahedron whose faces are divided twice. In each, the vertex with the greatest projection
// is kept; of equals, the one with the lowest number. Values; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"

namespace penstock::analysis {

constexpr std::size_t extreme_directions = 162;

struct ExtremePoint {
  std::int32_t component = 0;
  std::uint64_t vertex = 0;  // its number
  Point3 at{};
  auto operator<=>(const ExtremePoint&) const = default;
};

// Unit vectors.
std::span<const Point3> directions_of_extremes();

// Points of many components, of which only the extreme ones are kept.
class ExtremePoints {
 public:
  void add(const ExtremePoint& point);
  // Ordered by component and vertex; each vertex of a component once.
  std::vector<ExtremePoint> take();

 private:
  void drop_others();

  std::vector<ExtremePoint> points_;
  std::size_t most_ = 1 << 16;  // points, before others are dropped
};

}  // namespace penstock::analysis
