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

// In how many ambiguous faces the edge lies.
long ambiguous_faces(unsigned signs, int edge) {
  const int octant = edge_octant(edge), other = octant | 1 << edge_axis(edge);
  return std::ranges::count_if(hexahedron_faces, [&](const Face& face) {
    return is_ambiguous(signs, face) && std::ranges::count(face, octant) + std::ranges::count(face, other) == 2;
  });
}

}  // namespace

// A loop becomes a fan of triangles. No diagonal of it may join two vertices of an ambiguous face: the hexahedron on the face's other
// side might have the same diagonal, and the edge would be in four triangles. Two vertices without a common face meet in one
// hexahedron alone. A fan that starts at the vertex in the fewest ambiguous faces has no such diagonal, for any signs. Where a coarse
// cell takes the place of two octants, a diagonal may come to lie in an ambiguous face across their common axis; of the hexahedra
// around this face the coarse cell has two octants in one alone, so that the others lack the diagonal.
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
