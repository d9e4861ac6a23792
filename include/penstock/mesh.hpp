// Meshes, as a channel describes them to analyses (penstock/coprocessor.hpp): where the nodes and elements of its fields are.
//
// A description names variables of the stream and holds no data. Structured meshes lie in global arrays: `shape` counts nodes by
// array dimension (1 to 3 of them), and `axes` says which spatial axis each array dimension runs along: "zyx" for T[z][y][x]; ""
// is "xyz", as far as there are dimensions. A variable of elements has one less in each dimension, but at least one. The other
// meshes lie in local arrays: block k of each variable is domain k. Lengths are in the simulation's unit.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "penstock/types.hpp"

namespace penstock {

// x, y, z.
using Vector3 = std::array<double, 3>;

struct UniformMesh {
  Dims shape{};
  std::string axes{};
  Vector3 origin{};
  Vector3 spacing{1, 1, 1};
};

struct RectilinearMesh {
  Dims shape{};
  std::string axes{};
  std::vector<std::string> coordinates{};  // variables of one dimension, one for each of the axes, in their order
};

struct CurvilinearMesh {
  Dims shape{};
  std::string axes{};
  // Variables of the shape, of x, y and z; or one with x, y, z as its last dimension
  std::vector<std::string> coordinates{};
};

// Elements of one topology: hex8, tet10, quad4 and all others of penstock/region.hpp with a VTK cell type and nodes; or mixed.
struct ElementBlock {
  std::string name{};
  std::int64_t id = 0;
  std::string topology{};
  // Variable: elements x nodes of the topology; mixed: one dimension. Numbers of nodes, from 0
  std::string connectivity{};
  std::string offsets{};     // mixed: variable of elements + 1, where each element begins in connectivity
  std::string topologies{};  // mixed: variable of elements, uint8: VTK's numbers of cell types
};

struct UnstructuredMesh {
  std::vector<std::string> coordinates{};  // variables of x, y and z; or one of nodes x 3
  std::vector<ElementBlock> blocks{};
};

// Fields are of elements.
struct ParticleMesh {
  std::vector<std::string> coordinates{};  // as UnstructuredMesh
};

// Analyses of fragments number the cells of an AMR mesh with 20 bits for each axis, counted at the deepest level.
inline constexpr std::uint32_t max_amr_depth = 20;

// Blocks of equal size at levels of refinement. A field is blocks x cells.
struct AmrMesh {
  Dims cells{};  // of a block, by array dimension, ghost layers included
  std::string axes{};
  std::uint32_t ghost_layers = 0;
  Vector3 origin{};
  Vector3 spacing{1, 1, 1};  // of level 0
  std::uint32_t refinement = 2;
  std::string levels{};   // variable: blocks
  std::string indices{};  // variable: blocks x 3, of the block at its level, in x, y, z
  // Where ranks have consecutive parts of a Z curve: a variable, a global array of one uint64 for each rank. It holds the Morton
  // number of the rank's first block: bit 0 is of x, 1 of y, 2 of z, counted in blocks of the level `depth`. A rank without blocks
  // has the number of the next rank, or UINT64_MAX. Analyses then read a block's neighbours without looking at all blocks. Every
  // rank puts one block of levels and indices, also an empty one. The numbers are read fastest when rank 0 puts all of them.
  std::string splits{};     // "": none
  std::uint32_t depth = 0;  // with splits: no block is of a higher level; at most max_amr_depth
};

// Other meshes of the channel as one.
struct MultiblockMesh {
  std::vector<std::string> blocks{};
};

using MeshShape = std::variant<UniformMesh, RectilinearMesh, CurvilinearMesh, UnstructuredMesh, ParticleMesh, AmrMesh,
                               MultiblockMesh>;

struct Mesh {
  MeshShape shape{};
  std::string ghosts = {};    // a field of uint8: 0 for what the block owns
  std::string node_ids = {};  // variables of int64: global ids
  std::string element_ids = {};
};

}  // namespace penstock
