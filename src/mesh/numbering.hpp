// Which fields hold numbers of nodes, edges, faces or elements, and the rows of fields whose entries differ in length: what joining and
// spreading of parts need to know about the model.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mesh/database.hpp"

namespace penstock::mesh {

// The types of entity whose members are numbered through all entities of the type.
inline constexpr std::array numbered_types{EntityType::node_block, EntityType::edge_block, EntityType::face_block,
                                           EntityType::element_block};
inline constexpr std::size_t numbered_type_count = numbered_types.size();
std::size_t place_among_numbered(EntityType type);

// The type whose members the first component of the field's values numbers; region for none. `all`: every component does.
struct Reference {
  EntityType type = EntityType::region;
  bool all = true;
};
Reference reference_of(const Entity& entity, const Field& field);

// A field has as many rows as its entity, or entries of rows that differ in length one after the other: connectivity of polygons and
// polyhedra, distribution factors of sides.
bool is_ragged(const Entity& entity, const Field& field);
// For each row of the entity, and one more: where its entries begin. Throws Error(invalid_argument) where they do not add up.
std::vector<std::uint64_t> starts_of(Source& source, std::uint32_t part, Slot slot);

// Whole numbers of a field of one state-less row each, as int64.
std::vector<std::int64_t> read_integers(Source& source, std::uint32_t part, Slot slot);
// Reads rows by their numbers, in any order, packed. For ragged fields: entries.
void read_rows(Source& source, std::uint32_t part, Slot slot, std::span<const std::uint64_t> rows, void* out);

// Numbers in place, of int32 or int64: to what `to` has for each; to their place in a list. Throw Error(invalid_argument) for a number
// that is not there.
void translate(DType dtype, void* values, std::size_t count, std::size_t stride, std::span<const std::uint64_t> to);
void find_in(DType dtype, void* values, std::size_t count, std::size_t stride,
             std::span<const std::uint64_t> ascending);

// Where an entity or a field is in a model; SIZE_MAX where it is not.
std::size_t entity_place(const Model& model, EntityType type, std::string_view name);
std::size_t field_place(const Entity& entity, Role role, std::string_view name);

}  // namespace penstock::mesh
