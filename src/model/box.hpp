// Arithmetic of boxes (start and count in each dimension). Pure functions; a box is well formed when start and count
// have the same number of dimensions and no start + count overflows, which is_valid checks and the others assume.
#pragma once

#include <optional>
#include <string>

#include "penstock/types.hpp"

namespace penstock::model {

// Well formed, and its element count fits in 64 bits.
bool is_valid(const Box& box);
// Valid, of the shape's dimensions, and inside it.
bool is_within(const Box& box, const Dims& shape);
// True when some count is zero (never for no dimensions).
bool is_empty(const Box& box);
// Empty when the boxes share no element or differ in dimensions.
std::optional<Box> intersect(const Box& a, const Box& b);
bool contains(const Box& outer, const Box& inner);
bool contains(const Box& outer, const std::uint64_t* point);
// "[0, 4) x [8, 16)".
std::string to_string(const Box& box);

}  // namespace penstock::model
