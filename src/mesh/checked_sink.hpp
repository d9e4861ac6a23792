// What every database demands of its caller, checked in one place: the order of calls, and that each field has its values.
#pragma once

#include <memory>

#include "mesh/database.hpp"

namespace penstock::mesh {

// Where a rank's model is refused, define throws on every rank.
std::unique_ptr<Sink> checked(std::unique_ptr<Sink> sink, std::string name, std::shared_ptr<Cohort> cohort);

}  // namespace penstock::mesh
