#include "analysis/fragments/fragments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "analysis/fragments/fragments_test_support.hpp"
#include "analysis/fragments/merge.hpp"
#include "base/test_support.hpp"
#include "model/random_test_support.hpp"

namespace penstock::analysis {
namespace {

using model::Random;
using model::seed_text;

constexpr double threshold = 0.5;
constexpr Index3 roots{2, 1, 2};

// A grid with values: fraction, mass density, velocity, and one more. Widths and values are such that all sums over a few thousand
// cells are exact in doubles, unless fractions are uint8.
struct TestCase {
  AmrGrid grid;
  std::vector<BlockKey> blocks;
  DType type = DType::float64;
  std::vector<std::vector<std::byte>> fraction;
  std::vector<std::vector<double>> others;  // 5 arrays, one after the other

  std::size_t cells() const { return std::size_t(grid.cells[0]) * grid.cells[1] * grid.cells[2]; }
  void set(std::size_t block, std::size_t cell, double value) {
    std::byte* to = fraction[block].data() + cell * size_of(type);
    const auto as_float = static_cast<float>(value);
    const auto as_uint8 = static_cast<std::uint8_t>(std::lround(value * 255));
    if (type == DType::float64) std::memcpy(to, &value, 8);
    else if (type == DType::float32) std::memcpy(to, &as_float, 4);
    else std::memcpy(to, &as_uint8, 1);
  }
  void make_room() {
    fraction.assign(blocks.size(), std::vector<std::byte>(cells() * size_of(type)));
    others.assign(blocks.size(), std::vector<double>(5 * cells(), 1.0));
  }
  // Of these blocks.
  FragmentFields field(std::span<const std::size_t> rows) const {
    const auto arrays = [&](auto&& first, std::ptrdiff_t item) {
      const std::ptrdiff_t row_bytes = grid.cells[0] * item;
      std::vector<BlockArray> out;
      for (const auto row : rows)
        out.push_back({reinterpret_cast<const std::byte*>(first(row)), {item, row_bytes, grid.cells[1] * row_bytes}});
      return out;
    };
    const auto other = [&](std::size_t which) {
      return BlockField(DType::float64, arrays([&](auto row) { return &others[row][which * cells()]; }, 8),
                        static_cast<std::ptrdiff_t>(8 * cells()));
    };
    return {
        BlockField(type,
                   arrays([&](auto row) { return fraction[row].data(); }, static_cast<std::ptrdiff_t>(size_of(type))),
                   0, fraction_byte_unit),
        other(0),
        other(1),
        {other(4)}};
  }
  FragmentFields field(std::initializer_list<std::size_t> rows) const {
    return field(std::span(rows.begin(), rows.size()));
  }
};

TestCase random_case(Random& random) {
  TestCase out;
  out.grid.cells = {random.one_of({2, 4}), random.one_of({2, 4}), random.one_of({4, 6})};
  out.grid.spacing = {3, 6, 1.5};  // a width's square by 12 is exact
  out.grid.origin = {-8, 16, 0.25};
  out.grid.depth = static_cast<std::int32_t>(random.from(0, 3));
  Octree octree(out.grid, roots);
  std::mt19937 engine(static_cast<unsigned>(random.from(0, UINT32_MAX)));
  octree.refine_randomly(engine, static_cast<int>(random.from(0, 8)));
  out.blocks = octree.blocks();
  out.type = random.one_of({DType::float64, DType::float32, DType::uint8});
  out.make_room();
  const auto percent = static_cast<unsigned>(random.from(5, 70));
  for (std::size_t block = 0; block < out.blocks.size(); ++block) {
    if (random.chance(20)) continue;
    for (std::size_t cell = 0; cell < out.cells(); ++cell)
      out.set(block, cell,
              static_cast<double>(random.chance(percent) ? random.from(128, 256) : random.from(0, 127)) / 256);
    for (auto& value : out.others[block]) value = static_cast<double>(random.from(0, 64)) / 8 - 1;
  }
  return out;
}

// What one rank or batch finds, with what it needs to say more.
struct Rank {
  AmrBlocks blocks;
  FragmentFields fields;
  std::vector<std::size_t> rows;  // of the case
  Surface surface;
  Part part;

