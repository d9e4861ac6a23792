// The surface of the cells whose value is at least a threshold: closed, across blocks, levels and ranks.
//
// Marching cubes on the dual grid of the octree (Schaefer and Warren 2004; docs/internals/fragments.md): a vertex lies between the
// centres of two cells that share a face, or in the domain's face where an inside cell ends there. Vertices of equal ids are one, and
// their points are equal bit for bit, whichever block or rank makes them. Joined by their ids, the triangles of all blocks have each
// edge in two triangles, of opposite directions.
//
// One thread for each object, which keeps a reference to the blocks. Errors: Error(invalid_argument).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"
#include "analysis/fragments/marching_table.hpp"

namespace penstock::analysis {

struct Surface {
  std::vector<Point3> points;  // of each vertex; blocks have their own vertices, with equal ids where they meet
  // Of each vertex: the cell that owns it (the finer of the two; of equals the lower; the one inside the domain), its cell_id * 8 +
  // the face towards the other cell (0 to 5: -x, +x, -y, +y, -z, +z).
  std::vector<std::uint64_t> ids;
  std::vector<std::array<std::uint32_t, 3>> triangles;  // vertices, counterclockwise seen from outside
  std::vector<std::int32_t> components;  // of each triangle: the label of the inside cells that it bounds
};

class DualContour {
 public:
  DualContour(const AmrBlocks& blocks, double threshold);

  // Appends the triangles of an own block. values and labels: padded (AmrGrid::padded_place, BlockField::read_padded). Labels of
  // cells that are not inside are not read. The middle is taken between cells where a value is no finite number.
  void add(std::size_t row, std::span<const double> values, std::span<const std::int32_t> labels, Surface& surface);

 private:
  const AmrBlocks& blocks_;
  double threshold_;
  MarchingTable table_;
  std::vector<Point3> widths_;           // of the cells of each level
  std::vector<std::uint8_t> inside_;     // of each padded cell: 1 when it is inside
  std::vector<std::uint32_t> vertices_;  // of each padded cell and axis: the vertex towards the next cell, or none
};

}  // namespace penstock::analysis
