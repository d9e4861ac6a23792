// Boxes and records as messages carry them, with checks: what reads one throws Error(protocol) for what does not fit together.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/array_layout.hpp"
#include "penstock/space.hpp"
#include "space/space_generated.h"

namespace penstock::space {

// How servers convert elements: their type, and the dimensions from the slowest to the fastest.
struct Layout {
  DType dtype = DType::none;
  Dims order;
  friend bool operator==(const Layout&, const Layout&) = default;
};
Layout layout_of(const ArrayForm& form, const struct ArrayRecord& of);
// Throws Error(protocol).
Layout unpack_layout(std::uint8_t dtype, std::span<const std::uint8_t> order, std::size_t dimensions);

struct ArrayRecord {
  std::uint64_t id = 0;
  DType dtype = DType::none;
  Dims shape;
  std::uint32_t parts = 1;
  std::uint64_t tag_base = 0;  // the tag of part 0 of version 0
  ArrayOptions options;
  std::vector<ArrayField> fields;  // structures, without padding; dtype is none
  std::uint64_t stream = 0;        // the incarnation of the stream whose variable it is; 0: of none
  friend bool operator==(const ArrayRecord&, const ArrayRecord&) = default;
};
// Whether versions go because others begin.
bool are_bounded(const ArrayOptions& options);
std::uint64_t element_bytes(const ArrayRecord& record);
// How elements lie in blocks: in rows.
model::ArrayLayout stored_layout(const ArrayRecord& record);
// Throws Error(invalid_argument, unsupported).
std::vector<std::byte> encode_record(const ArrayRecord& record);
// Throws Error(protocol); Error(unsupported): of a newer version of Penstock.
ArrayRecord decode_record(std::span<const std::byte> bytes);

void append_box(std::vector<std::uint64_t>& to, const Box& box);
// All of them, each valid and not empty.
std::vector<Box> unpack_boxes(std::span<const std::uint64_t> numbers, std::size_t dimensions);

}  // namespace penstock::space
