// Element conversion by the definition, slowly: through long double, which holds every number of 64 bits, and for 16-bit floats
// by search among all of them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "model/random_test_support.hpp"
#include "penstock/types.hpp"

namespace penstock::model {

static_assert(std::numeric_limits<long double>::digits >= 64);

inline constexpr DType numbers[] = {DType::boolean,  DType::int8,    DType::int16,  DType::int32,  DType::int64,
                                    DType::uint8,    DType::uint16,  DType::uint32, DType::uint64, DType::float16,
                                    DType::bfloat16, DType::float32, DType::float64};

// Calls f with a value of the number's C++ type; f sees the bits of 16-bit floats and of bool.
template <class F>
auto with_number(DType dtype, F&& f) {
  switch (dtype) {
    case DType::int8: return f(std::int8_t{});
    case DType::int16: return f(std::int16_t{});
    case DType::int32: return f(std::int32_t{});
    case DType::int64: return f(std::int64_t{});
    case DType::uint16: return f(std::uint16_t{});
    case DType::uint32: return f(std::uint32_t{});
    case DType::uint64: return f(std::uint64_t{});
    case DType::float16: return f(float16{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    default: return f(std::uint8_t{});
  }
}

inline bool is_floating(DType dtype) { return dtype >= DType::float16 && dtype <= DType::float64; }

inline long double small_float_value(DType dtype, std::uint16_t bits) {
  const int significand = dtype == DType::float16 ? 10 : 7;
  const int exponent = (bits & 0x7fff) >> significand;
  const int fraction = bits & ((1 << significand) - 1);
  const int bias = dtype == DType::float16 ? 15 : 127;
  long double value = std::ldexp(static_cast<long double>(fraction + (exponent ? 1 << significand : 0)),
                                 std::max(exponent, 1) - bias - significand);
  if (exponent == 2 * bias + 1)
    value = fraction ? std::numeric_limits<long double>::quiet_NaN() : std::numeric_limits<long double>::infinity();
  return bits & 0x8000 ? -value : value;
}

inline long double number_value(DType dtype, const std::byte* element) {
  return with_number(dtype, [&](auto number) -> long double {
    std::memcpy(&number, element, sizeof number);
    if constexpr (requires { number.bits; }) return small_float_value(dtype, number.bits);
    else return dtype == DType::boolean ? number != 0 : static_cast<long double>(number);
  });
}

inline std::uint16_t nearest_small_float(DType dtype, long double value) {
  const std::uint16_t infinity = dtype == DType::float16 ? 0x7c00 : 0x7f80;
  if (std::isnan(value)) return infinity | 1;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const long double magnitude = std::fabs(value);
  std::uint16_t low = 0, high = infinity;  // the bits of positive numbers are in their order
  if (std::isinf(value)) return sign | infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (small_float_value(dtype, middle) <= magnitude ? low : high) = middle;
  }
  // Infinity stands where the next number would be.
  const long double above =
      high == infinity ? std::ldexp(1.0L, dtype == DType::float16 ? 16 : 128) : small_float_value(dtype, high);
  const long double twice_middle = small_float_value(dtype, low) + above;
  const bool up = 2 * magnitude > twice_middle || (2 * magnitude == twice_middle && low % 2 == 1);
  return sign | (up ? high : low);
}

struct Reference {
  std::vector<std::byte> element;
  bool in_range = true, exact = true;
};

inline Reference reference_of(DType to, DType from, const std::byte* source) {
  const long double value = number_value(from, source);
  Reference reference;
  const auto keep = [&](auto element) {
    reference.element.resize(sizeof element);
    std::memcpy(reference.element.data(), &element, sizeof element);
  };
  with_number(to, [&](auto number) {
    using T = decltype(number);
    if (to == DType::boolean) {
      keep(static_cast<std::uint8_t>(value != 0));
      reference.in_range = reference.exact = value == 0 || value == 1;
    } else if constexpr (std::is_integral_v<T>) {
      const long double least = std::numeric_limits<T>::min(), greatest = std::numeric_limits<T>::max();
      const long double whole = std::trunc(value);
      reference.in_range = whole >= least && whole <= greatest;
      reference.exact = reference.in_range && whole == value;
      if (reference.in_range) keep(static_cast<T>(whole));
      else if (std::isnan(value)) keep(T{0});
      else if (is_floating(from)) keep(value < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max());
      else
        keep(static_cast<T>(value < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value))
                                      : static_cast<std::uint64_t>(value)));
    } else {
      if constexpr (std::is_floating_point_v<T>) keep(static_cast<T>(value));
      else keep(T{nearest_small_float(to, value)});
      const long double back = number_value(to, reference.element.data());
      reference.in_range = !std::isinf(back) || std::isinf(value);
      reference.exact = back == value || std::isnan(value);
    }
  });
  return reference;
}

// Equal bits, or both NaN.
inline bool same_number(DType dtype, const std::byte* a, const std::byte* b) {
  if (std::memcmp(a, b, size_of(dtype)) == 0) return true;
  return is_floating(dtype) && std::isnan(number_value(dtype, a)) && std::isnan(number_value(dtype, b));
}

inline std::string text_of_number(DType dtype, const std::byte* element) {
  char text[64];
  std::snprintf(text, sizeof text, "%.21Lg", number_value(dtype, element));
  return std::string(name_of(dtype)) + " " + text;
}

// Any bits, or a number close to where types end and roundings change.
inline void random_number(Random& random, DType dtype, std::byte* element) {
  with_number(dtype, [&](auto number) {
    const std::uint64_t bits = random.from(0, ~std::uint64_t{0});
    std::memcpy(&number, &bits, sizeof number);
    if (!is_floating(dtype) && random.chance(60)) {
      const std::uint64_t near = (std::uint64_t{1} << random.from(0, 63)) + random.from(0, 4) - 2;
      const std::uint64_t tie = near | std::uint64_t{1} << random.from(0, 63);
      const std::uint64_t chosen = random.one_of({near, tie, -near, -tie});
      std::memcpy(&number, &chosen, sizeof number);
    } else if (random.chance(80) && is_floating(dtype)) {
      const auto digits = random.one_of<int>({1, 8, 9, 11, 12, 24, 25, 53});
      const auto significand = static_cast<double>(random.from(0, std::uint64_t{1} << digits));
      const auto exponent =
          static_cast<int>(random.from(0, random.chance(80) ? 90 : 300)) - (random.chance(50) ? 40 : 160);
      double value = std::ldexp(significand, exponent - digits);
      if (random.chance(50)) value = std::trunc(value) + random.one_of({0.0, 0.5, -0.5, -1.0});
      if (random.chance(3)) value = random.one_of({HUGE_VAL, std::nan("")});
      if (random.chance(50)) value = -value;
      if constexpr (requires { number.bits; }) number.bits = nearest_small_float(dtype, value);
      else number = static_cast<decltype(number)>(is_floating(dtype) ? value : 0);
    }
    std::memcpy(element, &number, sizeof number);
  });
}

}  // namespace penstock::model