  Rank(const TestCase& test, const std::vector<BlockKey>& keys, std::size_t own, std::vector<std::size_t> its)
      : blocks(test.grid, keys, own), fields(test.field(its)), rows(std::move(its)) {
    part = FragmentFinder(blocks, fields, {threshold, true}).find(&surface);
  }
};

Rank rank_of(const TestCase& test, std::vector<std::size_t> rows) {
  const std::size_t own = rows.size();
  std::vector<BlockKey> keys, others;
  std::vector<std::size_t> other_rows;
  for (const auto row : rows) keys.push_back(test.blocks[row]);
  for (std::size_t row = 0; row < test.blocks.size(); ++row)
    if (std::ranges::find(rows, row) == rows.end()) {
      other_rows.push_back(row);
      others.push_back(test.blocks[row]);
    }
  for (const auto each : touching(keys, others, test.grid.depth)) rows.push_back(other_rows[each]);
  for (std::size_t i = own; i < rows.size(); ++i) keys.push_back(test.blocks[rows[i]]);
  return Rank(test, keys, own, rows);
}

Rank whole(const TestCase& test) {
  std::vector<std::size_t> rows(test.blocks.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rank_of(test, rows);
}

// Every block has one of `ranks`; some ranks may have none.
std::deque<Rank> divided(const TestCase& test, std::size_t ranks, Random& random) {
  std::vector<std::vector<std::size_t>> rows(ranks);
  for (std::size_t row = 0; row < test.blocks.size(); ++row) rows[random.from(0, ranks - 1)].push_back(row);
  std::deque<Rank> out;
  for (auto& its : rows) out.push_back(rank_of(test, its));
  return out;
}

std::vector<Part> parts_of(const std::deque<Rank>& ranks) {
  std::vector<Part> parts;
  for (const auto& rank : ranks) parts.push_back(decode(bytes_of(encode(rank.part))));
  return parts;
}

// A region by brute force.
struct Region {
  CellId lowest = ~CellId{0};
  std::uint64_t cells = 0;
  double volume = 0, mass = 0, average = 0;
  Point3 first{}, momentum{};
  std::array<double, 9> second{};  // about the origin of space
};

class FloodFill {
 public:
  explicit FloodFill(const TestCase& test) : test_(test) {
    for (int axis = 0; axis < 3; ++axis) size_[axis] = roots[axis] * test.grid.cells[axis] << test.grid.depth;
    leaves_.resize(std::size_t(size_[0]) * size_[1] * size_[2]);
    for (std::size_t block = 0; block < test.blocks.size(); ++block) paint(block);
    of_leaves_.assign(test.blocks.size() * test.cells(), no_label);
    for (std::size_t place = 0; place < leaves_.size(); ++place)
      if (inside(leaves_[place]) && of_leaves_[leaves_[place]] == no_label) fill(place);
    for (std::size_t leaf = 0; leaf < of_leaves_.size(); ++leaf)
      add(leaf, of_leaves_[leaf] == no_label ? below : regions[of_leaves_[leaf]]);
  }

  std::vector<Region> regions;
  Region below;
  // The lowest cell of a cell's region.
  CellId region_of(std::size_t block, std::size_t cell) const {
    const auto region = of_leaves_[block * test_.cells() + cell];
    return region == no_label ? ~CellId{0} : regions[region].lowest;
  }

 private:
  std::size_t place(const Index3& at) const { return (std::size_t(at[2]) * size_[1] + at[1]) * size_[0] + at[0]; }
  bool inside(std::size_t leaf) const { return values_[leaf] >= threshold; }
  Index3 first_of(std::size_t leaf) const {  // cell, of its level
    const auto& [level, index] = test_.blocks[leaf / test_.cells()];
    const auto [nx, ny, nz] = test_.grid.cells;
    const auto cell = static_cast<std::int32_t>(leaf % test_.cells());
    return {index[0] * nx + cell % nx, index[1] * ny + cell / nx % ny, index[2] * nz + cell / (nx * ny)};
  }
  void paint(std::size_t block) {
    std::vector<double> values;
    test_.field({block}).fraction.read(test_.grid, 0, values);
    values_.insert(values_.end(), values.begin(), values.end());
    const int shift = test_.grid.depth - test_.blocks[block].level;
    for (std::size_t leaf = block * test_.cells(); leaf < (block + 1) * test_.cells(); ++leaf) {
      const Index3 at = first_of(leaf);
      for (int z = at[2] << shift; z < (at[2] + 1) << shift; ++z)
        for (int y = at[1] << shift; y < (at[1] + 1) << shift; ++y)
          for (int x = at[0] << shift; x < (at[0] + 1) << shift; ++x) leaves_[place({x, y, z})] = leaf;
    }
  }
  void fill(std::size_t start) {
    const auto region = static_cast<std::int32_t>(regions.size());
    regions.emplace_back();
    std::vector<char> seen(leaves_.size());
    std::vector<std::size_t> next{start};
    seen[start] = 1;
    while (!next.empty()) {
      const std::size_t at = next.back();
      next.pop_back();
      of_leaves_[leaves_[at]] = region;
      const Index3 here{static_cast<int>(at % size_[0]), static_cast<int>(at / size_[0] % size_[1]),
                        static_cast<int>(at / size_[0] / size_[1])};
      for (int axis = 0; axis < 3; ++axis)
        for (const int by : {-1, 1}) {
          Index3 there = here;
          there[axis] += by;
          if (there[axis] < 0 || there[axis] >= size_[axis]) continue;
          const auto to = place(there);
          if (seen[to] || !inside(leaves_[to])) continue;
          seen[to] = 1;
          next.push_back(to);
        }
    }
  }
  void add(std::size_t leaf, Region& region) {
    const std::size_t block = leaf / test_.cells(), cell = leaf % test_.cells();
    const auto& other = test_.others[block];
    const auto level = test_.blocks[block].level;
    const Index3 at = first_of(leaf);
    const Point3 width = test_.grid.width(level);
    const double volume = values_[leaf] * width[0] * width[1] * width[2];
    const double mass = other[cell] * width[0] * width[1] * width[2];
    Point3 centre{};
    for (int axis = 0; axis < 3; ++axis) {
      centre[axis] = test_.grid.origin[axis] + (at[axis] + 0.5) * width[axis];
      region.first[axis] += mass * (at[axis] + 0.5) * width[axis];
      region.momentum[axis] += mass * other[(1 + axis) * test_.cells() + cell];
      region.second[4 * axis] += mass * width[axis] * width[axis] / 12;
    }
    for (int i = 0; i < 9; ++i) region.second[i] += mass * centre[i / 3] * centre[i % 3];
    region.lowest = std::min(region.lowest, cell_id({level, at}, test_.grid.depth));
    ++region.cells;
    region.volume += volume;
    region.mass += mass;
    region.average += volume * other[4 * test_.cells() + cell];
  }

  const TestCase& test_;
  Index3 size_{};                    // of the finest grid
  std::vector<std::size_t> leaves_;  // of each of its cells
  std::vector<double> values_;       // of each leaf
  std::vector<std::int32_t> of_leaves_;
};

void expect_near(double found, double expected, double scale, double tolerance) {
  if (tolerance == 0) EXPECT_EQ(found, expected);
  else EXPECT_NEAR(found, expected, tolerance * scale);
}

void expect_alike(const Merged& found, const FloodFill& expected, const TestCase& test) {
  const double tolerance = test.type == DType::uint8 ? 1e-12 : 0;
  ASSERT_EQ(found.fragments, expected.regions.size());
  std::map<CellId, Region> regions;
  for (const auto& region : expected.regions) regions[region.lowest] = region;
  for (std::size_t i = 0; i < found.fragments; ++i) {
    ASSERT_TRUE(regions.contains(found.lowest[i]));
    const Region& region = regions[found.lowest[i]];
    EXPECT_EQ(found.cells[i], region.cells);
    expect_near(found.volume[i], region.volume, region.volume, tolerance);
    EXPECT_EQ(found.mass[i], region.mass);
    expect_near(found.averages[i], region.average / region.volume, 10, tolerance);
    for (int axis = 0; region.mass != 0 && axis < 3; ++axis) {
      EXPECT_EQ(found.centre[i][axis], test.grid.origin[axis] + region.first[axis] / region.mass);
      EXPECT_EQ(found.velocity[i][axis], region.momentum[axis] / region.mass);
    }
    for (int k = 0; region.mass != 0 && k < 9; ++k) {
      const double central = region.second[k] - region.mass * found.centre[i][k / 3] * found.centre[i][k % 3];
      EXPECT_NEAR(found.second[i][k], central, 1e-9 * (1e4 + std::fabs(central)) * std::fabs(region.mass));
    }
    if (i > 0) {
      EXPECT_GE(found.volume[i - 1], found.volume[i]);
    }
  }
}

TEST(Fragments, AreThoseOfAFloodFillOnTheFinestGrid) {
  Random random(11);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(seed_text(round));
    const TestCase test = random_case(random);
    const FloodFill expected(test);
    const auto ranks = divided(test, random.from(1, 4), random);
    const auto parts = parts_of(ranks);
    const Merged found = merge(parts);
    expect_alike(found, expected, test);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const FragmentFinder finder(ranks[rank].blocks, ranks[rank].fields, {threshold});
      std::vector<std::int32_t> components;
      for (std::size_t row = 0; row < ranks[rank].blocks.own(); ++row) {
        finder.cells(row, components);
        for (std::size_t cell = 0; cell < components.size(); ++cell)
          EXPECT_EQ(components[cell] == no_label ? ~CellId{0} : found.lowest[found.fragment_of[rank][components[cell]]],
                    expected.region_of(ranks[rank].rows[row], cell));
      }
    }
    if (test.type == DType::uint8) continue;
    double volume = 0, mass = 0;
    for (const auto& region : expected.regions) volume += region.volume, mass += region.mass;
    EXPECT_EQ(found.above.volume, volume);
    EXPECT_EQ(found.above.mass, mass);
    EXPECT_EQ(found.below.volume, expected.below.volume);
    EXPECT_EQ(found.below.mass, expected.below.mass);
    EXPECT_EQ(found.below.momentum, expected.below.momentum);
    EXPECT_EQ(found.above.cells + found.below.cells, test.blocks.size() * test.cells());
  }
}

// Labels are those of fragments.
JoinedSurface joined(const std::deque<Rank>& ranks, const Merged& merged) {
  JoinedSurface out;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Surface surface = ranks[rank].surface;
    for (auto& component : surface.components) component = merged.fragment_of[rank][component];
    out.add(surface);
  }
  return out;
}

