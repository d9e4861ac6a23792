// What every database demands of its caller, checked in one place: the order of calls, and that each field has its values.
#pragma once

#include <memory>

#include "mesh/database.hpp"

namespace penstock::mesh {

// A sink of the database. Where a rank's model is refused, define throws on every rank.
std::unique_ptr<Sink> create_checked(const DatabaseEntry& database, const DatabaseRequest& request);

}  // namespace penstock::mesh
