// The two-dimensional kernel under copies between row-major and column-major arrays, and between arrays of structures
// and structures of arrays.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::model {

// For r < rows, c < columns: copies the element at src + r * src_row + c * src_column to dst + r * dst_row + c *
// dst_column. Meant for src_row and dst_column being the smallest strides of their sides; correct for any. elem_size is
// 1, 2, 4, 8 or 16; elements need no alignment. stream: bypass the caches (stream_fence() is the caller's).
void transpose_2d(std::byte* dst, std::int64_t dst_row, std::int64_t dst_column, const std::byte* src,
                  std::int64_t src_row, std::int64_t src_column, std::uint64_t rows, std::uint64_t columns,
                  std::size_t elem_size, bool stream);

}  // namespace penstock::model
