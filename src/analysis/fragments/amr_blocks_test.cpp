#include "analysis/fragments/amr_blocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "analysis/fragments/block_field.hpp"
#include "analysis/fragments/fragments_test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::analysis {
namespace {

constexpr std::int32_t depth = 5;

std::array<std::int32_t, 6> box_of(const BlockKey& block) {
  std::array<std::int32_t, 6> box{};
  for (int axis = 0; axis < 3; ++axis) {
    box[2 * axis] = block.index[axis] << (depth - block.level);
    box[2 * axis + 1] = (block.index[axis] + 1) << (depth - block.level);
  }
  return box;
}

bool touch(const BlockKey& a, const BlockKey& b) {
  const auto one = box_of(a), other = box_of(b);
  for (int axis = 0; axis < 3; ++axis)
    if (one[2 * axis] > other[2 * axis + 1] || other[2 * axis] > one[2 * axis + 1]) return false;
  return true;
}

AmrGrid small_grid() {
  AmrGrid grid;
  grid.cells = {2, 4, 2};
  grid.depth = depth;
  return grid;
}

// Of 2 x 3 x 2 roots, along the curve.
std::vector<BlockKey> random_blocks(std::mt19937& random, int refinements) {
  Octree octree(small_grid(), {2, 3, 2});
  octree.refine_randomly(random, refinements);
  return octree.blocks();
}

TEST(AmrBlocks, NeighboursAreThoseThatTouch) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    auto keys = random_blocks(random, 8);
    std::ranges::shuffle(keys, random);
    const AmrBlocks blocks(small_grid(), keys, keys.size());
    for (std::size_t row = 0; row < keys.size(); ++row) {
      std::set<std::int32_t> expected, found;
      bool finer = false, finer_found = false;
      for (std::size_t other = 0; other < keys.size(); ++other)
        if (touch(keys[row], keys[other])) {
          if (keys[other].level <= keys[row].level) expected.insert(static_cast<std::int32_t>(other));
          else finer = true;
        }
      for (const auto each : blocks.neighbours(row)) {
        if (each >= 0) found.insert(each);
        finer_found = finer_found || each == finer_block;
      }
      EXPECT_EQ(found, expected);
      EXPECT_EQ(finer_found, finer);
    }
  }
}

TEST(AmrBlocks, RanksFindTheirNeighboursFromTheSplitsAlone) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto keys = random_blocks(random, 10);
    std::vector<std::size_t> ends{0, keys.size()};
    for (int i = 0; i < 6; ++i) ends.push_back(random() % (keys.size() + 1));  // some ranks may have nothing
    std::ranges::sort(ends);
    const auto part = [&](std::size_t rank) {
      return std::span(keys).subspan(ends[rank], ends[rank + 1] - ends[rank]);
    };
    std::vector<std::uint64_t> splits;
    for (std::size_t rank = 0; rank + 1 < ends.size(); ++rank)
      splits.push_back(ends[rank] < keys.size() ? morton(keys[ends[rank]], depth) : UINT64_MAX);
    for (std::size_t rank = 0; rank + 1 < ends.size(); ++rank) {
      const auto ranks = touching_ranks(part(rank), splits, depth);
      for (std::size_t other = 0; other + 1 < ends.size(); ++other) {
        std::vector<std::size_t> expected;
        for (std::size_t row = 0; row < part(other).size(); ++row)
          if (std::ranges::any_of(part(rank), [&](const auto& own) { return touch(own, part(other)[row]); }))
            expected.push_back(row);
        EXPECT_EQ(touching(part(rank), part(other), depth), expected);
        if (!expected.empty()) {
          EXPECT_THAT(ranks, testing::Contains(static_cast<std::int32_t>(other)));
        }
      }
    }
  }
}

