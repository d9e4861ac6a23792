// The key of a block, which is all that the index keeps of it: the row says array, version and part, the column the box.
//
// At most 56 bytes. A box is its number of dimensions, then start and count of each, seven bits a byte, lowest first. The
// elements of an array are counted in 64 bits, so all starts take at most 17 bytes, and so do all counts.
// Each row and each box has one encoding. Decoding takes any bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/types.hpp"

namespace penstock::space {

struct BlockRow {
  std::uint64_t array = 0;  // its id
  std::uint64_t version = 0;
  std::uint32_t part = 0;
  friend bool operator==(const BlockRow&, const BlockRow&) = default;
};

// In the order of array, version, part.
std::string block_row(const BlockRow& row);
// Nothing: it is no row of blocks.
std::optional<BlockRow> block_row_of(std::string_view row);

// A valid box that is not empty.
std::string block_column(const Box& box);
// Nothing: it is no such box.
std::optional<Box> block_box_of(std::string_view column);

}  // namespace penstock::space
