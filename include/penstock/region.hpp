// Mesh regions: a simulation's mesh and its fields, described once in IOSS's terms (SAND2020-9451, section 2).
//
// A region is a model (nodes, blocks of elements, sets, their model fields) and a sequence of states, each with a time and the values
// of transient fields. A database keeps it: an Exodus file, Nemesis files, a stream, nothing. Which one is a run-time choice.
// A region has one or more parts, one for each rank that wrote it. Each part has its own nodes and elements; nodes that several parts
// share have the same id in each.
//
// Numbers inside of a part count from 0: connectivity holds numbers of nodes, sets hold numbers of nodes, elements, edges or faces.
// Elements are numbered through the element blocks of the part, in their order (edges and faces likewise). Sides of an element
// count from 1, as IOSS counts them. Ids are the user's, and unique among all parts.
//
// Values only: copyable, no I/O, any thread. Errors: Error(invalid_argument), which names the entity and the field.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::mesh {

enum class EntityType : std::uint8_t {
  region,
  node_block,
  edge_block,
  face_block,
  element_block,
  node_set,
  edge_set,
  face_set,
  element_set,
  side_set,
  comm_set,  // what this part shares with others
  structured_block,
  assembly,
  blob,
};
inline constexpr std::size_t entity_type_count = 14;
// "element_block"; the inverse throws.
std::string_view name_of(EntityType);
EntityType entity_type_from_name(std::string_view);

// What a field is for. Mesh, attribute, map and communication fields belong to the model. Transient fields have values in each
// state, one for each node, element or member; reduction fields have one for the entity.
enum class Role : std::uint8_t { mesh, attribute, map, communication, reduction, transient };
inline constexpr std::size_t role_count = 6;
std::string_view name_of(Role);
Role role_from_name(std::string_view);

struct Field {
  std::string name{};
  DType dtype = DType::float64;    // int32, int64, float32, float64, complex128, string
  std::string storage = "scalar";  // or vector_3d, sym_tensor_33, ... (storage_named), or "[7]": an array of 7
  Role role = Role::transient;
  // Of model fields, and of the region's own: how many entries there are, where they are not one for each node, element or member.
  std::uint64_t count = 0;
  // The names of the components in a format that keeps each by itself (Exodus); empty: made of name and the storage's suffixes.
  std::vector<std::string> components{};
  friend bool operator==(const Field&, const Field&) = default;
};

using Property = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;
struct Properties : std::map<std::string, Property, std::less<>> {
  using map::map;
  // A NaN equals a NaN, so that a model with one equals itself.
  friend bool operator==(const Properties& a, const Properties& b);
};

// Cells or nodes along i, j and k.
using Ijk = std::array<std::int64_t, 3>;

// Nodes of a structured block from one corner to the other, both included: numbers in the whole block, from 0.
struct NodeRange {
  Ijk first{};
  Ijk last{};  // may be less than first, where an axis runs the other way in the block that is connected
  friend bool operator==(const NodeRange&, const NodeRange&) = default;
};

// Nodes of this part that a block shares with another one, or with itself.
struct ZoneConnectivity {
  std::string name{};
  std::string donor{};  // the other structured block
  // For each axis of this block the one of the donor, 1 to 3, that it runs along; negative: in the opposite direction.
  std::array<std::int32_t, 3> transform{1, 2, 3};
  NodeRange owner_range{};     // in this block
  NodeRange donor_range{};     // the same nodes, in the same order, in the donor
  bool decomposition = false;  // the block continues in another part: the donor is the block itself
  friend bool operator==(const ZoneConnectivity&, const ZoneConnectivity&) = default;
};

struct BoundaryCondition {
  std::string name{};
  std::string family{};   // what is applied there: several blocks may name the same
  NodeRange range{};      // of this part
  std::int32_t face = 0;  // of the whole block: 0 to 2: least i, j, k; 3 to 5: greatest i, j, k
  friend bool operator==(const BoundaryCondition&, const BoundaryCondition&) = default;
};

// The cells of a structured block. Along an axis that the block does not have (k, or j and k) there are 0 cells and one node.
struct Structured {
  Ijk cells{};   // of this part; all 0 where it has none
  Ijk whole{};   // of all parts
  Ijk offset{};  // of this part's first cell in the whole
  std::vector<ZoneConnectivity> connectivities{};
  std::vector<BoundaryCondition> boundaries{};

