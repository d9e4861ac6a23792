// Octrees, fields and surfaces for the tests of fragments.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"
#include "analysis/fragments/block_field.hpp"
#include "analysis/fragments/dual_contour.hpp"

namespace penstock::analysis {

// Blocks whose neighbours differ by one level at most.
class Octree {
 public:
  Octree(const AmrGrid& grid, const Index3& roots) : grid_(grid) {
    for (int z = 0; z < roots[2]; ++z)
      for (int y = 0; y < roots[1]; ++y)
        for (int x = 0; x < roots[0]; ++x) blocks_.insert({0, x, y, z});
  }

  const AmrGrid& grid() const { return grid_; }
  // Along the Z curve.
  std::vector<BlockKey> blocks() const {
    std::vector<BlockKey> out;
    for (const auto& [level, x, y, z] : blocks_) out.push_back({level, {x, y, z}});
    std::ranges::sort(out, {}, [&](const BlockKey& block) { return morton(block, grid_.depth); });
    return out;
  }

  void remove_root(const Index3& root) { blocks_.erase({0, root[0], root[1], root[2]}); }

  // Refines a block, before it the coarser ones that touch it. A block of the grid's depth stays.
  void refine(const BlockKey& block) {
    if (block.level == grid_.depth || blocks_.erase(key(block)) == 0) return;
    for (int number = 0; number < directions; ++number)
      if (const auto coarser = parent(neighbour(block, direction(number))); coarser.level >= 0) refine_leaf(coarser);
    for (int octant = 0; octant < 8; ++octant)
      blocks_.insert({block.level + 1, 2 * block.index[0] + (octant & 1), 2 * block.index[1] + (octant >> 1 & 1),
                      2 * block.index[2] + (octant >> 2)});
  }
  void refine_randomly(std::mt19937& random, int times) {
    for (int i = 0; i < times; ++i) {
      const auto all = blocks();
      refine(all[random() % all.size()]);
    }
  }
  // Refines the blocks for which it holds, down to the grid's depth.
  template <class Wanted>
  void refine_where(const Wanted& wanted) {
    for (int level = 0; level < grid_.depth; ++level)
      for (const auto& block : blocks())
        if (block.level == level && wanted(block)) refine(block);
  }

  // The octree's cell that covers this one, if it is of the same level or one coarser.
  std::optional<Cell> covering(const Cell& cell) const {
    for (int up = 0; up < 2 && up <= cell.level; ++up) {
      BlockKey block{cell.level - up, {}};
      Cell out{cell.level - up, {}};
      bool below = false;
      for (int axis = 0; axis < 3; ++axis) {
        below = below || cell.at[axis] < 0;
        out.at[axis] = cell.at[axis] >> up;
        block.index[axis] = out.at[axis] / grid_.cells[axis];
      }
      if (!below && blocks_.contains(key(block))) return out;
    }
    return std::nullopt;
  }
  bool has_finer(const Cell& cell) const {
    return covering({cell.level + 1, {2 * cell.at[0], 2 * cell.at[1], 2 * cell.at[2]}}).value_or(Cell{}).level ==
           cell.level + 1;
  }

  Point3 centre(const Cell& cell) const {
    Point3 out = grid_.width(cell.level);
    for (int axis = 0; axis < 3; ++axis) out[axis] = grid_.origin[axis] + (cell.at[axis] + 0.5) * out[axis];
    return out;
  }
  Cell cell(const BlockKey& block, int x, int y, int z) const {
    return {block.level,
            {block.index[0] * grid_.cells[0] + x, block.index[1] * grid_.cells[1] + y,
             block.index[2] * grid_.cells[2] + z}};
  }
  // Calls each(cell) for a block's cells and `around` layers around them, x fastest.
  template <class Each>
  void for_cells(const BlockKey& block, int around, const Each& each) const {
    for (int z = -around; z < grid_.cells[2] + around; ++z)
      for (int y = -around; y < grid_.cells[1] + around; ++y)
        for (int x = -around; x < grid_.cells[0] + around; ++x) each(cell(block, x, y, z));
  }
  CellId id(const Cell& cell) const { return cell_id(cell, grid_.depth); }

 private:
  using Key = std::array<std::int32_t, 4>;
  static Key key(const BlockKey& block) { return {block.level, block.index[0], block.index[1], block.index[2]}; }
  static BlockKey neighbour(const BlockKey& block, const Index3& by) {
    return {block.level, {block.index[0] + by[0], block.index[1] + by[1], block.index[2] + by[2]}};
  }
  static BlockKey parent(const BlockKey& block) {
    return {block.level - 1, {block.index[0] >> 1, block.index[1] >> 1, block.index[2] >> 1}};
  }
  void refine_leaf(const BlockKey& block) {
    if (blocks_.contains(key(block))) refine(block);
  }

  AmrGrid grid_;
  std::set<Key> blocks_;
};

// One value for each cell of an octree.
template <class T>
struct CellField {
  std::map<CellId, std::vector<T>> blocks;  // by the number of the block's first cell