void expect_equal(const Merged& a, const Merged& b) {
  EXPECT_EQ(a.lowest, b.lowest);
  EXPECT_EQ(a.cells, b.cells);
  EXPECT_EQ(a.volume, b.volume);
  EXPECT_EQ(a.mass, b.mass);
  EXPECT_EQ(a.centre, b.centre);
  EXPECT_EQ(a.velocity, b.velocity);
  EXPECT_EQ(a.second, b.second);
  EXPECT_EQ(a.averages, b.averages);
  EXPECT_EQ(a.extremes, b.extremes);
  for (const auto total : {&Merged::above, &Merged::below}) {
    EXPECT_EQ((a.*total).cells, (b.*total).cells);
    EXPECT_EQ((a.*total).volume, (b.*total).volume);
    EXPECT_EQ((a.*total).mass, (b.*total).mass);
    EXPECT_EQ((a.*total).momentum, (b.*total).momentum);
  }
}

// For each fragment and direction, the farthest of all its vertices.
std::vector<ExtremePoint> extremes_of(const JoinedSurface& surface) {
  std::map<std::int32_t, std::set<std::uint64_t>> vertices;
  for (const auto& [ids, fragment] : surface.triangles) vertices[fragment].insert(ids.begin(), ids.end());
  std::set<ExtremePoint> out;
  for (const auto& [fragment, ids] : vertices)
    for (const auto& direction : directions_of_extremes()) {
      const auto along = [&](std::uint64_t id) {
        const Point3& at = surface.points.at(id);
        return at[0] * direction[0] + at[1] * direction[1] + at[2] * direction[2];
      };
      const auto id = *std::ranges::max_element(ids, {}, along);  // the first of equals
      out.insert({fragment, id, surface.points.at(id)});
    }
  return {out.begin(), out.end()};
}

