#include "model/array_layout.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "model/box.hpp"
#include "model/layout.hpp"
#include "penstock/error.hpp"

namespace penstock::model {

namespace {

constexpr std::int64_t max_offset = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void refuse_array_layout(const std::string& what) {
  throw Error(Errc::invalid_argument, "array layout: " + what);
}

void validate_fields(const ArrayLayout& layout) {
  if (layout.fields.empty() || layout.fields.size() > max_fields)
    refuse_array_layout(std::to_string(layout.fields.size()) + " fields, expected 1 to " + std::to_string(max_fields));
  if (layout.structure_bytes > static_cast<std::uint64_t>(max_offset))
    refuse_array_layout("a structure of " + std::to_string(layout.structure_bytes) + " bytes is too large");
  std::unordered_set<std::string_view> names;
  std::vector<const Field*> by_offset;
  for (const Field& field : layout.fields) {
    const std::string name = "field '" + field.name + "'";
    if (field.name.empty() && layout.fields.size() > 1) refuse_array_layout("a field of a structure has no name");
    if (field.name.size() > max_field_name) refuse_array_layout("a field's name is too long");
    if (!names.insert(field.name).second) refuse_array_layout(name + " appears twice");
    if (size_of(field.dtype) == 0) refuse_array_layout(name + " has an element type without a fixed size");
    by_offset.push_back(&field);
    if (layout.structure_bytes == 0 && field.offset != 0)
      refuse_array_layout(name + " has an offset, but there are no structures");
  }
  if (layout.structure_bytes == 0) return;
  std::ranges::sort(by_offset, {}, &Field::offset);
  std::uint64_t end = 0;  // of the fields so far
  for (const Field* field : by_offset) {
    if (field->offset < end) refuse_array_layout("field '" + field->name + "' overlaps another one");
    if (layout.structure_bytes < size_of(field->dtype) ||
        field->offset > layout.structure_bytes - size_of(field->dtype))
      refuse_array_layout("field '" + field->name + "' reaches over the end of the structure");
    end = field->offset + size_of(field->dtype);
  }
}

void place_by_order(const ArrayLayout& layout, PlacedArray& placed) {
  Dims padded = placed.box.count;
  for (std::size_t d = 0; d < layout.padding.size(); ++d)
    if (__builtin_add_overflow(padded[d], layout.padding[d], &padded[d])) padded[d] = ~std::uint64_t{0};
  const auto place_array = [&](std::size_t elem_size) {
    const auto bytes = packed_bytes(padded, elem_size);
    if (!bytes || *bytes > static_cast<std::uint64_t>(max_offset) - placed.bytes)
      refuse_array_layout("an array of " + to_string(padded) + " with its padding takes 2^63 bytes or more");
    Strides strides{};
    auto next = static_cast<std::int64_t>(elem_size);
    for (std::size_t i = padded.size(); i-- > 0 && *bytes > 0;) {
      strides[layout.order[i]] = next;
      next *= static_cast<std::int64_t>(padded[layout.order[i]]);
    }
    placed.bytes += *bytes;
    return strides;
  };
  if (layout.structure_bytes > 0) {
    const Strides strides = place_array(layout.structure_bytes);
    for (const Field& field : layout.fields)
      placed.fields.push_back({field.name, field.dtype, static_cast<std::int64_t>(field.offset), strides});
    return;
  }
  for (const Field& field : layout.fields) {
    const std::uint64_t gap = -placed.bytes % field_array_alignment;
    if (gap > static_cast<std::uint64_t>(max_offset) - placed.bytes)
      refuse_array_layout("the arrays take 2^63 bytes or more");
    placed.bytes += gap;
    const auto offset = static_cast<std::int64_t>(placed.bytes);
    const Strides strides = place_array(size_of(field.dtype));
    placed.fields.push_back({field.name, field.dtype, offset, strides});
  }
}

void place_by_strides(const ArrayLayout& layout, PlacedArray& placed) {
  const Dims& count = placed.box.count;
  const std::uint64_t elem_size = layout.structure_bytes > 0 ? layout.structure_bytes : size_of(layout.fields[0].dtype);
  Strides strides{};
  std::ranges::copy(layout.strides, strides.begin());
  for (const Field& field : layout.fields)
    placed.fields.push_back({field.name, field.dtype, static_cast<std::int64_t>(field.offset), strides});
  if (is_empty(placed.box)) return;
  std::vector<std::size_t> faster_first(count.size());
  std::iota(faster_first.begin(), faster_first.end(), std::size_t{0});
  const auto width = [&](std::size_t d) { return strides[d] < 0 ? -static_cast<__int128>(strides[d]) : strides[d]; };
  std::ranges::sort(faster_first, {}, width);
  __int128 begin = 0, bytes = elem_size;
  for (const std::size_t d : faster_first) {
    if (count[d] == 1) continue;
    placed.overlapping |= width(d) < bytes;
    const auto steps = static_cast<__int128>(count[d] - 1);
    bytes += steps * width(d);
    if (strides[d] < 0) begin -= steps * width(d);
    if (bytes > max_offset) refuse_array_layout("an array of " + to_string(count) + " reaches over 2^63 bytes or more");
  }
  placed.begin = static_cast<std::int64_t>(begin);
  placed.bytes = static_cast<std::uint64_t>(bytes);
}

}  // namespace

Dims dimensions_in(Order order, std::size_t rank) {
  Dims dims = Dims::filled(rank, 0);
  std::iota(dims.begin(), dims.end(), std::uint64_t{0});
  if (order == Order::column) std::reverse(dims.begin(), dims.end());
  return dims;
}

ArrayLayout scalar_layout(DType dtype, Dims order) { return {.fields = {{"", dtype}}, .order = order}; }

void validate(const ArrayLayout& layout) {
  validate_fields(layout);
  if (layout.strides.empty()) {
    Dims sorted = layout.order;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != dimensions_in(Order::row, sorted.size()))
      refuse_array_layout("the order is no permutation of " + std::to_string(sorted.size()) + " dimensions");
    if (!layout.padding.empty() && layout.padding.size() != layout.order.size())
      refuse_array_layout("padding of " + std::to_string(layout.padding.size()) + " dimensions, expected " +
                          std::to_string(layout.order.size()));
    return;
  }
  if (layout.strides.size() > max_dims) refuse_array_layout("strides of more than 8 dimensions");
  if (!layout.order.empty() || !layout.padding.empty()) refuse_array_layout("strides exclude an order and padding");
  if (layout.structure_bytes == 0 && layout.fields.size() > 1)
    refuse_array_layout("strides are for scalars and structures, not for several arrays");
}

PlacedArray place(const ArrayLayout& layout, const Box& box) {
  validate(layout);
  if (!is_valid(box)) refuse_array_layout("the box is malformed");
  if (box.count.size() != layout.rank())
    refuse_array_layout(std::to_string(layout.rank()) + " dimensions, but the box " + to_string(box) + " has " +
                        std::to_string(box.count.size()));
  PlacedArray placed{.box = box, .structure_bytes = layout.structure_bytes};
  if (layout.strides.empty()) place_by_order(layout, placed);
  else place_by_strides(layout, placed);
  return placed;
}

}  // namespace penstock::model
