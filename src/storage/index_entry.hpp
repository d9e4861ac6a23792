// What RocksDB keeps for a key in the column family of the index: what the object is, where its data is, and its data where
// that is small. Pure functions; decode takes any bytes and throws Error(protocol).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace penstock::storage {

struct IndexEntry {
  enum class Where : std::uint8_t { here, column, file };  // in the entry, in the data column family, in a file
  Where where = Where::here;
  bool synced = false;       // the file was synced before it got its name
  std::uint64_t number = 0;  // of the file
  std::uint64_t data_bytes = 0, checksum = 0;
  std::string_view metadata;
  std::string_view data;  // where == here
};

// All of the entry before metadata and data, which follow it as they are.
using IndexHead = std::array<char, 32>;
IndexHead encode_index_head(const IndexEntry& entry);
// The result's views are into `bytes`.
IndexEntry decode_index_entry(std::string_view bytes);

}  // namespace penstock::storage
