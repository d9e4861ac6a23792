#include "analysis/fragments/dual_contour.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "analysis/refuse.hpp"

namespace penstock::analysis {
namespace {

constexpr std::uint32_t no_vertex = UINT32_MAX;

enum class Cover : std::uint8_t { same_level, coarser, outside };

// How the neighbours of a block cover the octants around its corners. A corner is in the zone (direction_number) of the neighbours
// that it touches: 13 within the block, others on its faces, edges and corners.
class Zones {
 public:
  Zones(const AmrBlocks& blocks, std::size_t row) {
    const Neighbours& neighbours = blocks.neighbours(row);
    for (int number = 0; number < directions; ++number) {
      const auto found = neighbours[number];
      covers_[number] = found < 0                                                   ? Cover::outside
                        : blocks.blocks()[found].level < blocks.blocks()[row].level ? Cover::coarser
                                                                                    : Cover::same_level;
    }
    for (int zone = 0; zone < directions; ++zone) look(zone, neighbours);
  }

  // Whether the block makes the dual cells of the zone's corners.
  bool makes(int zone) const { return makes_[zone]; }
  // Whether all octants around them are cells of the block's level.
  bool is_regular(int zone) const { return regular_[zone]; }
  Cover cover(int zone, int octant) const {
    auto towards = direction(zone);
    for (int axis = 0; axis < 3; ++axis)
      if ((octant >> axis & 1) != (towards[axis] + 1) / 2) towards[axis] = 0;
    return covers_[direction_number(towards[0], towards[1], towards[2])];
  }

 private:
  void look(int zone, const Neighbours& neighbours) {
    const auto towards = direction(zone);
    makes_[zone] = regular_[zone] = true;
    for (int octant = 0; octant < 8; ++octant) {
      Index3 touching{};
      for (int axis = 0; axis < 3; ++axis) touching[axis] = (octant >> axis & 1) * towards[axis];
      const int number = direction_number(touching[0], touching[1], touching[2]);
      const bool lower_block = number < 13 && covers_[number] == Cover::same_level;
      if (neighbours[number] == finer_block || lower_block) makes_[zone] = false;
      if (covers_[number] != Cover::same_level) regular_[zone] = false;
    }
  }

  std::array<Cover, directions> covers_{};
  std::array<bool, directions> makes_{}, regular_{};
};

// One block's part of the surface.
class BlockSurface {
 public:
  BlockSurface(const AmrBlocks& blocks, std::size_t row, double threshold, std::span<const Point3> widths,
               std::span<const double> values, std::span<const std::int32_t> labels, std::span<std::uint32_t> vertices,
               Surface& surface)
      : grid_(blocks.grid()),
        zones_(blocks, row),
        level_(blocks.blocks()[row].level),
        threshold_(threshold),
        widths_(widths),
        values_(values),
        labels_(labels),
        vertices_(vertices),
        surface_(surface) {
    for (int axis = 0; axis < 3; ++axis) first_[axis] = blocks.blocks()[row].index[axis] * grid_.cells[axis];
    for (int octant = 0; octant < 8; ++octant)
      steps_[octant] = grid_.padded_place(octant & 1, octant >> 1 & 1, octant >> 2) - grid_.padded_place(0, 0, 0);
  }

  void add(const MarchingTable& table, std::span<const std::uint8_t> inside);

 private:
  // One of the two cells of an edge.
  struct End {
    Cell cell;
    double value;
    Cover cover;
  };

  void add_corner(const Index3& corner, unsigned signs, const MarchingTable& table);
  std::uint32_t vertex(const Index3& corner, int zone, int edge);
  Index3 first_place(Index3 lower, int axis) const;
  std::uint32_t make_vertex(const End& lower, const End& upper, int axis);
  End end(const Index3& place, Cover cover) const;
  Point3 centre(const Cell& cell) const;

  int zone(const Index3& corner) const {
    Index3 towards{};
    for (int axis = 0; axis < 3; ++axis)
      towards[axis] = corner[axis] == 0 ? -1 : corner[axis] == grid_.cells[axis] ? 1 : 0;
    return direction_number(towards[0], towards[1], towards[2]);
  }

