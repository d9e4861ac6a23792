// What a model says of a structured block.
#pragma once

#include <string>

#include "penstock/region.hpp"

namespace penstock::mesh {

// Throws Error(invalid_argument) for a structured block whose cells, ranges or donors contradict the model, and for another entity that
// has cells in i, j, k.
void check_structured(const Model& model, const Entity& entity);

// Throws Error(unsupported), with the reason, where the model has structured blocks.
void refuse_structured(const Model& model, const std::string& why);

}  // namespace penstock::mesh
