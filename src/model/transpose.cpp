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
// Measured on Zen 3: tiles in the second-level cache, with source runs of 1 KiB, are 1.4 times as fast as tiles of 32 KiB
// in the first with runs of 256 bytes; 128 KiB are no faster.
constexpr std::size_t tile_bytes = 64 << 10;
constexpr std::size_t strip_bytes = 16 << 10;

template <class T>
constexpr std::uint64_t per_line = 64 / sizeof(T);

struct TileShape {
  std::uint64_t rows, columns;
};

template <class T>
TileShape tile_shape(const Plane& plane) {
  constexpr std::uint64_t budget = tile_bytes / sizeof(T);
  constexpr std::uint64_t rows = sizeof(T) < 4 ? 256 : 1024 / sizeof(T);
  constexpr std::uint64_t columns = budget / rows;
  constexpr std::uint64_t longest = strip_bytes / sizeof(T);
  if (plane.columns < columns) return {std::min(plane.rows, budget / plane.columns), plane.columns};
  if (plane.rows < rows)
    return {plane.rows, std::min({plane.columns, budget / plane.rows, longest}) / per_line<T> * per_line<T>};
  return {rows, columns};
}

// The tile holds a column's rows one after the other, columns `pitch` elements apart.
template <class T>
bool read_tile(T* tile, std::uint64_t pitch, const Plane& plane, std::uint64_t row, std::uint64_t rows,
               std::uint64_t column, std::uint64_t columns) {
  bool accepted = true;
  const std::byte* first = plane.src + static_cast<std::int64_t>(row) * plane.src_row;
  for (std::uint64_t c = 0; c < columns; ++c, tile += pitch) {
    const std::byte* from = first + plane.src_offset(column + c);
    if (plane.conversion.run) {
      accepted &= convert_strided(plane.conversion, reinterpret_cast<std::byte*>(tile), sizeof(T), sizeof(T), from,
                                  plane.src_row, rows, false);
      continue;
    }
    if (plane.src_row == sizeof(T)) {
      std::memcpy(tile, from, rows * sizeof(T));
      continue;
    }
    for (std::uint64_t r = 0; r < rows; ++r, from += plane.src_row) std::memcpy(tile + r, from, sizeof(T));
  }
  return accepted;
}

#if defined(__SSE2__)
template <class T>
__m128i interleave(__m128i a, __m128i b, bool high) {
  if constexpr (sizeof(T) == 1) return high ? _mm_unpackhi_epi8(a, b) : _mm_unpacklo_epi8(a, b);
  else if constexpr (sizeof(T) == 2) return high ? _mm_unpackhi_epi16(a, b) : _mm_unpacklo_epi16(a, b);
  else if constexpr (sizeof(T) == 4) return high ? _mm_unpackhi_epi32(a, b) : _mm_unpacklo_epi32(a, b);
  else return high ? _mm_unpackhi_epi64(a, b) : _mm_unpacklo_epi64(a, b);
}

// As many rows and columns as a vector has elements: shuffled like a deck of cards log2(n) times.
template <class T>
void form_block(T* strip, std::uint64_t strip_pitch, const T* tile, std::uint64_t pitch) {
  constexpr std::size_t n = 16 / sizeof(T);
  __m128i from[n], to[n];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < n; ++i) from[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tile + i * pitch));
#pragma GCC unroll 4
  for (std::size_t step = 1; step < n; step *= 2) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < n / 2; ++i) {
      to[2 * i] = interleave<T>(from[i], from[i + n / 2], false);
      to[2 * i + 1] = interleave<T>(from[i], from[i + n / 2], true);
    }
#pragma GCC unroll 16
    for (std::size_t i = 0; i < n; ++i) from[i] = to[i];
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < n; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(strip + i * strip_pitch), from[i]);
}
#endif

