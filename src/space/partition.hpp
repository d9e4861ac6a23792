// How an array is cut into parts, the units that a pool places on servers: a pure function of its shape and of a number of parts.
//
// The longest dimension is halved until there are enough parts, each a box of about the same lengths. Parts are numbered along a
// Hilbert curve, and a part's number (added to the array's own base) is the tag by which a pool places keys: tag modulo servers.
// Round robin along a Hilbert curve gives neighbours to different servers, so that many servers share in the reading of a plane or a
// cube of parts. Source: C. Faloutsos and P. Bhagwat, Declustering using fractals, PDIS 1993.
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::space {

inline constexpr std::uint32_t max_parts = 4096;

class Partition {
 public:
  // About `parts` parts (at least one, at most max_parts), and never more than the array has elements. Throws
  // Error(invalid_argument) when the shape's elements cannot be counted in 64 bits.
  Partition(const Dims& shape, std::uint32_t parts);

  const Dims& shape() const { return shape_; }
  std::uint32_t parts() const { return static_cast<std::uint32_t>(places_.size()); }
  Box box_of(std::uint32_t part) const;

  struct Piece {
    std::uint32_t part = 0;
    Box box;
  };
  // The box cut at the borders of parts, by part. Boxes here lie within the shape; an empty one has no pieces.
  std::vector<Piece> cut(const Box& box) const;

 private:
  Dims shape_;
  Dims length_;                         // of a part; shorter at the array's end
  Dims grid_;                           // parts in each dimension
  std::vector<std::uint32_t> numbers_;  // along the curve, by place in the grid (rows)
  std::vector<std::uint32_t> places_;   // the inverse
};

}  // namespace penstock::space
