// Fields of several components in formats that keep each component as a variable of its own: DISP_X, DISP_Y, DISP_Z.
//
// Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "penstock/region.hpp"

namespace penstock::mesh {

// Neighbours whose names are one base with the suffixes of a storage, in any case, become a field; the longest storage wins, and
// numbers from 1 on make an array. The others are scalars.
std::vector<Field> join_components(const std::vector<std::string>& names, DType dtype, Role role);

// field.components, or what they would be: base_x, base_y, ... A scalar has its own name.
std::vector<std::string> component_names(const Field& field);

}  // namespace penstock::mesh
