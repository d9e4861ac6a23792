// A field of blocks, read in place: one array for each block, of any strides.
//
// Owns no values: the arrays outlive it. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"
#include "penstock/types.hpp"

namespace penstock::analysis {

// Where the first cell of a block is (behind its ghost layers), and the bytes between neighbours along x, y, z.
struct BlockArray {
  const std::byte* first = nullptr;
  std::array<std::ptrdiff_t, 3> strides{};
};

constexpr double fraction_byte_unit = 255;  // of fractions that are uint8

class BlockField {
 public:
  // arrays: one for each row of the blocks. type: float64, float32, or uint8, whose values are divided by byte_unit.
  // component_stride: bytes between the components of a cell. Throws for other types.
  BlockField(DType type, std::vector<BlockArray> arrays, std::ptrdiff_t component_stride = 0, double byte_unit = 1);

  std::size_t rows() const { return arrays_.size(); }

  // The values of a block's cells, x fastest.
  void read(const AmrGrid& grid, std::size_t row, std::vector<double>& values, int component = 0) const;

  // The same with one layer of cells around it (AmrGrid::padded_place), as the block's level sees it: cells of neighbours of this
  // level, or the coarser cell that covers the place. Below any threshold (-inf) outside the domain; 0 where finer blocks are.
  void read_padded(const AmrBlocks& blocks, std::size_t row, std::vector<double>& values) const;

 private:
  DType type_;
  std::vector<BlockArray> arrays_;
  std::ptrdiff_t component_stride_;
  double byte_unit_;
};

}  // namespace penstock::analysis