// The sums over all components are those over all cells at or above the threshold, without any error.
void expect_conserved(const std::vector<Part>& parts) {
  for (std::size_t i = 0; i < Sum::averages + 1; ++i) {
    ExactSum rest;
    for (const auto& part : parts) {
      for (const auto& component : part.components) rest.add(component.sums.sums[i]);
      for (const double term : part.above.sums[i].terms()) rest.add(-term);
    }
    EXPECT_TRUE(rest.terms().empty());
  }
}

TEST(Fragments, DependOnNoDivisionOfBlocks) {
  Random random(12);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(seed_text(round));
    TestCase test = random_case(random);
    for (auto& block : test.others)  // values of all digits, so that sums are rounded
      for (auto& value : block) value = 1 + static_cast<double>(random.from(0, 1ull << 52)) * 0x1p-50;
    std::deque<Rank> one;
    one.push_back(whole(test));
    const Merged expected = merge(parts_of(one));
    const JoinedSurface surface = joined(one, expected);
    EXPECT_EQ(surface.bad_edges(), 0u);
    EXPECT_EQ(expected.extremes, extremes_of(surface));
    const auto ranks = divided(test, random.from(2, 8), random);
    const auto parts = parts_of(ranks);
    const Merged found = merge(parts);
    expect_equal(found, expected);
    EXPECT_EQ(joined(ranks, found).triangles, surface.triangles);
    expect_conserved(parts);
  }
}

