// Surfaces of bodies and of noise on random octrees: closed, with every vertex, and the same on any ranks.
#include "analysis/fragments/dual_contour.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <numbers>

#include "analysis/fragments/fragments_test_support.hpp"
#include "base/test_support.hpp"

namespace penstock::analysis {
namespace {

AmrGrid grid_of(const Index3& cells, std::int32_t depth) {
  AmrGrid grid;
  grid.cells = cells;
  grid.depth = depth;
  grid.origin = {-0.3, 0.1, 7};
  for (int axis = 0; axis < 3; ++axis) grid.spacing[axis] = 1.0 / cells[axis];  // roots have the width 1
  return grid;
}

// Blocks along the curve, in parts for ranks that have their own and touching blocks only.
template <class T>
JoinedSurface contour(const Octree& octree, const CellField<T>& field, CellLabels& labels, double threshold,
                      std::size_t ranks) {
  JoinedSurface joined;
  const auto all = octree.blocks();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + std::ptrdiff_t(all.size() * rank / ranks);
    const auto end = all.begin() + std::ptrdiff_t(all.size() * (rank + 1) / ranks);
    std::vector<BlockKey> blocks(begin, end), others(all.begin(), begin);
    others.insert(others.end(), end, all.end());
    for (const auto row : touching(std::span(begin, end), others, octree.grid().depth)) blocks.push_back(others[row]);
    const AmrBlocks amr(octree.grid(), blocks, std::size_t(end - begin));
    const auto values = field.of(amr);
    DualContour maker(amr, threshold);
    Surface surface;
    std::vector<double> padded;
    for (std::size_t row = 0; row < amr.own(); ++row) {
      values.read_padded(amr, row, padded);
      maker.add(row, padded, labels.padded(blocks[row]), surface);
    }
    joined.add(surface);
  }
  return joined;
}

// A vertex for each pair of cells of which one is inside, and for each face of an inside cell in which the domain ends.
std::set<std::uint64_t> expected_ids(const Octree& octree, const CellLabels& labels) {
  std::set<std::uint64_t> ids;
  for (const auto& block : octree.blocks())
    octree.for_cells(block, 0, [&](const Cell& cell) {
      for (int face = 0; face < 6; ++face) {
        const Cell across = CellLabels::across(cell, face);
        if (octree.has_finer(across)) continue;  // the finer cells own the vertices
        const auto other = octree.covering(across);
        const bool is_other_inside = other && labels.inside(*other);
        const bool owns = !other || other->level < cell.level || face % 2 == 1;
        if (owns && labels.inside(cell) != is_other_inside) ids.insert(octree.id(cell) * 8 + std::uint64_t(face));
      }
    });
  return ids;
}

template <class T>
JoinedSurface checked_contour(const Octree& octree, const CellField<T>& field, double threshold) {
  CellLabels labels(octree, field, threshold);
  auto joined = contour(octree, field, labels, threshold, 1);
  EXPECT_EQ(joined.bad_edges(), 0u);
  std::set<std::uint64_t> ids;
  std::set<std::int32_t> components;
  for (const auto& [id, point] : joined.points) ids.insert(id);
  for (const auto& [triangle, component] : joined.triangles) components.insert(component);
  EXPECT_EQ(ids, expected_ids(octree, labels));
  EXPECT_EQ(components, labels.all());
  for (const std::size_t ranks : {2, 3, 5, 8}) {
    const auto other = contour(octree, field, labels, threshold, ranks);
    EXPECT_EQ(other.points, joined.points) << ranks << " ranks";
    EXPECT_EQ(other.triangles, joined.triangles) << ranks << " ranks";
  }
  return joined;
}

using Shape = std::function<double(const Point3&)>;  // positive inside

Shape ball(const Point3& centre, double radius) {
  return [=](const Point3& at) { return radius - std::hypot(at[0] - centre[0], at[1] - centre[1], at[2] - centre[2]); };
}
Shape torus(const Point3& centre, double radius, double tube) {
  return [=](const Point3& at) {
    return tube - std::hypot(std::hypot(at[0] - centre[0], at[1] - centre[1]) - radius, at[2] - centre[2]);
  };
}

JoinedSurface surface_of(const Octree& octree, const Shape& shape) {
  return checked_contour(octree, sample<double>(octree, [&](const Cell&, const Point3& at) { return shape(at); }), 0);
}

Octree random_octree(std::mt19937& random, const AmrGrid& grid, const Index3& roots, int refinements) {
  Octree octree(grid, roots);
  octree.refine_randomly(random, refinements);
  return octree;
}

TEST(DualContour, BodiesOnRandomOctrees) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto octree = random_octree(random, grid_of({6, 6, 6}, 2), {2, 2, 2}, 8);
    // The middle of the domain: faces, edges and corners of levels meet there.
    const Point3 centre{0.7, 1.1, 8};
    const auto one = surface_of(octree, ball(centre, 0.6));
    EXPECT_EQ(one.euler(), 2);
    EXPECT_NEAR(one.volume(), 4 * std::numbers::pi / 3 * 0.216, 0.03);
    EXPECT_EQ(surface_of(octree, torus(centre, 0.55, 0.28)).euler(), 0);
    const auto several = surface_of(octree, [&](const Point3& at) {
      return std::max(
          {ball({0.2, 0.6, 7.5}, 0.35)(at), ball({1.2, 1.6, 7.5}, 0.3)(at), ball({0.7, 1.1, 8.5}, 0.25)(at)});
    });
    EXPECT_EQ(several.euler(), 6);
  }
}

