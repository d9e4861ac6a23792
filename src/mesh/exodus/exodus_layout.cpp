#include "mesh/exodus/exodus_layout.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

struct Hyperslab {
  Extent start;
  Extent count;
};

Hyperslab slab_of(const Column& column, std::uint32_t components, StateNumber state, Rows rows) {
  Hyperslab slab;
  const auto add = [&slab](std::size_t start, std::size_t count) {
    slab.start.push_back(start);
    slab.count.push_back(count);
  };
  if (state) add(*state, 1);
  switch (column.shape) {
    case Column::Shape::rows: add(column.first + rows.first, rows.count); break;
    case Column::Shape::matrix:
      add(rows.first, rows.count);
      add(0, components);
      break;
    case Column::Shape::columns:
      add(rows.first, rows.count);
      add(column.at, 1);
      break;
    case Column::Shape::lines:
      add(column.at, 1);
      add(rows.first, rows.count);
      break;
    case Column::Shape::value: add(column.at, 1); break;
    case Column::Shape::all:
      for (const auto length : column.lengths) add(0, length);
      break;
  }
  return slab;
}

template <class T>
void shift_all(T* values, std::size_t count, std::size_t stride, T by) {
  for (std::size_t i = 0; i < count; ++i) values[i * stride] = static_cast<T>(values[i * stride] + by);
}

void shift(DType dtype, void* values, std::size_t count, std::size_t stride, int by) {
  if (dtype == DType::int32) shift_all(static_cast<std::int32_t*>(values), count, stride, by);
  else if (dtype == DType::int64) shift_all(static_cast<std::int64_t*>(values), count, stride, std::int64_t{by});
  else throw Error(Errc::invalid_argument, "numbers of nodes and the like are int32 or int64");
}

// Values of `size` bytes from one array to another, so many bytes apart in each.
template <std::size_t size>
void copy_strided(std::byte* to, std::size_t to_stride, const std::byte* from, std::size_t from_stride,
                  std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, size);
}
void copy_values(std::byte* to, std::size_t to_stride, const std::byte* from, std::size_t from_stride,
                 std::size_t count, std::size_t size) {
  if (size == 8) return copy_strided<8>(to, to_stride, from, from_stride, count);
  if (size == 4) return copy_strided<4>(to, to_stride, from, from_stride, count);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, size);
}

// A variable with any number of dimensions, all of it.
void read_all(const NetcdfFile& file, const Column& column, DType dtype, StateNumber state, void* out) {
  const auto slab = slab_of(column, 1, state, {});
  if (!column.is_text) return file.read(column.variable, dtype, slab.start, slab.count, out);
  std::vector<char> text(values_in(column.lengths));
  file.read(column.variable, DType::string, slab.start, slab.count, text.data());
  std::copy(text.begin(), text.end(), static_cast<std::int32_t*>(out));
}
void write_all(NetcdfFile& file, const Column& column, DType dtype, StateNumber state, const void* values) {
  const auto slab = slab_of(column, 1, state, {});
  if (!column.is_text) return file.write(column.variable, dtype, slab.start, slab.count, values);
  std::vector<char> text(values_in(column.lengths));
  std::transform(static_cast<const std::int32_t*>(values), static_cast<const std::int32_t*>(values) + text.size(),
                 text.begin(), [](std::int32_t letter) { return static_cast<char>(letter); });
  file.write(column.variable, DType::string, slab.start, slab.count, text.data());
}
bool is_all(const Place& place) { return place.columns[0].shape == Column::Shape::all; }

bool is_whole(const Place& place) { return place.columns.size() == 1; }
int from_one(const Place& place, std::size_t component) {
  return component < place.from_one.size() ? place.from_one[component] : 0;
}

}  // namespace

void read_place(const NetcdfFile& file, const Place& place, DType dtype, std::uint32_t components, StateNumber state,
                Rows rows, void* out) {
  const auto size = size_of(dtype);
  if (is_all(place)) {
    const auto& column = place.columns[0];
    std::vector<std::byte> values(values_in(column.lengths) * size);
    read_all(file, column, dtype, state, values.data());
    std::memcpy(out, values.data() + rows.first * size, rows.count * size);
    return;
  }
  if (is_whole(place)) {
    const auto slab = slab_of(place.columns[0], components, state, rows);
    file.read(place.columns[0].variable, dtype, slab.start, slab.count, out);
    if (from_one(place, 0) != 0) shift(dtype, out, rows.count * components, 1, -1);
    return;
  }
  std::vector<std::byte> packed(rows.count * size);
  for (std::size_t c = 0; c < place.columns.size(); ++c) {
    const auto slab = slab_of(place.columns[c], components, state, rows);
    file.read(place.columns[c].variable, dtype, slab.start, slab.count, packed.data());
    if (from_one(place, c) != 0) shift(dtype, packed.data(), rows.count, 1, -1);
    copy_values(static_cast<std::byte*>(out) + c * size, components * size, packed.data(), size, rows.count, size);
  }
}

void write_place(NetcdfFile& file, const Place& place, DType dtype, std::uint32_t components, StateNumber state,
                 Rows rows, const void* values) {
  const auto size = size_of(dtype);
  if (is_all(place)) return write_all(file, place.columns[0], dtype, state, values);
  if (is_whole(place) && from_one(place, 0) == 0) {
    const auto slab = slab_of(place.columns[0], components, state, rows);
    file.write(place.columns[0].variable, dtype, slab.start, slab.count, values);
    return;
  }
  const std::size_t width = is_whole(place) ? components : 1;
  std::vector<std::byte> packed(rows.count * width * size);
  for (std::size_t c = 0; c < place.columns.size(); ++c) {
    copy_values(packed.data(), width * size, static_cast<const std::byte*>(values) + c * size, components * size,
                rows.count, width * size);
    if (from_one(place, c) != 0) shift(dtype, packed.data(), rows.count * width, 1, 1);
    const auto slab = slab_of(place.columns[c], components, state, rows);
    file.write(place.columns[c].variable, dtype, slab.start, slab.count, packed.data());
  }
}

}  // namespace penstock::mesh
