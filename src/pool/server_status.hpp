// What a server says of itself (StatusReply), read with every check: it comes from another process. Pure.
#pragma once

#include <string_view>

#include "penstock/error.hpp"
#include "penstock/pool.hpp"

namespace penstock::pool {

// Fills in what the text says. Throws Error(protocol) when it is no JSON, or lacks something, or has it in another type.
void read_status(std::string_view text, ServerStatus& status);

}  // namespace penstock::pool
