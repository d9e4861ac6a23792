// A worker's side: reads calls from a socket, runs functions on mapped inputs, replies. Single-threaded and blocking; it
// trusts the server that started it.
#pragma once

#include <string>
#include <vector>

#include "memory/unique_fd.hpp"

namespace penstock::pool::compute {

// Serves until the server closes the socket. Throws Error(protocol, system) when it cannot go on.
void serve_calls(memory::UniqueFd socket, const std::vector<std::string>& plugins);

}  // namespace penstock::pool::compute
