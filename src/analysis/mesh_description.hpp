// The attribute `meshes` of a channel: its JSON text, made from C++ values (docs/internals/coprocessing.md has the format).
//
// Pure; any thread. Errors: Error(invalid_argument), which names the mesh and what is wrong with it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/coprocessor.hpp"
#include "penstock/mesh.hpp"

namespace penstock::analysis {

struct FieldDescription {
  Association association = Association::node;
  std::vector<std::string> variables;  // one, or one for each component
  std::uint32_t components = 1;        // interleaved, in the one variable
  std::string units;
};

struct MeshDescription {
  Mesh mesh;
  std::map<std::string, FieldDescription, std::less<>> fields;
};

using MeshDescriptions = std::map<std::string, MeshDescription, std::less<>>;

// Throws when the mesh contradicts itself.
void check_mesh(std::string_view name, const Mesh& mesh);

// How a variable of a mesh lies on the stream.
struct Placed {
  bool global = false;  // else its blocks are local arrays
  Dims shape;           // of a global array
};
Placed place_of_field(std::string_view name, const Mesh& mesh, Association association, std::uint32_t components);
// Of a variable that the description names: coordinates, connectivity, ids and the like. Throws for any other. ranks: of the
// simulation.
Placed place_of_structure(std::string_view name, const Mesh& mesh, std::string_view variable, std::uint64_t ranks = 1);

// Throws also for what only all meshes together show: a multiblock's block that is not there, ghosts that are no field.
std::string to_json(const MeshDescriptions& meshes);

}  // namespace penstock::analysis
