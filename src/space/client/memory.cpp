// Where elements and their fields lie in the caller's memory.
#include <algorithm>

#include "base/text.hpp"
#include "space/client/space_impl.hpp"

namespace penstock {
namespace {

const ArrayField& field_of(const space::ArrayRecord& of, const std::string& name) {
  const auto found = std::ranges::find(of.fields, name, &ArrayField::name);
  if (found != of.fields.end()) return *found;
  std::vector<std::string_view> names;
  for (const auto& field : of.fields) names.push_back(field.name);
  throw Error(Errc::invalid_argument, base::unknown_name("field", name, names));
}

model::ArrayLayout arranged(const ArrayMemory& memory, const std::vector<std::int64_t>& strides, std::size_t rank) {
  model::ArrayLayout layout;
  layout.strides = strides;
  if (strides.empty()) layout.order = model::dimensions_in(memory.order, rank);
  return layout;
}

// Each field has an array of its own.
void place_apart(const ArrayMemory& memory, const std::vector<model::Field>& fields, model::PlacedArray& placed) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& strides = memory.fields[i].strides.empty() ? memory.strides : memory.fields[i].strides;
    auto layout = arranged(memory, strides, placed.box.start.size());
    layout.fields = {{fields[i].name, fields[i].dtype}};
    auto one = model::place(layout, placed.box);
    one.fields[0].offset += memory.fields[i].offset;
    placed.fields.push_back(std::move(one.fields[0]));
    placed.bytes += one.bytes;
    placed.overlapping |= one.overlapping;
  }
}

}  // namespace

model::PlacedArray space::placed(const ArrayMemory& memory, const ArrayRecord& of, const Box& box) {
  auto layout = arranged(memory, memory.strides, box.start.size());
  if (of.fields.empty()) {
    if (!memory.fields.empty()) throw Error(Errc::invalid_argument, "the array's elements have no fields");
    layout.fields = {{"", memory.dtype == DType::none ? of.dtype : memory.dtype}};
    return model::place(layout, box);
  }
  if (memory.dtype != DType::none)
    throw Error(Errc::invalid_argument, "the array's elements are structures: each of their fields has a type");
  auto stored = stored_layout(of);
  layout.fields = std::move(stored.fields);
  layout.structure_bytes = stored.structure_bytes;
  if (memory.fields.empty()) return model::place(layout, box);
  layout.fields.clear();
  for (const auto& field : memory.fields) {
    const auto dtype = field.dtype == DType::none ? field_of(of, field.name).dtype : field.dtype;
    layout.fields.push_back({field_of(of, field.name).name, dtype, 0});
  }
  for (auto& field : layout.fields)
    if (std::ranges::count(layout.fields, field.name, &model::Field::name) > 1)
      throw Error(Errc::invalid_argument, "field '" + field.name + "' appears twice");
  if (memory.structure_bytes == 0) {
    model::PlacedArray placed;
    placed.box = box;
    place_apart(memory, layout.fields, placed);
    return placed;
  }
  layout.structure_bytes = memory.structure_bytes;
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    if (!memory.fields[i].strides.empty())
      throw Error(Errc::invalid_argument, "fields in structures have no strides of their own");
    layout.fields[i].offset = static_cast<std::uint64_t>(memory.fields[i].offset);  // validated with the layout
  }
  return model::place(layout, box);
}

}  // namespace penstock