  const AmrGrid& grid_;
  Zones zones_;
  std::int32_t level_;
  Index3 first_{};  // the block's first cell, in the domain
  double threshold_;
  std::span<const Point3> widths_;
  std::span<const double> values_;
  std::span<const std::int32_t> labels_;
  std::span<std::uint32_t> vertices_;
  std::array<std::size_t, 8> steps_{};  // in padded arrays, from octant 0
  Surface& surface_;
};

void BlockSurface::add(const MarchingTable& table, std::span<const std::uint8_t> inside) {
  const auto& cells = grid_.cells;
  for (std::int32_t z = 0; z <= cells[2]; ++z)
    for (std::int32_t y = 0; y <= cells[1]; ++y) {
      const std::uint8_t* rows = &inside[grid_.padded_place(-1, y - 1, z - 1)];
      unsigned signs = 0;
      for (std::int32_t x = -1; x <= cells[0]; ++x, ++rows) {
        // The upper octants in x become the lower ones.
        signs = (signs >> 1 & 0x55) | rows[0] << 1 | rows[steps_[2]] << 3 | rows[steps_[4]] << 5 | rows[steps_[6]] << 7;
        if (x >= 0 && signs != 0 && signs != 255) add_corner({x, y, z}, signs, table);
      }
    }
}

void BlockSurface::add_corner(const Index3& corner, unsigned signs, const MarchingTable& table) {
  const int in_zone = zone(corner);
  if (!zones_.makes(in_zone)) return;
  const auto place = grid_.padded_place(corner[0] - 1, corner[1] - 1, corner[2] - 1);
  for (const auto& edges : table.triangles(signs)) {
    std::array<std::uint32_t, 3> triangle;
    for (int i = 0; i < 3; ++i) triangle[i] = vertex(corner, in_zone, edges[i]);
    if (triangle[0] == triangle[1] || triangle[1] == triangle[2] || triangle[2] == triangle[0]) continue;
    const int octant = edge_octant(edges[0]);
    const int inside = (signs >> octant & 1) != 0 ? octant : octant | 1 << edge_axis(edges[0]);
    surface_.triangles.push_back(triangle);
    surface_.components.push_back(labels_[place + steps_[inside]]);
  }
}

std::uint32_t BlockSurface::vertex(const Index3& corner, int zone, int edge) {
  const int octant = edge_octant(edge), axis = edge_axis(edge);
  Index3 lower;
  for (int i = 0; i < 3; ++i) lower[i] = corner[i] - 1 + (octant >> i & 1);
  Cover cover = Cover::same_level, upper_cover = Cover::same_level;
  if (!zones_.is_regular(zone)) {
    cover = zones_.cover(zone, octant);
    upper_cover = zones_.cover(zone, octant | 1 << axis);
    if (cover != Cover::same_level && upper_cover != Cover::same_level) lower = first_place(lower, axis);
  }
  auto& vertex = vertices_[3 * grid_.padded_place(lower[0], lower[1], lower[2]) + axis];
  if (vertex == no_vertex) {
    Index3 upper = lower;
    ++upper[axis];
    vertex = make_vertex(end(lower, cover), end(upper, upper_cover), axis);
  }
  return vertex;
}

// Several edges have one vertex where coarser cells are: of these, the first in the padded array.
Index3 BlockSurface::first_place(Index3 lower, int axis) const {
  for (int i = 0; i < 3; ++i)
    if (i != axis && lower[i] >= 0 && (first_[i] + lower[i]) % 2 == 1) --lower[i];
  return lower;
}

BlockSurface::End BlockSurface::end(const Index3& place, Cover cover) const {
  const int shift = cover == Cover::coarser ? 1 : 0;
  End out{{level_ - shift, {}}, values_[grid_.padded_place(place[0], place[1], place[2])], cover};
  for (int i = 0; i < 3; ++i) out.cell.at[i] = (first_[i] + place[i]) >> shift;
  return out;
}

Point3 BlockSurface::centre(const Cell& cell) const {
  Point3 out;
  for (int i = 0; i < 3; ++i) out[i] = grid_.origin[i] + (cell.at[i] + 0.5) * widths_[cell.level][i];
  return out;
}

std::uint32_t BlockSurface::make_vertex(const End& lower, const End& upper, int axis) {
  const bool lower_owns =
      upper.cover == Cover::outside || (lower.cover != Cover::outside && lower.cell.level >= upper.cell.level);
  const End &owner = lower_owns ? lower : upper, &other = lower_owns ? upper : lower;
  Point3 point = centre(owner.cell);
  if (other.cover == Cover::outside) {
    point[axis] += (lower_owns ? 0.5 : -0.5) * widths_[owner.cell.level][axis];
  } else {
    double part = (threshold_ - owner.value) / (other.value - owner.value);
    if (!(part >= 0 && part <= 1)) part = 0.5;
    const auto towards = centre(other.cell);
    for (int i = 0; i < 3; ++i) point[i] += part * (towards[i] - point[i]);
  }
  surface_.points.push_back(point);
  surface_.ids.push_back(cell_id(owner.cell, grid_.depth) * 8 + 2 * axis + (lower_owns ? 1 : 0));
  return static_cast<std::uint32_t>(surface_.points.size() - 1);
}

}  // namespace

DualContour::DualContour(const AmrBlocks& blocks, double threshold)
    : blocks_(blocks),
      threshold_(threshold),
      inside_(blocks.grid().padded_cells()),
      vertices_(3 * blocks.grid().padded_cells()) {
  if (!std::isfinite(threshold)) refuse("the threshold of a surface is a finite number");
  for (int level = 0; level <= blocks.grid().depth; ++level) widths_.push_back(blocks.grid().width(level));
}

void DualContour::add(std::size_t row, std::span<const double> values, std::span<const std::int32_t> labels,
                      Surface& surface) {
  if (row >= blocks_.own() || values.size() != inside_.size() || labels.size() != inside_.size())
    refuse("the surface of block " + std::to_string(row) + " needs an own block, and " +
           std::to_string(inside_.size()) + " values and labels, not " + std::to_string(values.size()) + " and " +
           std::to_string(labels.size()));
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) count += inside_[i] = values[i] >= threshold_;
  if (count == 0 || count == values.size()) return;
  std::ranges::fill(vertices_, no_vertex);
  BlockSurface(blocks_, row, threshold_, widths_, values, labels, vertices_, surface).add(table_, inside_);
}

}  // namespace penstock::analysis
