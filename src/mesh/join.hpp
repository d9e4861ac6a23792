// Names of the fields and properties that joining and spreading (penstock/mesh_database.hpp) share.
//
// Joining is what epu does with the files of a run: the lowest part's values count; what has no ids is put together part after part;
// reduction fields are part 0's. Both read values when they are asked for, and hold the numbers of all nodes and elements.
#pragma once

#include "penstock/mesh_database.hpp"

namespace penstock::mesh {

// A map of nodes and elements, or an attribute of sets: where spreading keeps the order that numbers and ids do not give.
inline constexpr const char* position_field = "original_position";
inline bool is_position(const Field& field) {
  return field.name == position_field && (field.role == Role::map || field.role == Role::attribute);
}
// A property: types whose ids spreading has added.
inline constexpr const char* implicit_ids_property = "penstock_implicit_ids";

}  // namespace penstock::mesh
