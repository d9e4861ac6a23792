// Which part of a box other boxes leave uncovered. Pure; any thread. Boxes are valid (model::is_valid).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::space {

struct Missing {
  std::vector<Box> boxes;  // disjoint; neighbours are joined where that is easy
  bool complete = true;    // false: more may be missing than these
};

// The part of `wanted` that no box of `there` holds. Boxes of `there` may overlap each other and `wanted`; those of other
// dimensions hold nothing. Stops after `most` missing boxes, and when about `budget` boxes were looked at: n boxes of a grid take
// some n log2(n) looks. An empty box misses nothing.
Missing missing(const Box& wanted, std::span<const Box> there,
                std::size_t most = std::numeric_limits<std::size_t>::max(), std::uint64_t budget = 50'000'000);

}  // namespace penstock::space
