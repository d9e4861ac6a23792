// A memory file that a worker writes a large result into, and that the server reads with pread: whatever the worker does
// to it meanwhile, the server gets bytes or an error, never a fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/unique_fd.hpp"

namespace penstock::pool::compute {

// Of exactly that size, sealed against resizing. Its pages come as they are written. Throws Error(memory, system).
memory::UniqueFd create_result_file(std::uint64_t bytes);
// Throws Error(system).
void read_result_file(int fd, std::span<std::byte> into);

}  // namespace penstock::pool::compute
