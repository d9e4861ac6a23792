// The two-dimensional kernel under copies between row-major and column-major arrays, and between arrays of structures
// and structures of arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/copy.hpp"

namespace penstock::model {

// For r < rows, c < columns: the element at src + r * src_row + c * src_column goes to dst + r * dst_row + c * dst_column.
// Meant for src_row and dst_column being the smallest strides of their sides; correct for any.
struct Plane {
  std::byte* dst;
  std::int64_t dst_row, dst_column;
  const std::byte* src;
  std::int64_t src_row, src_column;
  std::uint64_t rows, columns;
  bool stream;  // bypass the caches; stream_fence() is the caller's
  Conversion conversion;
};

// elem_size, of the destination, is 1, 2, 4, 8 or 16; elements need no alignment. Returns false when the conversion refused
// an element.
bool transpose_2d(const Plane& plane, std::size_t elem_size);

}  // namespace penstock::model
