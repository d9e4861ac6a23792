// The fields of a part of a region, one after the other, and their values.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "mesh/database.hpp"

namespace penstock::mesh {

// The values of a field, of the model or of the present state.
std::vector<std::byte> read_whole(Source& source, std::uint32_t part, Slot slot);

// Calls see(slot) for each field of the roles' kind: of the model (communication first), or of a state.
void each_model_field(const Model& model, const std::function<void(Slot)>& see);
void each_state_field(const Model& model, const std::function<void(Slot)>& see);

}  // namespace penstock::mesh
