// The database that keeps nothing: what a simulation's output costs without a place for it.
#pragma once

#include "mesh/database.hpp"

namespace penstock::mesh {

std::unique_ptr<Sink> create_null(const DatabaseRequest& request);

}  // namespace penstock::mesh
