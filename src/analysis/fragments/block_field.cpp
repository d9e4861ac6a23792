#include "analysis/fragments/block_field.hpp"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "analysis/refuse.hpp"

namespace penstock::analysis {
namespace {

template <class T>
double value_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (std::is_same_v<T, std::uint8_t>) return value / 255.0;
  else return value;
}

// Calls with a function that reads a value of the type.
template <class Use>
void with_reader(DType type, Use&& use) {
  if (type == DType::float64) use(value_at<double>);
  else if (type == DType::float32) use(value_at<float>);
  else use(value_at<std::uint8_t>);
}

const std::byte* cell_of(const BlockArray& array, std::int32_t x, std::int32_t y, std::int32_t z) {
  return array.first + x * array.strides[0] + y * array.strides[1] + z * array.strides[2];
}

// The cells along an axis of the padded array in a direction: first and end.
std::pair<std::int32_t, std::int32_t> padded_range(int towards, std::int32_t cells) {
  if (towards < 0) return {-1, 0};
  if (towards > 0) return {cells, cells + 1};
  return {0, cells};
}

}  // namespace

BlockField::BlockField(DType type, std::vector<BlockArray> arrays, std::ptrdiff_t component_stride)
    : type_(type), arrays_(std::move(arrays)), component_stride_(component_stride) {
  if (type != DType::float64 && type != DType::float32 && type != DType::uint8)
    refuse("fields of fragments are float64, float32 or uint8, not " + std::string(name_of(type)));
}

void BlockField::read(const AmrGrid& grid, std::size_t row, std::vector<double>& values, int component) const {
  const auto [nx, ny, nz] = grid.cells;
  values.resize(std::size_t(nx) * ny * nz);
  BlockArray array = arrays_[row];
  array.first += component * component_stride_;
  with_reader(type_, [&](auto read_value) {
    double* out = values.data();
    for (std::int32_t z = 0; z < nz; ++z)
      for (std::int32_t y = 0; y < ny; ++y) {
        const std::byte* at = cell_of(array, 0, y, z);
        for (std::int32_t x = 0; x < nx; ++x, at += array.strides[0]) *out++ = read_value(at);
      }
  });
}

void BlockField::read_padded(const AmrBlocks& blocks, std::size_t row, std::vector<double>& values) const {
  const AmrGrid& grid = blocks.grid();
  values.resize(grid.padded_cells());
  const BlockKey& block = blocks.blocks()[row];
  for (int number = 0; number < directions; ++number) {
    const std::int32_t from = blocks.neighbours(row)[number];
    const Index3 towards = direction(number);
    std::array<std::pair<std::int32_t, std::int32_t>, 3> range;
    for (int axis = 0; axis < 3; ++axis) range[axis] = padded_range(towards[axis], grid.cells[axis]);
    const auto fill = [&](auto&& value) {
      for (auto z = range[2].first; z < range[2].second; ++z)
        for (auto y = range[1].first; y < range[1].second; ++y)
          for (auto x = range[0].first; x < range[0].second; ++x) values[grid.padded_place(x, y, z)] = value(x, y, z);
    };
    if (from < 0) {
      fill([&](auto...) { return from == no_block ? -std::numeric_limits<double>::infinity() : 0.0; });
      continue;
    }
    const CellPlaces places(grid, block, blocks.blocks()[from]);
    with_reader(type_, [&](auto read_value) {
      fill([&](std::int32_t x, std::int32_t y, std::int32_t z) {
        return read_value(cell_of(arrays_[from], places.along(0, x), places.along(1, y), places.along(2, z)));
      });
    });
  }
}

}  // namespace penstock::analysis
