// Blocks of an adaptive grid as the analysis of fragments sees them: where they are, who touches whom, the numbers of cells.
//
// Blocks have equal numbers of cells; a block of level l has cells of half the width of level l - 1, and lies at `index`, counted in
// blocks of its level. Blocks that touch, across a face, an edge or a corner, differ by one level at most. Where no block is, the
// domain ends. Cells are numbered over the whole domain, so that every rank gives a cell the same number.
//
// Pure; any thread. Errors: Error(invalid_argument), which names the block and what is wrong.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/mesh.hpp"

namespace penstock::analysis {

using Index3 = std::array<std::int32_t, 3>;  // x, y, z
using Point3 = std::array<double, 3>;

constexpr int max_block_cells = 64;  // along an axis

struct BlockKey {
  std::int32_t level = 0;
  Index3 index{};

  bool operator==(const BlockKey&) const = default;
};

// What all blocks share.
struct AmrGrid {
  Index3 cells{8, 8, 8};    // of a block, without ghost layers
  Point3 origin{};          // the lower corner of the block 0, 0, 0
  Point3 spacing{1, 1, 1};  // of the cells of level 0
  std::int32_t depth = 0;   // no block is of a higher level; the same on all ranks, at most max_amr_depth

  Point3 width(std::int32_t level) const;  // of a cell
  // Arrays of a block with one layer of cells around it, x fastest: how many, and where cell x, y, z (from -1 to cells) is.
  std::size_t padded_cells() const { return std::size_t(cells[0] + 2) * (cells[1] + 2) * (cells[2] + 2); }
  std::size_t padded_place(std::int32_t x, std::int32_t y, std::int32_t z) const {
    return (std::size_t(z + 1) * (cells[1] + 2) + (y + 1)) * (cells[0] + 2) + (x + 1);
  }
};

// The place of the block's lower corner on a Z curve, counted in blocks of the level `depth`: bit 0 is of x, 1 of y, 2 of z. The
// block covers the numbers from it up to 8^(depth - level) further.
std::uint64_t morton(const BlockKey& block, std::int32_t depth);

// A cell of a level: its place, counted in cells of that level.
struct Cell {
  std::int32_t level = 0;
  Index3 at{};
};

// The number of a cell: of its lower corner, counted in cells of the level `depth`; 20 bits for each axis, z the highest. Cells that
// do not overlap have different numbers.
using CellId = std::uint64_t;
CellId cell_id(const Cell& cell, std::int32_t depth);

// Where cells of a block, and places around it, lie in another block of its level or one coarser.
class CellPlaces {
 public:
  CellPlaces(const AmrGrid& grid, const BlockKey& block, const BlockKey& other) : shift_(block.level - other.level) {
    for (int axis = 0; axis < 3; ++axis) {
      first_[axis] = block.index[axis] * grid.cells[axis];
      other_first_[axis] = other.index[axis] * grid.cells[axis];
    }
  }
  // place: along the axis, counted from the block's first cell.
  std::int32_t along(int axis, std::int32_t place) const {
    return ((first_[axis] + place) >> shift_) - other_first_[axis];
  }

 private:
  int shift_;
  Index3 first_, other_first_;
};

// The 26 directions to neighbours, and 0, 0, 0 in the middle: number 13. x changes fastest.
constexpr int directions = 27;
constexpr int direction_number(int x, int y, int z) { return (z + 1) * 9 + (y + 1) * 3 + x + 1; }
Index3 direction(int number);

// Calls with x, y, z of each cell that the padded array of a block has in a direction.
template <class Each>
void for_padded_cells(const AmrGrid& grid, const Index3& towards, Each&& each) {
  Index3 first{}, end{};
  for (int axis = 0; axis < 3; ++axis) {
    first[axis] = towards[axis] < 0 ? -1 : towards[axis] > 0 ? grid.cells[axis] : 0;
    end[axis] = towards[axis] == 0 ? grid.cells[axis] : first[axis] + 1;
  }
  for (auto z = first[2]; z < end[2]; ++z)
    for (auto y = first[1]; y < end[1]; ++y)
      for (auto x = first[0]; x < end[0]; ++x) each(x, y, z);
}

// What touches a block, by direction: a row (of the same level, or one coarser), or one of these.
constexpr std::int32_t no_block = -1;                     // the domain ends
constexpr std::int32_t finer_block = -2;                  // blocks one level finer
using Neighbours = std::array<std::int32_t, directions>;  // the block itself in the middle

// The blocks that a rank has at hand: those it analyses, and those that touch them.
class AmrBlocks {
 public:
  // The first `own` blocks are analysed; the others touch them: all of these have to be there. Throws when blocks overlap, when
  // neighbours of own blocks differ by more than a level, or for what the grid cannot number.
  AmrBlocks(const AmrGrid& grid, std::vector<BlockKey> blocks, std::size_t own);

  const AmrGrid& grid() const { return grid_; }
  std::span<const BlockKey> blocks() const { return blocks_; }
  std::size_t own() const { return own_; }
  std::size_t size() const { return blocks_.size(); }
  // Of an own block.
  const Neighbours& neighbours(std::size_t row) const { return neighbours_[row]; }

 private:
  AmrGrid grid_;
  std::vector<BlockKey> blocks_;
  std::size_t own_;
  std::vector<Neighbours> neighbours_;
};

// Which of `others` touch one of `blocks`, in their order.
std::vector<std::size_t> touching(std::span<const BlockKey> blocks, std::span<const BlockKey> others,
                                  std::int32_t depth);

// Which ranks may have blocks that touch one of `blocks`: sorted. splits: for each rank the Morton number of its first block; ranks
// have consecutive parts of the curve; one without blocks has the number of the next. Two ranks name each other or do not.
std::vector<std::int32_t> touching_ranks(std::span<const BlockKey> blocks, std::span<const std::uint64_t> splits,
                                         std::int32_t depth);

}  // namespace penstock::analysis
