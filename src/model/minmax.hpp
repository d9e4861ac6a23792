// Minimum and maximum of a block's elements. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/stream.hpp"
#include "penstock/types.hpp"

namespace penstock::model {

// data: count packed elements. NaN is ignored; empty when nothing but NaN was found, for no elements, and for complex
// numbers and strings, which have no order.
std::optional<MinMax> compute_min_max(DType dtype, const void* data, std::uint64_t count);

// Widens `into` to hold `other`; an empty side changes nothing. Both of the same type.
void merge(std::optional<MinMax>& into, const std::optional<MinMax>& other);

}  // namespace penstock::model
