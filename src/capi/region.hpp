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
    return model;
  }
  // The strings, which are a part of the model, as C has them; until the model changes.
  const char* const* list(std::span<const std::string> strings);

 private:
  std::map<const std::string*, std::vector<const char*>> lists_;
};
