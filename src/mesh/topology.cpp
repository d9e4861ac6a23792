#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.hpp"
#include "penstock/region.hpp"

namespace penstock::mesh {
namespace {

using Sides = std::vector<std::uint8_t>;  // or an order of nodes

Sides alike(std::size_t sides, std::uint8_t nodes) { return Sides(sides, nodes); }
// Both faces of a shell, then its edges.
Sides shell(std::uint8_t face, std::size_t edges, std::uint8_t edge) {
  Sides sides(2 + edges, edge);
  sides[0] = sides[1] = face;
  return sides;
}
Sides pyramid(std::uint8_t triangle, std::uint8_t base) { return {triangle, triangle, triangle, triangle, base}; }
Sides wedge(std::uint8_t quad, std::uint8_t triangle) { return {quad, quad, quad, triangle, triangle}; }

}  // namespace

// Nodes of sides: Exodus II, a finite element data model, tables 4 and 5 (SAND92-2137, revised 2006).
const std::vector<Topology>& topologies() {
  // VTK has the nodes of upper edges before those of vertical edges, and the centre of a hexahedron last.
  static const Sides hex20_order{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 12, 13, 14, 15};
  static const Sides hex27_order{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 16, 17,
                                 18, 19, 12, 13, 14, 15, 23, 24, 25, 26, 21, 22, 20};
  static const Sides wedge15_order{0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 9, 10, 11};
  static const Sides wedge18_order{0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 9, 10, 11, 15, 16, 17};
  static const std::vector<Topology> table{
      {"sphere", 1, 0, 1, {}},
      {"bar2", 2, 1, 3, {2}},
      {"bar3", 3, 1, 21, {3}},
      {"beam2", 2, 1, 3, {2}},
      {"beam3", 3, 1, 21, {3}},
      {"edge2", 2, 1, 3, {}},
      {"edge3", 3, 1, 21, {}},
      {"spring2", 2, 1, 3, {2}},
      {"spring3", 3, 1, 21, {3}},
      {"tri3", 3, 2, 5, alike(3, 2)},
      {"tri4", 4, 2, 0, alike(3, 2)},
      {"tri6", 6, 2, 22, alike(3, 3)},
      {"tri7", 7, 2, 34, alike(3, 3)},
      {"quad4", 4, 2, 9, alike(4, 2)},
      {"quad5", 5, 2, 0, alike(4, 2)},
      {"quad8", 8, 2, 23, alike(4, 3)},
      {"quad9", 9, 2, 28, alike(4, 3)},
      {"trishell3", 3, 2, 5, shell(3, 3, 2)},
      {"trishell6", 6, 2, 22, shell(6, 3, 3)},
      {"trishell7", 7, 2, 34, shell(7, 3, 3)},
      {"shell4", 4, 2, 9, shell(4, 4, 2)},
      {"shell8", 8, 2, 23, shell(8, 4, 3)},
      {"shell9", 9, 2, 28, shell(9, 4, 3)},
      {"tet4", 4, 3, 10, alike(4, 3)},
      {"tet8", 8, 3, 0, alike(4, 4)},
      {"tet10", 10, 3, 24, alike(4, 6)},
      {"tet11", 11, 3, 0, alike(4, 6)},
      {"tet14", 14, 3, 0, alike(4, 7)},
      {"tet15", 15, 3, 0, alike(4, 7)},
      {"pyramid5", 5, 3, 14, pyramid(3, 4)},
      {"pyramid13", 13, 3, 27, pyramid(6, 8)},
      {"pyramid14", 14, 3, 0, pyramid(6, 9)},
      {"pyramid18", 18, 3, 0, pyramid(7, 9)},
      {"pyramid19", 19, 3, 0, pyramid(7, 9)},
      {"wedge6", 6, 3, 13, wedge(4, 3)},
      {"wedge15", 15, 3, 26, wedge(8, 6), wedge15_order},
      {"wedge18", 18, 3, 32, wedge(9, 6), wedge18_order},
      {"wedge20", 20, 3, 0, wedge(9, 7)},
      {"wedge21", 21, 3, 0, wedge(9, 7)},
      {"hex8", 8, 3, 12, alike(6, 4)},
      {"hex9", 9, 3, 0, alike(6, 4)},
      {"hex20", 20, 3, 25, alike(6, 8), hex20_order},
      {"hex27", 27, 3, 29, alike(6, 9), hex27_order},
      {"nsided", 0, 2, 7, {}},
      {"nfaced", 0, 3, 42, {}},
      {"super", 0, 3, 0, {}},
  };
  return table;
}

namespace {

// What files call them, without the number of nodes.
constexpr std::pair<std::string_view, std::string_view> aliases[] = {
    {"circle", "sphere"},   {"particle", "sphere"}, {"truss", "bar"},      {"rod", "bar"},
    {"line", "bar"},        {"triangle", "tri"},    {"tria", "tri"},       {"tetra", "tet"},
    {"tetrahedron", "tet"}, {"pyra", "pyramid"},    {"hexahedron", "hex"}, {"quadrilateral", "quad"},
    {"quadface", "quad"},   {"triface", "tri"},     {"polygon", "nsided"}, {"polyhedron", "nfaced"},
    {"edge2d", "edge"},
};

}  // namespace

const Topology* find_topology(std::string_view name, std::uint32_t nodes) {
  std::string family;
  for (const char c : name) family += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto digits = family.find_last_not_of("0123456789") + 1;
  std::uint32_t named = 0;
  if (digits < family.size() && family.size() - digits < 4)
    named = static_cast<std::uint32_t>(std::stoul(family.substr(digits)));
  family.resize(digits);
  for (const auto& [alias, meant] : aliases)
    if (family == alias) family = meant;
  const auto wanted = nodes != 0 ? nodes : named;
  if (named != 0 && named != wanted) return nullptr;
  for (const auto& each : topologies()) {
    const auto its_digits = each.name.find_last_not_of("0123456789") + 1;
    if (each.name.substr(0, its_digits) != family) continue;
    if (each.nodes == 0 || wanted == each.nodes || (wanted == 0 && each.name == family)) return &each;
  }
  return nullptr;
}

}  // namespace penstock::mesh
