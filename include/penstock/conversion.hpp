// Conversions of elements from one type to another: what their callers choose.
#pragma once

#include <cstdint>

namespace penstock {

// Which elements a conversion refuses.
enum class ConversionCheck : std::uint8_t {
  none,
  range,  // a value outside the type: also NaN and infinity for an integer, and all but 0 and 1 for bool
  exact,  // also a value that the type cannot hold exactly; NaN is held by every float
};

}  // namespace penstock
