#include "analysis/fragments/amr_blocks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "analysis/refuse.hpp"
#include "model/curve.hpp"

namespace penstock::analysis {
namespace {

// Of a cell's number, for each axis: cells of deeper levels have none.
constexpr int id_bits = max_amr_depth;

std::string name_of(const BlockKey& block) {
  return "the block " + std::to_string(block.index[0]) + ", " + std::to_string(block.index[1]) + ", " +
         std::to_string(block.index[2]) + " of level " + std::to_string(block.level);
}

std::uint64_t extent_on_curve(const BlockKey& block, std::int32_t depth) {
  return std::uint64_t{1} << 3 * (depth - block.level);
}

std::optional<BlockKey> shifted(const BlockKey& block, const Index3& by) {
  BlockKey out = block;
  for (int axis = 0; axis < 3; ++axis)
    if ((out.index[axis] += by[axis]) < 0) return std::nullopt;
  return out;
}

bool covers(const BlockKey& block, const BlockKey& part) {
  if (block.level > part.level) return false;
  for (int axis = 0; axis < 3; ++axis)
    if (part.index[axis] >> (part.level - block.level) != block.index[axis]) return false;
  return true;
}

// The children of the block's neighbour in a direction that touch the block.
template <class Each>
void for_touching_children(const BlockKey& neighbour, const Index3& towards, Each&& each) {
  for (int octant = 0; octant < 8; ++octant) {
    BlockKey child{neighbour.level + 1, {}};
    bool touches = true;
    for (int axis = 0; axis < 3; ++axis) {
      const int upper = octant >> axis & 1;
      touches = touches && towards[axis] != (upper == 1 ? 1 : -1);
      child.index[axis] = 2 * neighbour.index[axis] + upper;
    }
    if (touches) each(child);
  }
}

// Blocks along the Z curve.
class Curve {
 public:
  Curve(std::span<const BlockKey> blocks, std::int32_t depth) : blocks_(blocks), depth_(depth), rows_(blocks.size()) {
    std::vector<std::uint64_t> of_rows(blocks.size());
    for (std::size_t row = 0; row < blocks.size(); ++row) of_rows[row] = morton(blocks[row], depth);
    std::iota(rows_.begin(), rows_.end(), 0);
    std::ranges::sort(rows_, {}, [&](std::int32_t row) { return std::pair(of_rows[row], blocks_[row].level); });
    for (const auto row : rows_) numbers_.push_back(of_rows[row]);
  }

  void check_overlaps() const {
    for (std::size_t i = 1; i < rows_.size(); ++i)
      if (const auto& before = blocks_[rows_[i - 1]]; covers(before, blocks_[rows_[i]]))
        refuse(name_of(blocks_[rows_[i]]) + " and " + name_of(before) + " overlap");
  }

  // The block that covers the place of this one; finer_block when a finer block lies there; or no_block.
  std::int32_t find(const BlockKey& block) const {
    const auto number = morton(block, depth_);
    const auto next = std::ranges::lower_bound(numbers_, number) - numbers_.begin();
    if (next < std::ssize(rows_)) {
      const auto row = rows_[next];
      if (covers(blocks_[row], block)) return row;
      if (numbers_[next] - number < extent_on_curve(block, depth_)) return finer_block;
    }
    if (next > 0 && covers(blocks_[rows_[next - 1]], block)) return rows_[next - 1];
    return no_block;
  }

