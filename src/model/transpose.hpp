// The two-dimensional kernel under copies between row-major and column-major arrays, and between arrays of structures
// and structures of arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/copy.hpp"

namespace penstock::model {

// For r < rows, c < columns: an element of the source goes to one of the destination. Rows lie src_row apart at the source, and
// dst_row apart at the destination, where every row_run of them begin dst_row_run behind the ones before; columns the same with
// the sides exchanged. Meant for src_row and dst_column being the smallest strides of their sides; correct for any.
struct Plane {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  std::uint64_t rows = 0, row_run = 0;
  std::int64_t src_row = 0, dst_row = 0, dst_row_run = 0;
  std::uint64_t columns = 0, column_run = 0;
  std::int64_t dst_column = 0, src_column = 0, src_column_run = 0;
  bool stream = false;  // bypass the caches; stream_fence() is the caller's
  Conversion conversion;

  std::int64_t dst_offset(std::uint64_t row) const {
    return static_cast<std::int64_t>(row / row_run) * dst_row_run + static_cast<std::int64_t>(row % row_run) * dst_row;
  }
  std::int64_t src_offset(std::uint64_t column) const {
    return static_cast<std::int64_t>(column / column_run) * src_column_run +
           static_cast<std::int64_t>(column % column_run) * src_column;
  }
};

// elem_size, of the destination, is 1, 2, 4, 8 or 16; elements need no alignment. Returns false when the conversion refused
// an element.
bool transpose_2d(const Plane& plane, std::size_t elem_size);

}  // namespace penstock::model
