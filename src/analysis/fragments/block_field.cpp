#include "analysis/fragments/block_field.hpp"

#include <cstring>
#include <limits>
#include <string>

#include "analysis/refuse.hpp"

namespace penstock::analysis {
namespace {

template <class T>
double value_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Calls with a function that reads a value of the type.
template <class Use>
void with_reader(DType type, double byte_unit, Use&& use) {
  if (type == DType::float64) use(value_at<double>);
  else if (type == DType::float32) use(value_at<float>);
  else use([byte_unit](const std::byte* at) { return value_at<std::uint8_t>(at) / byte_unit; });
}

const std::byte* cell_of(const BlockArray& array, std::int32_t x, std::int32_t y, std::int32_t z) {
  return array.first + x * array.strides[0] + y * array.strides[1] + z * array.strides[2];
}

}  // namespace

BlockField::BlockField(DType type, std::vector<BlockArray> arrays, std::ptrdiff_t component_stride, double byte_unit)
    : type_(type), arrays_(std::move(arrays)), component_stride_(component_stride), byte_unit_(byte_unit) {
  if (type != DType::float64 && type != DType::float32 && type != DType::uint8)
    refuse("fields of fragments are float64, float32 or uint8, not " + std::string(name_of(type)));
}

void BlockField::read(const AmrGrid& grid, std::size_t row, std::vector<double>& values, int component) const {
  const Index3& cells = grid.cells;
  values.resize(std::size_t(cells[0]) * cells[1] * cells[2]);
  BlockArray array = arrays_[row];
  array.first += component * component_stride_;
  with_reader(type_, byte_unit_, [&](auto read_value) {
    double* out = values.data();
    for (std::int32_t z = 0; z < cells[2]; ++z)
      for (std::int32_t y = 0; y < cells[1]; ++y) {
        const std::byte* at = cell_of(array, 0, y, z);
        for (std::int32_t x = 0; x < cells[0]; ++x, at += array.strides[0]) *out++ = read_value(at);
      }
  });
}

void BlockField::read_padded(const AmrBlocks& blocks, std::size_t row, std::vector<double>& values) const {
  const AmrGrid& grid = blocks.grid();
  values.resize(grid.padded_cells());
  const BlockKey& block = blocks.blocks()[row];
  for (int number = 0; number < directions; ++number) {
    const std::int32_t from = blocks.neighbours(row)[number];
    const auto fill = [&](auto&& value) {
      for_padded_cells(grid, direction(number),
                       [&](auto x, auto y, auto z) { values[grid.padded_place(x, y, z)] = value(x, y, z); });
    };
    if (from < 0) {
      fill([&](auto...) { return from == no_block ? -std::numeric_limits<double>::infinity() : 0.0; });
      continue;
    }
    const CellPlaces places(grid, block, blocks.blocks()[from]);
    with_reader(type_, byte_unit_, [&](auto read_value) {
      fill([&](std::int32_t x, std::int32_t y, std::int32_t z) {
        return read_value(cell_of(arrays_[from], places.along(0, x), places.along(1, y), places.along(2, z)));
      });
    });
  }
}

}  // namespace penstock::analysis