// The first root has blocks of level 1, whose cells are counted to 8; the other three have 4 cells along each axis.
std::vector<Part> parts_with(std::initializer_list<Cell> cells) {
  TestCase test;
  test.grid.cells = {4, 4, 4};
  test.grid.depth = 1;
  Octree octree(test.grid, roots);
  octree.refine({0, {0, 0, 0}});
  test.blocks = octree.blocks();
  test.make_room();
  for (const auto& cell : cells)
    for (std::size_t row = 0; row < test.blocks.size(); ++row)
      if (const auto& [level, index] = test.blocks[row];
          level == cell.level && index == Index3{cell.at[0] / 4, cell.at[1] / 4, cell.at[2] / 4})
        test.set(row, (cell.at[2] % 4 * 4 + cell.at[1] % 4) * 4 + cell.at[0] % 4, 1);
  std::deque<Rank> ranks;
  for (std::size_t row = 0; row < test.blocks.size(); ++row) ranks.push_back(rank_of(test, {row}));
  const auto parts = parts_of(ranks);
  EXPECT_EQ(merge(parts).fragments, merge({{whole(test).part}}).fragments);
  return parts;
}

std::size_t fragments_with(std::initializer_list<Cell> cells) { return merge(parts_with(cells)).fragments; }

TEST(Fragments, AreConnectedAcrossFacesAlone) {
  EXPECT_EQ(fragments_with({{0, {5, 1, 3}}, {0, {5, 1, 4}}}), 1u);  // blocks of one level: across a face,
  EXPECT_EQ(fragments_with({{0, {5, 1, 3}}, {0, {5, 2, 4}}}), 2u);  // an edge,
  EXPECT_EQ(fragments_with({{0, {5, 1, 3}}, {0, {6, 2, 4}}}), 2u);  // a corner;
  EXPECT_EQ(fragments_with({{0, {5, 1, 2}}, {0, {5, 1, 4}}}), 2u);  // with a gap of one cell
  EXPECT_EQ(fragments_with({{1, {7, 2, 2}}, {0, {4, 1, 1}}}), 1u);  // across a jump of levels
  EXPECT_EQ(fragments_with({{1, {7, 3, 2}}, {0, {4, 2, 1}}}), 2u);
  EXPECT_EQ(fragments_with({{1, {7, 3, 3}}, {0, {4, 2, 2}}}), 2u);
  EXPECT_EQ(fragments_with({{1, {6, 2, 2}}, {0, {4, 1, 1}}}), 2u);
  EXPECT_EQ(fragments_with({{1, {7, 2, 2}}, {0, {4, 1, 1}}, {0, {3, 3, 7}}, {1, {7, 3, 3}}}), 2u);
}

TEST(Fragments, AreRefusedUnlessAllPartsAreThereOnce) {
  const auto parts = parts_with({{1, {7, 2, 2}}, {0, {4, 1, 1}}});
  for (std::size_t missing = 0; missing < parts.size(); ++missing) {
    if (parts[missing].components.empty()) continue;
    auto less = parts;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(missing));
    const auto [code, text] = penstock::error_of([&] { merge(less); });
    EXPECT_EQ(code, Errc::invalid_argument);
    EXPECT_THAT(text, testing::HasSubstr("which no part has"));
    less = parts;
    less.push_back(parts[missing]);
    EXPECT_THAT(penstock::error_of([&] { merge(less); }).second, testing::HasSubstr("two parts have the block"));
  }
  auto other = parts;
  other[1].common.threshold = 0.25;
  EXPECT_THAT(penstock::error_of([&] { merge(other); }).second,
              testing::HasSubstr("different grids, thresholds or fields"));
  EXPECT_EQ(merge({}).fragments, 0u);
}

TEST(Fragments, RefuseFieldsOfTooFewBlocks) {
  Random random(13);
  const TestCase test = random_case(random);
  const Rank rank = whole(test);
  const auto refused = [&](FragmentFields fields, FragmentOptions options) {
    return penstock::error_of([&] { FragmentFinder(rank.blocks, fields, options).find(nullptr); }).second;
  };
  EXPECT_EQ(refused(rank.fields, {}), "");
  EXPECT_THAT(refused(test.field({0, 1}), {}), testing::HasSubstr("fractions has the arrays of 2 blocks"));
  EXPECT_THAT(refused(rank.fields, {std::nan("")}), testing::HasSubstr("finite"));
  EXPECT_THAT(refused(rank.fields, {0.5, true}), testing::HasSubstr("surface"));
}

}  // namespace
}  // namespace penstock::analysis
