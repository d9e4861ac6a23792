// Space-filling curves: places of a grid to one number, such that places with numbers near each other are near each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "penstock/types.hpp"

namespace penstock::model {

using GridPlace = std::array<std::uint64_t, max_dims>;

// The place's number on a Morton curve: the lowest `bits` bits of each coordinate, interleaved, the first coordinate's first.
// dims * bits is at most 64.
inline std::uint64_t morton(const GridPlace& place, std::size_t dims, std::size_t bits) {
  std::uint64_t along = 0;
  for (std::size_t bit = bits; bit-- > 0;)
    for (std::size_t d = 0; d < dims; ++d) along = along << 1 | (place[d] >> bit & 1);
  return along;
}

// The place's number on a Hilbert curve through the cube of 2^bits places a side: numbers that follow each other are of places
// that differ by one in one coordinate. Source: J. Skilling, Programming the Hilbert curve, AIP Conf. Proc. 707, 2004.
inline std::uint64_t hilbert(GridPlace place, std::size_t dims, std::size_t bits) {
  // From the largest cubes to the smallest: turns each half that is passed the other way round back to the curve's direction.
  for (std::size_t bit = bits; bit-- > 1;) {
    const std::uint64_t below = (std::uint64_t{1} << bit) - 1;
    for (std::size_t d = 0; d < dims; ++d) {
      if (place[d] >> bit & 1) {
        place[0] ^= below;
      } else {
        const std::uint64_t differ = (place[0] ^ place[d]) & below;
        place[0] ^= differ;
        place[d] ^= differ;
      }
    }
  }
  // The halves of a cube are in the order of a Gray code.
  for (std::size_t d = 1; d < dims; ++d) place[d] ^= place[d - 1];
  std::uint64_t flips = 0;
  for (std::size_t bit = bits; bit-- > 1;)
    if (dims > 0 && (place[dims - 1] >> bit & 1)) flips ^= (std::uint64_t{1} << bit) - 1;
  for (std::size_t d = 0; d < dims; ++d) place[d] ^= flips;
  return morton(place, dims, bits);
}

}  // namespace penstock::model
