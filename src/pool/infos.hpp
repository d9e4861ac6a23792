// What is known of many objects, as it travels: parallel arrays, no table for each.
#pragma once

#include <vector>

#include "pool/object_table.hpp"
#include "pool/pool_service.hpp"  // generated from pool.fbs

namespace penstock::pool {

void append_info(fb::InfosT& infos, const ObjectTable::Entry& entry);
// Throws Error(protocol). null: none.
std::vector<ObjectInfo> unpack_infos(const fb::InfosT* infos);

}  // namespace penstock::pool
