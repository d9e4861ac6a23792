// Boxes and records as messages carry them, with checks: what reads one throws Error(protocol) for what does not fit together.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/types.hpp"
#include "space/space_generated.h"

namespace penstock::space {

struct ArrayRecord {
  std::uint64_t id = 0;
  DType dtype = DType::none;
  Dims shape;
  std::uint32_t parts = 1;
  std::uint64_t tag_base = 0;  // the tag of part 0 of version 0
  friend bool operator==(const ArrayRecord&, const ArrayRecord&) = default;
};
std::vector<std::byte> encode_record(const ArrayRecord& record);
// Throws Error(protocol); Error(unsupported): of a newer version of Penstock.
ArrayRecord decode_record(std::span<const std::byte> bytes);

void append_box(std::vector<std::uint64_t>& to, const Box& box);
// All of them, each valid and not empty.
std::vector<Box> unpack_boxes(std::span<const std::uint64_t> numbers, std::size_t dimensions);

}  // namespace penstock::space
