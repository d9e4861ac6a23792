// What the parts of a region that is spread have of it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "penstock/mesh_database.hpp"

namespace penstock::mesh {

struct Share {
  std::vector<std::uint64_t> nodes, elements;                   // by number in the whole, ascending
  std::vector<std::pair<std::uint64_t, std::uint32_t>> shared;  // nodes, and another part that has each; by part
};
// Throws as spread().
std::vector<Share> shares_of(std::shared_ptr<Source> whole, const LoadBalance& balance);

}  // namespace penstock::mesh