std::string error_of(const AmrGrid& grid, std::vector<BlockKey> blocks) {
  try {
    const AmrBlocks made(grid, blocks, blocks.size());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(AmrBlocks, RefusesWhatIsNoBalancedGrid) {
  const auto grid = small_grid();
  EXPECT_THAT(error_of(grid, {{0, {0, 0, 0}}, {1, {1, 0, 0}}}), testing::HasSubstr("overlap"));
  EXPECT_THAT(error_of(grid, {{0, {0, 0, 0}}, {0, {0, 0, 0}}}), testing::HasSubstr("overlap"));
  EXPECT_THAT(error_of(grid, {{0, {0, 0, 0}}, {2, {4, 0, 0}}}), testing::HasSubstr("differ by one level"));
  EXPECT_THAT(error_of(grid, {{0, {0, 0, 0}}, {1, {2, 0, 0}}}), testing::HasSubstr("which is not there"));
  EXPECT_THAT(error_of(grid, {{6, {0, 0, 0}}}), testing::HasSubstr("level"));
  EXPECT_THAT(error_of(grid, {{0, {-1, 0, 0}}}), testing::HasSubstr("below 0"));
  EXPECT_THAT(error_of(grid, {{0, {1 << 20, 0, 0}}}), testing::HasSubstr("beyond"));
  auto odd = grid;
  odd.cells = {3, 4, 2};
  EXPECT_THAT(error_of(odd, {}), testing::HasSubstr("even number"));
}

// 2^20 cells along each axis.
TEST(AmrBlocks, NumbersTheCellsOfTheDeepestLevel) {
  auto grid = small_grid();
  grid.cells = {2, 2, 2};
  grid.depth = 19;
  const std::int32_t last = (1 << 19) - 1;
  const std::vector<BlockKey> keys{{19, {last - 1, last, last}}, {19, {last, last, last}}};
  const AmrBlocks blocks(grid, keys, keys.size());
  EXPECT_EQ(blocks.neighbours(0)[direction_number(1, 0, 0)], 1);
  EXPECT_EQ(touching(std::span(keys).first(1), std::span(keys).last(1), grid.depth), std::vector<std::size_t>{0});
  EXPECT_EQ(cell_id({19, {2 * last + 1, 2 * last + 1, 2 * last + 1}}, grid.depth), (CellId{1} << 60) - 1);
  EXPECT_THAT(error_of(grid, {{19, {last + 1, 0, 0}}}), testing::HasSubstr("beyond 1048576 cells of level 19"));
  grid.depth = 20;
  EXPECT_EQ(error_of(grid, {{20, {0, 0, 0}}}), "");
  EXPECT_THAT(error_of(grid, {{0, {0, 0, 0}}}), testing::HasSubstr("beyond 1048576 cells of level 20"));
  grid.depth = 21;
  EXPECT_THAT(error_of(grid, {}), testing::HasSubstr("levels 0 to 20, not 21"));
}

TEST(BlockField, PadsWithCellsOfNeighboursAndCoarserOnes) {
  std::mt19937 random(3);
  const auto keys = random_blocks(random, 8);
  const auto grid = small_grid();
  const AmrBlocks blocks(grid, keys, keys.size());
  std::vector<std::vector<float>> values;  // the cells' numbers, with a ghost layer that is not to be read
  std::vector<BlockArray> arrays;
  const auto [nx, ny, nz] = grid.cells;
  for (const auto& key : keys) {
    auto& block = values.emplace_back(grid.padded_cells(), -7.0f);
    for (int z = 0; z < nz; ++z)
      for (int y = 0; y < ny; ++y)
        for (int x = 0; x < nx; ++x)
          block[grid.padded_place(x, y, z)] = static_cast<float>(
              cell_id({key.level, {key.index[0] * nx + x, key.index[1] * ny + y, key.index[2] * nz + z}}, depth) %
              65521);
  }
  for (const auto& block : values)
    arrays.push_back({reinterpret_cast<const std::byte*>(&block[grid.padded_place(0, 0, 0)]),
                      {4, 4 * (nx + 2), 4 * (nx + 2) * (ny + 2)}});
  const BlockField field(DType::float32, arrays);
  std::vector<double> padded;
  for (std::size_t row = 0; row < keys.size(); ++row) {
    field.read_padded(blocks, row, padded);
    const auto& key = keys[row];
    for (int z = -1; z <= nz; ++z)
      for (int y = -1; y <= ny; ++y)
        for (int x = -1; x <= nx; ++x) {
          const auto side = [](int at, int n) { return at < 0 ? -1 : at >= n ? 1 : 0; };
          const auto from = blocks.neighbours(row)[direction_number(side(x, nx), side(y, ny), side(z, nz))];
          const double found = padded[grid.padded_place(x, y, z)];
          if (from < 0) {
            EXPECT_EQ(found, from == no_block ? -std::numeric_limits<double>::infinity() : 0);
            continue;
          }
          const int coarser = key.level - keys[from].level;
          const Cell cell{keys[from].level,
                          {(key.index[0] * nx + x) >> coarser, (key.index[1] * ny + y) >> coarser,
                           (key.index[2] * nz + z) >> coarser}};
          EXPECT_EQ(found, static_cast<double>(cell_id(cell, depth) % 65521));
        }
  }
}

}  // namespace
}  // namespace penstock::analysis
