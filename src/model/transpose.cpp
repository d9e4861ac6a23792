#include "model/transpose.hpp"

#include <algorithm>
#include <cstring>

#include "model/convert.hpp"
#include "model/element.hpp"
#include "model/stream_store.hpp"

namespace penstock::model {

namespace {

// Tiles go through two buffers: first, runs of the source are collected into `tile`, so that its reads are independent
// and whole lines; then strips of destination rows are formed in `strip` and written as runs.
constexpr std::size_t tile_bytes = 32 << 10;
constexpr std::size_t strip_bytes = 16 << 10;

struct TileShape {
  std::uint64_t rows, columns;
};

template <class T>
TileShape tile_shape(const Plane& plane) {
  constexpr std::uint64_t budget = tile_bytes / sizeof(T);
  constexpr std::uint64_t rows = sizeof(T) == 1 ? 128 : sizeof(T) == 16 ? 32 : 64;
  constexpr std::uint64_t columns = budget / rows;
  constexpr std::uint64_t longest = strip_bytes / sizeof(T);
  if (plane.columns < columns) return {std::min(plane.rows, budget / plane.columns), plane.columns};
  if (plane.rows < rows) return {plane.rows, std::min({plane.columns, budget / plane.rows, longest})};
  return {rows, columns};
}

template <class T>
bool read_tile(T* tile, std::uint64_t pitch, const std::byte* src, const Plane& plane, std::uint64_t rows,
               std::uint64_t columns) {
  bool accepted = true;
  for (std::uint64_t c = 0; c < columns; ++c, src += plane.src_column, tile += pitch) {
    if (plane.conversion.run) {
      accepted &= convert_strided(plane.conversion, reinterpret_cast<std::byte*>(tile), sizeof(T), sizeof(T), src,
                                  plane.src_row, rows, false);
      continue;
    }
    if (plane.src_row == sizeof(T)) {
      std::memcpy(tile, src, rows * sizeof(T));
      continue;
    }
    const std::byte* from = src;
    for (std::uint64_t r = 0; r < rows; ++r, from += plane.src_row) std::memcpy(tile + r, from, sizeof(T));
  }
  return accepted;
}

template <class T>
void form_strip(T* strip, const T* tile, std::uint64_t pitch, std::uint64_t rows, std::uint64_t columns) {
  if (rows < 8) {
    for (std::uint64_t r = 0; r < rows; ++r)
      for (std::uint64_t c = 0; c < columns; ++c) strip[r * columns + c] = tile[c * pitch + r];
    return;
  }
  for (std::uint64_t c = 0; c < columns; ++c)
    for (std::uint64_t r = 0; r < rows; ++r) strip[r * columns + c] = tile[c * pitch + r];
}

void write_run(std::byte* dst, const void* src, std::size_t bytes, bool stream) {
  if (stream) stream_copy(dst, static_cast<const std::byte*>(src), bytes);
  else std::memcpy(dst, src, bytes);
}

// strip holds `rows` rows of `columns` elements, one after the other.
template <class T>
void write_strip(std::byte* dst, const T* strip, const Plane& plane, std::uint64_t rows, std::uint64_t columns) {
  const auto row_bytes = static_cast<std::int64_t>(columns * sizeof(T));
  if (plane.dst_column == sizeof(T) && plane.dst_row == row_bytes)
    return write_run(dst, strip, rows * columns * sizeof(T), plane.stream);
  for (std::uint64_t r = 0; r < rows; ++r, dst += plane.dst_row, strip += columns) {
    if (plane.dst_column == sizeof(T)) {
      write_run(dst, strip, columns * sizeof(T), plane.stream);
      continue;
    }
    std::byte* to = dst;
    for (std::uint64_t c = 0; c < columns; ++c, to += plane.dst_column) std::memcpy(to, strip + c, sizeof(T));
  }
}

template <class T>
bool transpose(const Plane& plane) {
  bool accepted = true;
  alignas(64) T tile[(tile_bytes + tile_bytes / 8) / sizeof(T)];
  alignas(64) T strip[strip_bytes / sizeof(T)];
  const auto shape = tile_shape<T>(plane);
  // Long source runs are spread by a line each, or a power-of-two pitch would put them all into a few cache sets.
  const std::uint64_t pitch = shape.rows + (shape.rows * sizeof(T) >= 512 ? 64 / sizeof(T) : 0);
  const bool dense_rows = plane.dst_row == static_cast<std::int64_t>(shape.columns * sizeof(T));
  const std::uint64_t fitting = strip_bytes / sizeof(T) / shape.columns;
  const std::uint64_t strip_rows = dense_rows ? fitting : std::min<std::uint64_t>(fitting, 64 / sizeof(T));
  for (std::uint64_t r0 = 0; r0 < plane.rows; r0 += shape.rows) {
    const std::uint64_t rows = std::min(shape.rows, plane.rows - r0);
    for (std::uint64_t c0 = 0; c0 < plane.columns; c0 += shape.columns) {
      const std::uint64_t columns = std::min(shape.columns, plane.columns - c0);
      const auto at_row = static_cast<std::int64_t>(r0);
      const auto at_column = static_cast<std::int64_t>(c0);
      const std::byte* src = plane.src + at_row * plane.src_row + at_column * plane.src_column;
      accepted &= read_tile(tile, pitch, src, plane, rows, columns);
      std::byte* dst = plane.dst + at_row * plane.dst_row + at_column * plane.dst_column;
      for (std::uint64_t s = 0; s < rows; s += strip_rows) {
        const std::uint64_t height = std::min(strip_rows, rows - s);
        form_strip(strip, tile + s, pitch, height, columns);
        write_strip(dst + static_cast<std::int64_t>(s) * plane.dst_row, strip, plane, height, columns);
      }
    }
  }
  return accepted;
}

template <class T>
bool transpose_small(const Plane& plane) {
  bool accepted = true;
  for (std::uint64_t r = 0; r < plane.rows; ++r) {
    std::byte* to = plane.dst + static_cast<std::int64_t>(r) * plane.dst_row;
    const std::byte* from = plane.src + static_cast<std::int64_t>(r) * plane.src_row;
    if (plane.conversion.run) {
      accepted &= convert_strided(plane.conversion, to, plane.dst_column, sizeof(T), from, plane.src_column,
                                  plane.columns, false);
      continue;
    }
    for (std::uint64_t c = 0; c < plane.columns; ++c, to += plane.dst_column, from += plane.src_column)
      std::memcpy(to, from, sizeof(T));
  }
  return accepted;
}

}  // namespace

bool transpose_2d(const Plane& plane, std::size_t elem_size) {
  return with_element(elem_size, [&](auto element) {
    using T = decltype(element);
    return plane.rows * plane.columns * sizeof(T) <= 2048 ? transpose_small<T>(plane) : transpose<T>(plane);
  });
}

}  // namespace penstock::model