 private:
  std::span<const BlockKey> blocks_;
  std::int32_t depth_;
  std::vector<std::int32_t> rows_;      // in the curve's order
  std::vector<std::uint64_t> numbers_;  // of these
};

void check_grid(const AmrGrid& grid) {
  if (grid.depth < 0 || grid.depth > id_bits)
    refuse("an adaptive grid has levels 0 to " + std::to_string(id_bits) + ", not " + std::to_string(grid.depth));
  for (int axis = 0; axis < 3; ++axis) {
    if (grid.cells[axis] < 2 || grid.cells[axis] > max_block_cells || grid.cells[axis] % 2 != 0)
      refuse("blocks have an even number of cells along each axis, from 2 to " + std::to_string(max_block_cells) +
             ", not " + std::to_string(grid.cells[axis]));
    if (!(grid.spacing[axis] > 0) || !std::isfinite(grid.spacing[axis]) || !std::isfinite(grid.origin[axis]))
      refuse("the spacing of an adaptive grid is positive, and its origin finite");
  }
}

void check_block(const AmrGrid& grid, const BlockKey& block) {
  if (block.level < 0 || block.level > grid.depth)
    refuse(name_of(block) + " is not of a level from 0 to " + std::to_string(grid.depth));
  for (int axis = 0; axis < 3; ++axis) {
    const auto end = (std::int64_t{block.index[axis]} + 1) * grid.cells[axis];
    if (block.index[axis] < 0 || end > (std::int64_t{1} << id_bits) >> (grid.depth - block.level))
      refuse(name_of(block) + " lies below 0, or beyond " + std::to_string(1 << id_bits) + " cells of level " +
             std::to_string(grid.depth) + " along an axis; declare as depth the level of the deepest blocks");
  }
}

// Checks places only; cells are not numbered here.
void check_places(std::span<const BlockKey> blocks, std::int32_t depth) {
  AmrGrid grid;
  grid.cells = {2, 2, 2};
  grid.depth = depth;
  check_grid(grid);
  for (const auto& block : blocks) check_block(grid, block);
}

// One level finer, all of those that touch the block.
void check_finer(const Curve& curve, std::span<const BlockKey> blocks, const BlockKey& block, const BlockKey& neighbour,
                 const Index3& towards) {
  for_touching_children(neighbour, towards, [&](const BlockKey& child) {
    const auto row = curve.find(child);
    if (row == finer_block)
      refuse(name_of(block) + " touches blocks of level " + std::to_string(block.level + 2) +
             " or more: neighbours may differ by one level");
    if (row < 0 || blocks[row].level != child.level)
      refuse(name_of(block) + " touches the place of " + name_of(child) + ", which is not there");
  });
}

}  // namespace

Point3 AmrGrid::width(std::int32_t level) const {
  return {std::ldexp(spacing[0], -level), std::ldexp(spacing[1], -level), std::ldexp(spacing[2], -level)};
}

std::uint64_t morton(const BlockKey& block, std::int32_t depth) {
  model::GridPlace place{};
  std::uint64_t all = 0;
  for (int axis = 0; axis < 3; ++axis)
    all |= place[2 - axis] = static_cast<std::uint64_t>(block.index[axis]) << (depth - block.level);
  return model::morton(place, 3, static_cast<std::size_t>(std::bit_width(all)));
}

CellId cell_id(const Cell& cell, std::int32_t depth) {
  CellId id = 0;
  for (int axis = 2; axis >= 0; --axis) id = id << id_bits | static_cast<CellId>(cell.at[axis]) << (depth - cell.level);
  return id;
}

Index3 direction(int number) { return {number % 3 - 1, number / 3 % 3 - 1, number / 9 - 1}; }

AmrBlocks::AmrBlocks(const AmrGrid& grid, std::vector<BlockKey> blocks, std::size_t own)
    : grid_(grid), blocks_(std::move(blocks)), own_(own), neighbours_(own) {
  if (own > blocks_.size()) refuse("there are fewer blocks than own ones");
  check_grid(grid_);
  for (const auto& block : blocks_) check_block(grid_, block);
  const Curve curve(blocks_, grid_.depth);
  curve.check_overlaps();
  for (std::size_t row = 0; row < own_; ++row)
    for (int number = 0; number < directions; ++number) {
      const BlockKey& block = blocks_[row];
      const auto neighbour = shifted(block, direction(number));
      const auto found = neighbour ? curve.find(*neighbour) : no_block;
      neighbours_[row][number] = found;
      if (found == finer_block) check_finer(curve, blocks_, block, *neighbour, direction(number));
      if (found >= 0 && blocks_[found].level < block.level - 1)
        refuse(name_of(block) + " touches " + name_of(blocks_[found]) + ": neighbours may differ by one level");
    }
}

std::vector<std::size_t> touching(std::span<const BlockKey> blocks, std::span<const BlockKey> others,
                                  std::int32_t depth) {
  check_places(blocks, depth);
  check_places(others, depth);
  const Curve curve(blocks, depth);
  const auto touches = [&](const BlockKey& other) {
    for (int number = 0; number < directions; ++number) {
      const auto neighbour = shifted(other, direction(number));
      if (!neighbour) continue;
      const auto found = curve.find(*neighbour);
      if (found >= 0) return true;
      bool child = false;
      if (found == finer_block)
        for_touching_children(*neighbour, direction(number),
                              [&](const BlockKey& each) { child = child || curve.find(each) != no_block; });
      if (child) return true;
    }
    return false;
  };
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < others.size(); ++row)
    if (touches(others[row])) rows.push_back(row);
  return rows;
}

std::vector<std::int32_t> touching_ranks(std::span<const BlockKey> blocks, std::span<const std::uint64_t> splits,
                                         std::int32_t depth) {
  check_places(blocks, depth);
  std::vector<char> found(splits.size());
  const auto mark = [&](const BlockKey& block) {
    const auto owner = std::ranges::upper_bound(splits, morton(block, depth)) - splits.begin() - 1;
    if (owner >= 0) found[owner] = 1;
  };
  for (const auto& block : blocks)
    for (int number = 0; number < directions; ++number)
      if (const auto neighbour = shifted(block, direction(number))) {
        if (block.level == depth) mark(*neighbour);
        else for_touching_children(*neighbour, direction(number), mark);
      }
  std::vector<std::int32_t> ranks;
  for (std::size_t rank = 0; rank < found.size(); ++rank)
    if (found[rank]) ranks.push_back(static_cast<std::int32_t>(rank));
  return ranks;
}

}  // namespace penstock::analysis