  // Of this part.
  std::uint64_t cell_count() const;
  std::uint64_t node_count() const;
  friend bool operator==(const Structured&, const Structured&) = default;
};

// Model fields that entities have, all of role mesh:
//   node block     coordinates (vector_3d, vector_2d or scalar), ids
//   blocks         connectivity (storage "[8]"; of polygons and polyhedra: all entries in one column, with entity_counts), ids
//   node set, ...  members; distribution_factors; of edge and face sets also orientations (1 or -1)
//   side set       element_side (storage "[2]"), distribution_factors (one for each node of each side)
//   comm set       entity_processor (storage "[2]", role communication): a node, or an element and a side of it in one number
//                  (element * 10 + side), and a part that has it too
//   structured     ids of cells. Its nodes are the node block of its name, with coordinates, ids and fields of nodes. Both have i
//   block          fastest, then j, k. Blocks that are connected have their nodes each, with the same ids where ids are given.
//                  A part that has no cells of a block names it, as the donor of others
//   blob           none
struct Entity {
  EntityType type = EntityType::element_block;
  std::string name{};  // unique among the entities of its type
  std::int64_t id = 0;
  std::uint64_t count = 0;             // nodes, elements, cells, members or sides of this part
  std::string topology{};              // of blocks: "hex8", "nfaced", ...
  std::vector<std::string> members{};  // of an assembly: names of entities, all of one type
  EntityType member_type = EntityType::element_block;
  Properties properties{};
  std::vector<Field> fields{};
  std::optional<Structured> structured{};  // of a structured block

  // The first field of the name; null when there is none. at throws not_found.
  const Field* find(std::string_view field) const;
  const Field* find(std::string_view field, Role role) const;
  const Field& at(std::string_view field) const;
  friend bool operator==(const Entity&, const Entity&) = default;
};

struct QaRecord {
  std::string code{}, version{}, date{}, time{};
  friend bool operator==(const QaRecord&, const QaRecord&) = default;
};

// One part of a region, without data.
struct Model {
  std::string title{};
  std::uint32_t dimensions = 3;
  std::vector<Entity> entities{};  // first the region itself, which has the fields of the whole; then by type
  std::vector<QaRecord> qa{};
  std::vector<std::string> information{};
  Properties properties{};

  Entity& add(Entity entity);
  const Entity* find(EntityType type, std::string_view name) const;
  const Entity& at(EntityType type, std::string_view name) const;
  // Of all entities of the type.
  std::uint64_t count_of(EntityType type) const;
  friend bool operator==(const Model&, const Model&) = default;
};

// Throws when the model contradicts itself: two names alike, an unknown storage, a topology with another number of nodes, a range
// outside of its block.
void check(const Model& model);

// Values of a field, of one state: rows (nodes, elements, ...), and components of each.
std::uint64_t rows_of(const Entity& entity, const Field& field);
std::uint32_t components_of(const Field& field);
std::uint64_t values_of(const Entity& entity, const Field& field);

// How the components of a value are called: {"x", "y", "z"} of vector_3d; none of a scalar.
struct Storage {
  std::string name{};
  std::vector<std::string> suffixes{};
};
// Throws for a name that is unknown. "[7]" gives "1" to "7".
Storage storage_named(std::string_view name);
// All that have a name of their own.
const std::vector<Storage>& named_storages();

// An element, face or edge of a block.
struct Topology {
  std::string_view name;  // IOSS's
  std::uint32_t nodes = 0;
  std::uint32_t dimension = 0;
  int vtk = 0;                               // VTK's cell type; 0: none
  std::vector<std::uint8_t> side_nodes;      // how many nodes each side has
  std::vector<std::uint8_t> vtk_order = {};  // for each node of VTK's cell, which node it is here; empty: the same
};
// All of them, those of one VTK cell type in order of preference.
const std::vector<Topology>& topologies();
// Null when it is not known. Takes the names that Exodus files have, in any case: HEX, HEX8, SHELL4, ...; `nodes` decides where a name
// alone does not (0: unknown).
const Topology* find_topology(std::string_view name, std::uint32_t nodes = 0);

}  // namespace penstock::mesh
