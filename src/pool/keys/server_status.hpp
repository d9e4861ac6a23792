// The status of a pool and of its servers. Pure.
#pragma once

#include <string_view>

#include "penstock/error.hpp"
#include "penstock/pool.hpp"
#include "pool/keys/view.hpp"

namespace penstock::pool {

// What a view says: each server with its id, name and state.
PoolStatus status_of(const View& view);

// Fills in what a server says of itself (StatusReply), read with every check: it comes from another process. Throws Error(protocol) when it is no JSON, or lacks something, or has it in another type.
void read_status(std::string_view text, ServerStatus& status);

}  // namespace penstock::pool
