// What is told of an object that is here. keys/protocol.hpp and keys/infos.hpp read it.
#pragma once

#include <cstdint>
#include <memory>

#include "pool/keys/pool_generated.h"
#include "pool/store/object_table.hpp"

namespace penstock::pool {

std::unique_ptr<fb::InfoT> pack_info(const Key& key, const StoredObject& object, std::uint32_t waiters);
void append_info(fb::InfosT& infos, const ObjectTable::Entry& entry);

}  // namespace penstock::pool
