// Data of an object's file, read and checked against its checksum while it is in the cache. Safe from any thread.
#pragma once

#include <cstdint>
#include <span>

#include "storage/file.hpp"

namespace penstock::storage {

struct DataPlace {
  std::uint64_t offset = 0, bytes = 0, checksum = 0;
};

// Both throw Error(protocol), naming the file, when the bytes are not there or do not match.
void read_verified(const File& file, const DataPlace& place, std::span<std::byte> out);
void verify_only(const File& file, const DataPlace& place);

}  // namespace penstock::storage
