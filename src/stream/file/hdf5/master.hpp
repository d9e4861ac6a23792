// Rank 0's file as the master of its step: the whole arrays, values and attributes by their names, as penstock stream save has them in a
// file of one step.
#pragma once

#include <cstdint>
#include <string>

#include "stream/file/hdf5_part.hpp"

namespace penstock::stream {

// Where the layouts are in the file.
std::uint64_t add_master(const std::string& path, const Master& master);

}  // namespace penstock::stream
