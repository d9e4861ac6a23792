// What the files of the C API of mesh regions share: the model's handle.
#pragma once

#include "capi/capi.hpp"
#include "penstock/mesh_database.hpp"
#include "penstock/region.h"

struct penstock_model {
  explicit penstock_model(penstock::mesh::Model m) : model(std::move(m)) {}
  penstock::mesh::Model model;

  // Before and after a change no array that was handed out is valid.
  penstock::mesh::Model& change() {
    lists_.clear();
    connectivities_.clear();
    boundaries_.clear();
    return model;
  }
  // The strings, which are a part of the model, as C has them; until the model changes.
  const char* const* list(std::span<const std::string> strings);
  // As C has it, likewise.
  penstock_structured structured(std::size_t entity);

 private:
  std::map<const std::string*, std::vector<const char*>> lists_;
  std::map<std::size_t, std::vector<penstock_zone_connectivity>> connectivities_;  // by entity
  std::map<std::size_t, std::vector<penstock_boundary_condition>> boundaries_;
};

namespace penstock::capi {

// "element_block 'bricks'"
std::string describe(const mesh::Entity& entity);
// Throws Error(invalid_argument) for a number that the model does not have.
mesh::Entity& entity_of(penstock_model* handle, std::size_t number);

}  // namespace penstock::capi
