#include "analysis/fragments/marching_table.hpp"

#include <algorithm>
#include <utility>

namespace penstock::analysis {
namespace {

using Face = std::array<int, 4>;  // octants, counterclockwise seen from outside

constexpr std::array<Face, 6> hexahedron_faces{
    {{0, 4, 6, 2}, {1, 3, 7, 5}, {0, 1, 5, 4}, {2, 6, 7, 3}, {0, 2, 3, 1}, {4, 5, 7, 6}}};

bool is_inside(unsigned signs, int octant) { return (signs >> octant & 1) != 0; }

int edge_between(int octant, int other) {
  for (int edge = 0; edge < hexahedron_edges; ++edge)
    if (edge_octant(edge) == (octant & other) && 1 << edge_axis(edge) == (octant ^ other)) return edge;
  return -1;
}

bool is_ambiguous(unsigned signs, const Face& face) {
  const bool first = is_inside(signs, face[0]), second = is_inside(signs, face[1]);
  return first != second && first == is_inside(signs, face[2]) && second == is_inside(signs, face[3]);
}

// For each edge that the surface cuts, the next one around the inside octants.
std::array<int, hexahedron_edges> next_edges(unsigned signs) {
  std::array<int, hexahedron_edges> next;
  next.fill(-1);
  for (const Face& face : hexahedron_faces)
    for (int i = 0; i < 4; ++i) {
      if (is_inside(signs, face[i]) || !is_inside(signs, face[(i + 1) % 4])) continue;
      int last = i + 1;  // of the run of inside octants
      while (is_inside(signs, face[(last + 1) % 4])) ++last;
      next[edge_between(face[i], face[(i + 1) % 4])] = edge_between(face[last % 4], face[(last + 1) % 4]);
    }
  return next;
}

// In how many ambiguous faces the edge lies, or an edge that may have the same vertex: the opposite one of a face, of equal signs.
int ambiguous_faces(unsigned signs, int edge) {
  const int octant = edge_octant(edge), other = octant | 1 << edge_axis(edge);
  int count = 0;
  for (const Face& face : hexahedron_faces) {
    if (!is_ambiguous(signs, face)) continue;
    const auto lies_in_face = [&](int one, int two) {
      return std::ranges::count(face, one) + std::ranges::count(face, two) == 2;
    };
    if (lies_in_face(octant, other)) ++count;
    for (int axis = 0; axis < 3; ++axis) {
      if (axis == edge_axis(edge)) continue;
      const int moved = octant ^ 1 << axis, other_moved = other ^ 1 << axis;
      const bool same_signs = is_inside(signs, moved) == is_inside(signs, octant) &&
                              is_inside(signs, other_moved) == is_inside(signs, other);
      if (same_signs && lies_in_face(moved, other_moved)) ++count;
    }
  }
  return count;
}

}  // namespace

// A loop becomes a fan of triangles. A diagonal of a loop must not join two vertices of an ambiguous face, since the hexahedron on
// the face's other side might have the same diagonal: the surface would have four triangles there. Two vertices without a common
// face meet in no other hexahedron. The fan starts where the fewest ambiguous faces are: then no diagonal lies in one, for all signs,
// and also where coarse cells take the place of several octants (checked by enumeration).
MarchingTable::MarchingTable() {
  for (unsigned signs = 0; signs < 256; ++signs) {
    auto next = next_edges(signs);
    for (int start = 0; start < hexahedron_edges; ++start) {
      std::vector<std::uint8_t> loop;
      for (int edge = start; next[edge] >= 0;) {
        loop.push_back(static_cast<std::uint8_t>(edge));
        edge = std::exchange(next[edge], -1);
      }
      if (loop.empty()) continue;
      std::ranges::rotate(loop,
                          std::ranges::min_element(loop, {}, [&](int edge) { return ambiguous_faces(signs, edge); }));
      for (std::size_t i = 2; i < loop.size(); ++i) triangles_.push_back({loop[0], loop[i - 1], loop[i]});
    }
    first_[signs + 1] = static_cast<std::uint16_t>(triangles_.size());
  }
}

}  // namespace penstock::analysis
