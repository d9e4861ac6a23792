// Marching cubes on the eight cells around a corner: which edges of the hexahedron the triangles join.
//
// Lorensen and Cline 1987, with one rule for ambiguous faces (two inside corners, diagonally opposite): inside corners are apart.
// So both hexahedra of a face cut it alike, and inside cells are connected through common faces alone.
// Octant o: bit 0 is set when it is the upper one in x, bit 1 in y, bit 2 in z. Edge 4 * axis + i joins an octant to the next one
// along the axis.
//
// A plain value; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock::analysis {

constexpr int hexahedron_edges = 12;
constexpr int edge_axis(int edge) { return edge / 4; }
// The lower of the edge's two octants.
constexpr int edge_octant(int edge) {
  const int axis = edge_axis(edge), i = edge % 4;
  return axis == 0 ? i << 1 : axis == 1 ? (i & 1) | (i & 2) << 1 : i;
}

class MarchingTable {
 public:
  MarchingTable();

  // signs: bit o is set when octant o is inside. Three edges for each triangle, counterclockwise seen from outside.
  std::span<const std::array<std::uint8_t, 3>> triangles(unsigned signs) const {
    return std::span(triangles_).subspan(first_[signs], first_[signs + 1] - first_[signs]);
  }

 private:
  std::array<std::uint16_t, 257> first_{};
  std::vector<std::array<std::uint8_t, 3>> triangles_;
};

}  // namespace penstock::analysis