  BlockField of(const AmrBlocks& all) const {
    const auto [nx, ny, nz] = all.grid().cells;
    std::vector<BlockArray> arrays;
    for (const auto& block : all.blocks()) {
      const Cell first{block.level, {block.index[0] * nx, block.index[1] * ny, block.index[2] * nz}};
      arrays.push_back({reinterpret_cast<const std::byte*>(blocks.at(cell_id(first, all.grid().depth)).data()),
                        {sizeof(T), std::ptrdiff_t(sizeof(T)) * nx, std::ptrdiff_t(sizeof(T)) * nx * ny}});
    }
    return BlockField(dtype_of<T>(), arrays, 0, fraction_byte_unit);
  }
};

// value(cell, its centre).
template <class T, class Value>
CellField<T> sample(const Octree& octree, const Value& value) {
  CellField<T> field;
  for (const auto& block : octree.blocks()) {
    auto& values = field.blocks[octree.id(octree.cell(block, 0, 0, 0))];
    octree.for_cells(block, 0, [&](const Cell& cell) { values.push_back(T(value(cell, octree.centre(cell)))); });
  }
  return field;
}

// The components by brute force, by cell_id; cells below the threshold are not there.
class CellLabels {
 public:
  template <class T>
  CellLabels(const Octree& octree, const CellField<T>& field, double threshold) : octree_(octree) {
    for (const auto& block : octree.blocks()) {
      const auto& values = field.blocks.at(octree.id(octree.cell(block, 0, 0, 0)));
      std::size_t at = 0;
      octree.for_cells(block, 0, [&](const Cell& cell) {
        const double value = std::is_same_v<T, std::uint8_t> ? values[at] / 255.0 : double(values[at]);
        if (value >= threshold) cells_.emplace(octree.id(cell), cell);
        ++at;
      });
    }
    for (const auto& [id, cell] : cells_) labels_[id] = static_cast<std::int32_t>(labels_.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [id, cell] : cells_)
        for (int face = 0; face < 6; ++face)
          if (const auto other = octree.covering(across(cell, face)); other && inside(*other)) {
            auto &one = labels_[id], &two = labels_[octree.id(*other)];
            changed = changed || one != two;
            one = two = std::min(one, two);
          }
    }
  }

  static Cell across(Cell cell, int face) {
    cell.at[face / 2] += face % 2 == 0 ? -1 : 1;
    return cell;
  }
  bool inside(const Cell& cell) const { return labels_.contains(octree_.id(cell)); }
  const std::map<CellId, Cell>& cells() const { return cells_; }
  std::set<std::int32_t> all() const {
    std::set<std::int32_t> out;
    for (const auto& [id, label] : labels_) out.insert(label);
    return out;
  }
  // AmrGrid::padded_place.
  const std::vector<std::int32_t>& padded(const BlockKey& block) {
    auto& out = padded_[octree_.id(octree_.cell(block, 0, 0, 0))];
    if (!out.empty()) return out;
    octree_.for_cells(block, 1, [&](const Cell& cell) {
      const auto from = octree_.covering(cell);
      out.push_back(from && inside(*from) ? labels_.at(octree_.id(*from)) : -1);
    });
    return out;
  }

 private:
  const Octree& octree_;
  std::map<CellId, Cell> cells_;
  std::unordered_map<CellId, std::int32_t> labels_;
  std::map<CellId, std::vector<std::int32_t>> padded_;  // by the block's first cell
};

// Surfaces, joined by their ids.
struct JoinedSurface {
  using Triangle = std::array<std::uint64_t, 3>;  // ids, the lowest first

  std::map<std::uint64_t, Point3> points;
  std::vector<std::pair<Triangle, std::int32_t>> triangles;  // with their components; sorted

  void add(const Surface& surface) {
    for (std::size_t i = 0; i < surface.ids.size(); ++i) {
      const auto& point = points.emplace(surface.ids[i], surface.points[i]).first->second;
      using Bits = std::array<std::uint64_t, 3>;
      EXPECT_EQ(std::bit_cast<Bits>(point), std::bit_cast<Bits>(surface.points[i])) << "of vertex " << surface.ids[i];
    }
    for (std::size_t i = 0; i < surface.triangles.size(); ++i) {
      Triangle ids;
      for (int k = 0; k < 3; ++k) ids[k] = surface.ids[surface.triangles[i][k]];
      std::ranges::rotate(ids, std::ranges::min_element(ids));
      triangles.emplace_back(ids, surface.components[i]);
    }
    std::ranges::sort(triangles);
  }

  // Edges that are not in two triangles of one component, in opposite directions.
  std::size_t bad_edges() const {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::int32_t>> edges;
    for (const auto& [ids, component] : triangles)
      for (int k = 0; k < 3; ++k) edges[{ids[k], ids[(k + 1) % 3]}].push_back(component);
    return std::ranges::count_if(edges, [&](const auto& edge) {
      const auto opposite = edges.find({edge.first.second, edge.first.first});
      return edge.second.size() != 1 || opposite == edges.end() || opposite->second != edge.second;
    });
  }
  // Vertices - edges + faces of a closed surface.
  long euler() const { return static_cast<long>(points.size()) - static_cast<long>(triangles.size() / 2); }
  double volume() const {
    double sum = 0;
    for (const auto& [ids, component] : triangles) {
      const auto &a = points.at(ids[0]), &b = points.at(ids[1]), &c = points.at(ids[2]);
      sum +=
          a[0] * (b[1] * c[2] - b[2] * c[1]) + a[1] * (b[2] * c[0] - b[0] * c[2]) + a[2] * (b[0] * c[1] - b[1] * c[0]);
    }
    return sum / 6;
  }
};

}  // namespace penstock::analysis