TEST(DualContour, NoiseOnRandomOctrees) {
  const auto first = number_from("PENSTOCK_TEST_SEED", 0);
  for (auto seed = first; seed < first + 16; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(static_cast<unsigned>(seed));
    auto octree = random_octree(random, grid_of({2, 4, 2}, 3), {2, 3, 2}, 0);
    if (seed % 3 == 0) octree.remove_root({1, 1, 0});  // an inner corner of the domain
    octree.refine_randomly(random, 6);
    // 0 to 4 in steps: many are the threshold itself.
    const unsigned steps = seed % 2 == 0 ? 5 : 1000;
    const auto noise =
        sample<double>(octree, [&](const Cell&, const Point3&) { return 4.0 * (random() % steps) / steps; });
    for (const double threshold : {0.8, 2.4, 3.2}) EXPECT_GT(checked_contour(octree, noise, threshold).volume(), 0);
  }
}

TEST(DualContour, FullDomainIsClosedInItsFaces) {
  std::mt19937 random(1);
  auto octree = random_octree(random, grid_of({4, 4, 4}, 2), {3, 2, 1}, 4);
  const auto full = surface_of(octree, [](const Point3&) { return 1.0; });
  EXPECT_EQ(full.euler(), 2);
  const auto half = surface_of(octree, [](const Point3& at) { return 1.15 - at[0]; });
  EXPECT_EQ(half.euler(), 2);
  EXPECT_NEAR(half.volume(), 1.45 * 2, 0.1);  // domain edges are cut off
}

TEST(DualContour, BytesAreFractions) {
  std::mt19937 random(2);
  const auto octree = random_octree(random, grid_of({4, 4, 4}, 2), {2, 2, 2}, 6);
  const auto fraction = [&](const Point3& at) { return std::clamp(0.5 + 4 * ball({0.7, 1.1, 8}, 0.7)(at), 0.0, 1.0); };
  const auto bytes = sample<std::uint8_t>(octree, [&](const Cell&, const Point3& at) { return 255 * fraction(at); });
  const auto joined = checked_contour(octree, bytes, 128 / 255.0);
  EXPECT_EQ(joined.euler(), 2);
  EXPECT_NEAR(joined.volume(), 4 * std::numbers::pi / 3 * 0.343, 0.06);
}

// The error of a ball's volume falls by four when cells are halved.
TEST(DualContour, VolumeConvergesAtSecondOrder) {
  const Point3 centre{0.71, 1.07, 8.03};
  const double exact = 4 * std::numbers::pi / 3 * 0.343;
  for (const bool refined : {false, true}) {
    std::vector<double> errors;
    for (const int n : {4, 8, 16}) {
      Octree octree(grid_of({n, n, n}, 1), {2, 2, 2});
      // The surface crosses from coarse to fine cells.
      if (refined) octree.refine_where([](const BlockKey& block) { return block.index[0] == 1; });
      const auto field = sample<double>(octree, [&](const Cell&, const Point3& at) { return ball(centre, 0.7)(at); });
      CellLabels labels(octree, field, 0);
      errors.push_back(std::abs(contour(octree, field, labels, 0, 1).volume() / exact - 1));
    }
    EXPECT_LT(errors[2], 0.01);
    for (const int i : {1, 2}) EXPECT_GT(errors[i - 1] / errors[i], 3) << (refined ? "refined" : "uniform");
  }
}

TEST(DualContour, ValuesThatAreNoNumbersGiveFinitePoints) {
  const Octree octree(grid_of({2, 2, 2}, 0), {2, 1, 1});
  const double infinity = std::numeric_limits<double>::infinity();
  std::mt19937 random(4);
  const double values[] = {infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 1, 3};
  const auto field = sample<double>(octree, [&](const Cell&, const Point3&) { return values[random() % 5]; });
  for (const auto& [id, point] : checked_contour(octree, field, 2).points)
    for (const double along : point) EXPECT_TRUE(std::isfinite(along));
}

TEST(DualContour, RefusesWhatItCannotRead) {
  const AmrBlocks blocks(grid_of({2, 2, 2}, 0), {{0, {0, 0, 0}}}, 1);
  EXPECT_EQ(code_of([&] { DualContour(blocks, std::numeric_limits<double>::quiet_NaN()); }), Errc::invalid_argument);
  DualContour contour(blocks, 0);
  Surface surface;
  const std::vector<double> values(8);
  const std::vector<std::int32_t> labels(64);
  EXPECT_EQ(code_of([&] { contour.add(0, values, labels, surface); }), Errc::invalid_argument);
}

}  // namespace
}  // namespace penstock::analysis
