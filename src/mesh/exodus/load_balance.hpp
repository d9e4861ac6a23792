// Load-balance files: which part has which nodes and elements, as nem_slice writes and nem_spread reads them. Format: G. L. Hennigan,
// J. N. Shadid, NEMESIS I: A Set of Functions for Describing Unstructured Finite-Element Data on Parallel Computers, Sandia, 1998.
#pragma once

#include <memory>
#include <string>

#include "penstock/mesh_database.hpp"

namespace penstock::mesh {

LoadBalance read_load_balance_file(const std::string& path);
void write_load_balance_file(const std::string& path, std::shared_ptr<Source> whole, const LoadBalance& balance);

}  // namespace penstock::mesh
