// What fork leaves behind. The library's threads are the parent's: what was made before a fork is of no use in the child, and
// must not speak for the parent there. An object keeps forks() as of its making, and compares.
#pragma once

#include <cstdint>

namespace penstock::base {

// How many forks lie between the process that called this first and this one. Any thread.
std::uint32_t forks();

}  // namespace penstock::base
