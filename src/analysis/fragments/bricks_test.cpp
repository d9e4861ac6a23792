#include "analysis/fragments/bricks.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "analysis/fragments/fragments_test_support.hpp"

namespace penstock::analysis {
namespace {

TEST(Bricks, AreTheVolumesOfComponentsInCellsOfLevelZero) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    AmrGrid grid;
    grid.cells = {4, 2, 4};
    grid.spacing = {1, 2, 0.5};
    grid.depth = 3;
    Octree octree(grid, {2, 2, 1});
    octree.refine_randomly(random, 6);
    const auto noise = sample<double>(octree, [&](auto&&...) { return static_cast<double>(random() % 16) / 16; });
    const AmrBlocks blocks(grid, octree.blocks(), octree.blocks().size());
    const FragmentFields fields{noise.of(blocks), {}, {}, {}};
    const FragmentFinder finder(blocks, fields, {0.5, false});

    std::map<std::tuple<std::int32_t, Index3>, double> expected;
    std::vector<double> values;
    std::vector<std::int32_t> components;
    for (std::size_t row = 0; row < blocks.size(); ++row) {
      const BlockKey& block = blocks.blocks()[row];
      finder.cells(row, components);
      fields.fraction.read(grid, row, values);
      std::size_t at = 0;
      octree.for_cells(block, 0, [&](const Cell& cell) {
        Index3 place;
        for (int axis = 0; axis < 3; ++axis) place[axis] = cell.at[axis] / (1 << cell.level);
        const double volume = std::ldexp(1.0, -3 * cell.level);  // of a cell; the spacings' product is 1
        if (components[at] >= 0) expected[{components[at], place}] += values[at] * volume;
        ++at;
      });
    }
    const auto found = bricks_of(blocks, fields.fraction, finder);
    ASSERT_EQ(found.size(), expected.size());
    auto next = expected.begin();
    for (const Brick& brick : found) {
      EXPECT_EQ(std::tuple(brick.component, brick.place), next->first);
      EXPECT_DOUBLE_EQ(brick.volume, next->second);
      ++next;
    }
  }
}

}  // namespace
}  // namespace penstock::analysis
