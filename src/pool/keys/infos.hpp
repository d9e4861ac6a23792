// What is known of many objects, as it travels: parallel arrays, no table for each.
#pragma once

#include <vector>

#include "penstock/pool.hpp"
#include "pool/keys/pool_generated.h"

namespace penstock::pool {

// Throws Error(protocol). null: none.
std::vector<ObjectInfo> unpack_infos(const fb::InfosT* infos);

}  // namespace penstock::pool
