#include "model/minmax.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace penstock::model {

namespace {

template <class T>
MinMax range_of(DType dtype, T low, T high) {
  MinMax range;
  range.dtype = dtype;
  std::memcpy(range.min, &low, sizeof low);
  std::memcpy(range.max, &high, sizeof high);
  return range;
}

template <class T>
struct Range {
  static constexpr bool has_infinity = std::numeric_limits<T>::has_infinity;
  T low = has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  T high = has_infinity ? static_cast<T>(-std::numeric_limits<T>::infinity()) : std::numeric_limits<T>::lowest();
};

// Lanes are independent, so that the compiler can keep them in vector registers; comparisons are written so that a NaN
// loses each of them.
template <class T>
[[gnu::always_inline]] inline Range<T> scan_lanes(const std::byte* bytes, std::uint64_t count) {
  constexpr std::size_t lanes = 128 / sizeof(T);
  Range<T> range;
  T low[lanes], high[lanes], values[lanes];
  for (std::size_t lane = 0; lane < lanes; ++lane) low[lane] = range.low, high[lane] = range.high;
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    std::memcpy(values, bytes + i * sizeof(T), sizeof values);
    for (std::size_t lane = 0; lane < lanes; ++lane) low[lane] = values[lane] < low[lane] ? values[lane] : low[lane];
    for (std::size_t lane = 0; lane < lanes; ++lane) high[lane] = values[lane] > high[lane] ? values[lane] : high[lane];
  }
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    range.low = low[lane] < range.low ? low[lane] : range.low;
    range.high = high[lane] > range.high ? high[lane] : range.high;
  }
  for (; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof value);
    range.low = value < range.low ? value : range.low;
    range.high = value > range.high ? value : range.high;
  }
  return range;
}

// The baseline instruction set cannot compare 64-bit integers in vectors, so the same loop is compiled twice.
#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2")]] Range<T> scan_avx2(const std::byte* bytes, std::uint64_t count) {
  return scan_lanes<T>(bytes, count);
}
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
template <class T>
Range<T> scan_range(const std::byte* bytes, std::uint64_t count) {
  return has_avx2() ? scan_avx2<T>(bytes, count) : scan_lanes<T>(bytes, count);
}
#else
template <class T>
Range<T> scan_range(const std::byte* bytes, std::uint64_t count) {
  return scan_lanes<T>(bytes, count);
}
#endif

template <class T>
std::optional<MinMax> scan(DType dtype, const void* data, std::uint64_t count) {
  const auto range = scan_range<T>(static_cast<const std::byte*>(data), count);
  if (range.low > range.high) return std::nullopt;  // nothing but NaN
  return range_of(dtype, range.low, range.high);
}

// Maps the bits of a 16-bit float to an integer of the same order (and -0 just below +0).
std::int16_t ordered(std::uint16_t bits) { return static_cast<std::int16_t>(bits & 0x8000u ? bits ^ 0x7fffu : bits); }

// infinity: the bits of +infinity; whatever has a larger magnitude is NaN.
std::optional<MinMax> scan_small_floats(DType dtype, const void* data, std::uint64_t count, std::uint16_t infinity) {
  const auto* bytes = static_cast<const std::byte*>(data);
  std::int16_t low = std::numeric_limits<std::int16_t>::max();
  std::int16_t high = std::numeric_limits<std::int16_t>::min();
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
    const bool is_nan = (bits & 0x7fffu) > infinity;
    const std::int16_t value = ordered(bits);
    low = !is_nan && value < low ? value : low;
    high = !is_nan && value > high ? value : high;
  }
  if (low > high) return std::nullopt;
  // The mapping is its own inverse.
  return range_of(dtype, static_cast<std::uint16_t>(ordered(static_cast<std::uint16_t>(low))),
                  static_cast<std::uint16_t>(ordered(static_cast<std::uint16_t>(high))));
}

constexpr std::uint16_t float16_infinity = 0x7c00;
constexpr std::uint16_t bfloat16_infinity = 0x7f80;

}  // namespace

std::optional<MinMax> compute_min_max(DType dtype, const void* data, std::uint64_t count) {
  if (count == 0) return std::nullopt;
  switch (dtype) {
    case DType::boolean:
    case DType::uint8: return scan<std::uint8_t>(dtype, data, count);
    case DType::int8: return scan<std::int8_t>(dtype, data, count);
    case DType::int16: return scan<std::int16_t>(dtype, data, count);
    case DType::int32: return scan<std::int32_t>(dtype, data, count);
    case DType::int64: return scan<std::int64_t>(dtype, data, count);
    case DType::uint16: return scan<std::uint16_t>(dtype, data, count);
    case DType::uint32: return scan<std::uint32_t>(dtype, data, count);
    case DType::uint64: return scan<std::uint64_t>(dtype, data, count);
    case DType::float16: return scan_small_floats(dtype, data, count, float16_infinity);
    case DType::bfloat16: return scan_small_floats(dtype, data, count, bfloat16_infinity);
    case DType::float32: return scan<float>(dtype, data, count);
    case DType::float64: return scan<double>(dtype, data, count);
    case DType::none:
    case DType::complex64:
    case DType::complex128:
    case DType::string: break;
  }
  return std::nullopt;
}

void merge(std::optional<MinMax>& into, const std::optional<MinMax>& other) {
  if (!other) return;
  if (!into) {
    into = other;
    return;
  }
  // The range of the four bounds, taken as elements.
  const std::size_t size = size_of(into->dtype);
  std::byte bounds[4 * sizeof into->min];
  const std::byte* parts[] = {into->min, into->max, other->min, other->max};
  for (std::size_t i = 0; i < 4; ++i) std::memcpy(bounds + i * size, parts[i], size);
  if (auto merged = compute_min_max(into->dtype, bounds, 4)) into = merged;
}

}  // namespace penstock::model