template <class T>
void form_strip(T* strip, const T* tile, std::uint64_t pitch, std::uint64_t rows, std::uint64_t columns) {
  std::uint64_t block_rows = 0, block_columns = 0;  // done by blocks
#if defined(__SSE2__)
  if constexpr (sizeof(T) < 16) {
    constexpr std::uint64_t n = 16 / sizeof(T);
    block_rows = rows / n * n;
    block_columns = columns / n * n;
    for (std::uint64_t c = 0; c < block_columns; c += n)
      for (std::uint64_t r = 0; r < block_rows; r += n)
        form_block(strip + r * columns + c, columns, tile + c * pitch + r, pitch);
  }
#endif
  for (std::uint64_t c = block_columns; c < columns; ++c)
    for (std::uint64_t r = 0; r < block_rows; ++r) strip[r * columns + c] = tile[c * pitch + r];
  for (std::uint64_t r = block_rows; r < rows; ++r)
    for (std::uint64_t c = 0; c < columns; ++c) strip[r * columns + c] = tile[c * pitch + r];
}

void write_run(std::byte* dst, const void* src, std::size_t bytes, bool stream) {
  if (stream) stream_copy(dst, static_cast<const std::byte*>(src), bytes);
  else std::memcpy(dst, src, bytes);
}

// strip holds `rows` rows of `columns` elements, one after the other.
template <class T>
void write_strip(const T* strip, const Plane& plane, std::uint64_t row, std::uint64_t rows, std::uint64_t column,
                 std::uint64_t columns) {
  std::byte* first = plane.dst + static_cast<std::int64_t>(column) * plane.dst_column;
  const bool packed = plane.dst_column == sizeof(T);
  if (packed && plane.row_run == plane.rows && plane.dst_row == static_cast<std::int64_t>(columns * sizeof(T)))
    return write_run(first + plane.dst_offset(row), strip, rows * columns * sizeof(T), plane.stream);
  for (std::uint64_t r = 0; r < rows; ++r, strip += columns) {
    std::byte* to = first + plane.dst_offset(row + r);
    if (packed) {
      write_run(to, strip, columns * sizeof(T), plane.stream);
      continue;
    }
    for (std::uint64_t c = 0; c < columns; ++c, to += plane.dst_column) std::memcpy(to, strip + c, sizeof(T));
  }
}

// Elements from the start of a line to the first column, where all rows of the destination have the same number of them.
template <class T>
std::uint64_t columns_into_line(const Plane& plane) {
  if (plane.dst_column != sizeof(T) || (plane.dst_row | plane.dst_row_run) % 64 != 0) return 0;
  return reinterpret_cast<std::uintptr_t>(plane.dst) % 64 / sizeof(T);
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
  // The first tile is narrower, so that the others begin with a line of the destination.
  const std::uint64_t narrower = plane.columns > shape.columns ? columns_into_line<T>(plane) : 0;
  for (std::uint64_t row = 0; row < plane.rows; row += shape.rows) {
    const std::uint64_t rows = std::min(shape.rows, plane.rows - row);
    for (std::uint64_t column = 0, columns = 0; column < plane.columns; column += columns) {
      columns = std::min(shape.columns - (column == 0 ? narrower : 0), plane.columns - column);
      accepted &= read_tile(tile, pitch, plane, row, rows, column, columns);
      for (std::uint64_t s = 0; s < rows; s += strip_rows) {
        const std::uint64_t height = std::min(strip_rows, rows - s);
        form_strip(strip, tile + s, pitch, height, columns);
        write_strip(strip, plane, row + s, height, column, columns);
      }
    }
  }
  return accepted;
}

template <class T>
bool transpose_small(const Plane& plane) {
  bool accepted = true;
  for (std::uint64_t r = 0; r < plane.rows; ++r) {
    std::byte* to = plane.dst + plane.dst_offset(r);
    for (std::uint64_t c = 0; c < plane.columns;) {
      const std::byte* from = plane.src + static_cast<std::int64_t>(r) * plane.src_row + plane.src_offset(c);
      const std::uint64_t run = std::min(plane.column_run, plane.columns - c);
      c += run;
      if (plane.conversion.run) {
        accepted &=
            convert_strided(plane.conversion, to, plane.dst_column, sizeof(T), from, plane.src_column, run, false);
        to += static_cast<std::int64_t>(run) * plane.dst_column;
        continue;
      }
      for (std::uint64_t i = 0; i < run; ++i, to += plane.dst_column, from += plane.src_column)
        std::memcpy(to, from, sizeof(T));
    }
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
