// Meshes of any size made on the spot: a grid of hexahedra, for tests and figures.
//
//   "60x60x60|times:5|parts:4|global:1|nodal:6|element:2|nodeset:xXz|sideset:zZ"
//
// The grid has that many elements along x, y and z, of edge 1. Parts are slabs along z. Letters name planes: x is the least x, X the
// greatest. Values of results are a function of the place, the variable and the time (value_at).
#pragma once

#include "mesh/database.hpp"

namespace penstock::mesh {

// "60x60x60", with options or without.
bool is_generated_name(std::string_view name);
// Throws Error(invalid_argument), which names what is wrong with the text.
std::unique_ptr<Source> open_generated(const DatabaseRequest& request);

}  // namespace penstock::mesh
