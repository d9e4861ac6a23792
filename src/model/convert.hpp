// Conversions of elements from one type to another.
//
// Without a check every value has a result: integers wrap, a float becomes the nearest integer towards zero within the range
// (NaN: 0), floats are rounded to nearest even and become infinite beyond the range, and whatever is not zero becomes true.
// Integers, floats and bool convert to each other, complex numbers to complex numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/copy.hpp"
#include "penstock/conversion.hpp"
#include "penstock/types.hpp"

namespace penstock::model {

using Check = ConversionCheck;

// `run` is null for equal types. Throws Error(unsupported) for types that do not convert.
Conversion conversion_between(DType dst, DType src, Check check = Check::none);

// Converts count elements of one dimension; steps are bytes between elements. dst_size: bytes of a destination element.
// stream: bypass the caches (stream_fence() is the caller's).
bool convert_strided(const Conversion& conversion, std::byte* dst, std::int64_t dst_step, std::size_t dst_size,
                     const std::byte* src, std::int64_t src_step, std::uint64_t count, bool stream);

}  // namespace penstock::model
