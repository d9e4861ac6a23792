// What an Exodus file has beside Exodus's own variables, so that a copy keeps it: fields of the region, "netcdf/NAME" (role mesh, or
// transient where the variable has a value for each state), whose count is the number of values. Properties of the region hold the rest:
// "netcdf/NAME" is "int16/y=3/x=4", the type and dimensions; "netcdf/NAME/units" is an attribute. Characters are fields of int32.
#pragma once

#include <string_view>
#include <vector>

#include "mesh/exodus/exodus_layout.hpp"
#include "mesh/exodus/netcdf_file.hpp"

namespace penstock::mesh {

bool is_foreign_name(std::string_view name);
// Fields and properties for the region, and where the fields are.
void read_foreign(const NetcdfFile& file, Entity& region, std::vector<Place>& places);
// places: of the region's fields. Throws Error(invalid_argument) for properties that contradict the field.
void define_foreign(NetcdfFile& file, const Entity& region, std::vector<Place>& places);

}  // namespace penstock::mesh
