#include "model/convert.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "model/element.hpp"
#include "model/stream_store.hpp"
#include "penstock/error.hpp"

namespace penstock::model {

namespace {

// A bool as it lies in memory: any byte that is not 0 is true.
struct Flag {
  std::uint8_t byte;
};

template <class T>
constexpr bool is_small_float = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
constexpr bool is_float = std::is_floating_point_v<T> || is_small_float<T>;
// Bits that a value of the type has at most: of a float, its significand's.
template <class T>
constexpr int digits = std::numeric_limits<T>::digits;
template <>
constexpr int digits<Flag> = 1;
template <>
constexpr int digits<float16> = 11;
template <>
constexpr int digits<bfloat16> = 8;
template <class T>
constexpr int exponent_bits = std::is_same_v<T, double>    ? 11
                              : std::is_same_v<T, float16> ? 5
                                                           : 8;

// The value of an element, in a type of the language.
template <class S>
auto value_of(S element) {
  if constexpr (std::is_same_v<S, Flag>) {
    return static_cast<std::uint8_t>(element.byte != 0);
  } else if constexpr (is_small_float<S>) {
    constexpr int significand = digits<S> - 1;
    const std::uint32_t magnitude = element.bits & 0x7fffu;
    const std::uint32_t sign = (element.bits & 0x8000u) << 16;
    if constexpr (std::is_same_v<S, bfloat16>) return std::bit_cast<float>(sign | magnitude << 16);
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    const std::uint32_t rebias =
        magnitude < 0x7c00 ? 112u << 23 : 224u << 23;  // infinity and NaN keep all exponent bits
    const float normal = std::bit_cast<float>((magnitude << (23 - significand)) + rebias);
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude < 0x400 ? subnormal : normal));
  } else {
    return element;
  }
}

// Rounds to nearest even.
template <class T>
T small_float(double value) {
  constexpr int significand = digits<T> - 1;
  constexpr std::uint64_t bias = (1u << (exponent_bits<T> - 1)) - 1;
  constexpr std::uint64_t infinity = ((1u << exponent_bits<T>)-1) << significand;
  constexpr std::uint64_t least_exponent = 1023 + 1 - bias;  // as a double has it; of normal numbers
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = bits >> 48 & 0x8000u;
  const auto with_sign = [sign](std::uint64_t magnitude) { return T{static_cast<std::uint16_t>(sign | magnitude)}; };
  const double magnitude = std::fabs(value);
  if (magnitude != magnitude) return with_sign(infinity | 1u << (significand - 1));
  const std::uint64_t exponent = std::max(bits >> 52 & 0x7ffu, least_exponent);
  if (exponent > 1023 + bias) return with_sign(infinity);
  // The sum's last bit is worth as much as the result's, so the addition rounds and leaves the significand there. A carry
  // out of it goes into the exponent, as it should.
  const double scale = std::bit_cast<double>((exponent + 52 - significand) << 52);
  const std::uint64_t rounded = std::bit_cast<std::uint64_t>(magnitude + scale) & ((4u << significand) - 1);
  return with_sign(((exponent - least_exponent) << significand) + rounded);
}

template <class W>
auto magnitude_of(W value) {
  using Unsigned = std::make_unsigned_t<W>;
  return value < 0 ? static_cast<Unsigned>(Unsigned{0} - static_cast<Unsigned>(value)) : static_cast<Unsigned>(value);
}

// Large integers lose bits as doubles. Gathering the low bits in one of them keeps the second rounding right.
template <class W>
double rounded_to_odd(W value) {
  if constexpr (sizeof(W) < 8) {
    return value;
  } else {
    std::uint64_t magnitude = magnitude_of(value);
    if (magnitude >> 53) magnitude = (magnitude & ~std::uint64_t{0x7ff}) | (magnitude & 0x7ff ? 0x800 : 0);
    return value < 0 ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
  }
}

template <class T, class W>
T element_of(W value) {
  if constexpr (std::is_same_v<T, Flag>) {
    return {static_cast<std::uint8_t>(value != 0)};
  } else if constexpr (is_small_float<T>) {
    if constexpr (std::is_integral_v<W>) return small_float<T>(rounded_to_odd(value));
    else return small_float<T>(value);
  } else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<W>) {
    constexpr W least = static_cast<W>(std::numeric_limits<T>::min());  // a power of two, or 0
    const W beyond = std::ldexp(W{1}, digits<T>);
    if (value != value) return 0;
    if (value <= least) return std::numeric_limits<T>::min();
    return value >= beyond ? std::numeric_limits<T>::max() : static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class S, class T>
constexpr bool always_in_range = [] {
  if constexpr (std::is_same_v<S, Flag>) return true;
  else if constexpr (std::is_same_v<T, Flag>) return false;
  else if constexpr (is_float<S> && is_float<T>) return exponent_bits<S> <= exponent_bits<T> && digits<S> <= digits<T>;
  else if constexpr (is_float<S>) return false;
  else if constexpr (is_float<T>) return !std::is_same_v<T, float16> || digits<S> < 16;
  else return digits<S> <= digits<T> && (std::is_unsigned_v<S> || std::is_signed_v<T>);
}();
template <class S, class T>
constexpr bool always_exact = always_in_range<S, T>&& digits<S> <= digits<T>;

// element: what value became.
template <class T, class W>
bool fits(W value, [[maybe_unused]] T element, [[maybe_unused]] bool exact) {
  if constexpr (std::is_same_v<T, Flag>) {
    return value == 0 || value == 1;
  } else if constexpr (is_float<T> && std::is_integral_v<W>) {
    if (!exact) return !std::isinf(value_of(element));
    const auto magnitude = magnitude_of(value);
    const bool few_bits = magnitude == 0 || std::bit_width(magnitude) - std::countr_zero(magnitude) <= digits<T>;
    return few_bits && !std::isinf(value_of(element));
  } else if constexpr (is_float<T>) {
    const auto back = value_of(element);
    if (!exact) return !std::isinf(back) || std::isinf(value);
    return static_cast<double>(back) == static_cast<double>(value) || value != value;
  } else if constexpr (std::is_integral_v<W>) {
    return std::in_range<T>(value);
  } else {
    constexpr double least = static_cast<double>(std::numeric_limits<T>::min());
    constexpr double below = least - 1;  // the same where doubles are that far apart
    const bool in_range = (below == least ? value >= least : value > below) && value < std::ldexp(1.0, digits<T>);
    return in_range && (!exact || static_cast<W>(element) == value);
  }
}

// Blocks have a fixed length, for which the compiler makes vector code.
constexpr std::size_t lanes = 32;

template <class S, class T, Check check>
bool convert_packed(std::byte* dst, const std::byte* src, std::uint64_t count) {
  S from[lanes];
  T to[lanes];
  unsigned refused = 0;
  const auto convert_one = [&](std::size_t lane) {
    const auto value = value_of(from[lane]);
    to[lane] = element_of<T>(value);
    if constexpr (check != Check::none) refused |= !fits(value, to[lane], check == Check::exact);
  };
  for (; count >= lanes; count -= lanes, dst += sizeof to, src += sizeof from) {
    std::memcpy(from, src, sizeof from);
    for (std::size_t lane = 0; lane < lanes; ++lane) convert_one(lane);
    std::memcpy(dst, to, sizeof to);
  }
  std::memcpy(from, src, count * sizeof(S));
  for (std::size_t lane = 0; lane < count; ++lane) convert_one(lane);
  std::memcpy(dst, to, count * sizeof(T));
  return refused == 0;
}

template <class S, class T, Check check>
bool convert_pairs(std::byte* dst, const std::byte* src, std::uint64_t count) {
  return convert_packed<S, T, check>(dst, src, 2 * count);
}

using Run = decltype(Conversion::run);

template <class S, class T>
Run choose(Check check) {
  if (check == Check::exact && !always_exact<S, T>) return convert_packed<S, T, Check::exact>;
  if (check == Check::range && !always_in_range<S, T>) return convert_packed<S, T, Check::range>;
  return convert_packed<S, T, Check::none>;
}

// Calls f with an element of the type; all but complex numbers and strings.
template <class F>
Run with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean: return f(Flag{});
    case DType::int8: return f(std::int8_t{});
    case DType::int16: return f(std::int16_t{});
    case DType::int32: return f(std::int32_t{});
    case DType::int64: return f(std::int64_t{});
    case DType::uint8: return f(std::uint8_t{});
    case DType::uint16: return f(std::uint16_t{});
    case DType::uint32: return f(std::uint32_t{});
    case DType::uint64: return f(std::uint64_t{});
    case DType::float16: return f(float16{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::none:
    case DType::complex64:
    case DType::complex128:
    case DType::string: break;
  }
  return nullptr;
}

Run run_between(DType dst, DType src, Check check) {
  if (src == DType::complex64 && dst == DType::complex128) return convert_pairs<float, double, Check::none>;
  if (src == DType::complex128 && dst == DType::complex64) {
    if (check == Check::none) return convert_pairs<double, float, Check::none>;
    if (check == Check::range) return convert_pairs<double, float, Check::range>;
    return convert_pairs<double, float, Check::exact>;
  }
  return with_type(src, [&](auto from) {
    return with_type(dst, [&](auto to) -> Run {
      if constexpr (std::is_same_v<decltype(from), decltype(to)>) return nullptr;
      else return choose<decltype(from), decltype(to)>(check);
    });
  });
}

}  // namespace

Conversion conversion_between(DType dst, DType src, Check check) {
  const auto size = static_cast<std::uint32_t>(size_of(src));
  if (dst == src && size > 0) return {nullptr, size};
  const Run run = run_between(dst, src, check);
  if (!run)
    throw Error(Errc::unsupported, std::string(name_of(src)) + " does not convert to " + std::string(name_of(dst)));
  return {run, size};
}

bool convert_strided(const Conversion& conversion, std::byte* dst, std::int64_t dst_step, std::size_t dst_size,
                     const std::byte* src, std::int64_t src_step, std::uint64_t count, bool stream) {
  constexpr std::uint64_t chunk = 512;
  alignas(64) std::byte gathered[chunk * sizeof(Element16)];
  alignas(64) std::byte converted[chunk * sizeof(Element16)];
  const bool packed_src = src_step == conversion.src_size;
  const bool packed_dst = dst_step == static_cast<std::int64_t>(dst_size);
  if (packed_src && packed_dst && !stream) return conversion.run(dst, src, count);
  bool accepted = true;
  for (std::uint64_t left = count; left > 0;) {
    const std::uint64_t part = std::min(left, chunk);
    const auto signed_part = static_cast<std::int64_t>(part);
    const std::byte* from = src;
    if (!packed_src) {
      from = gathered;
      with_element(conversion.src_size, [&](auto element) {
        for (std::uint64_t i = 0; i < part; ++i)
          std::memcpy(gathered + i * sizeof element, src + static_cast<std::int64_t>(i) * src_step, sizeof element);
      });
    }
    accepted &= conversion.run(packed_dst && !stream ? dst : converted, from, part);
    if (packed_dst && stream) {
      stream_copy(dst, converted, part * dst_size);
    } else if (!packed_dst) {
      with_element(dst_size, [&](auto element) {
        for (std::uint64_t i = 0; i < part; ++i)
          std::memcpy(dst + static_cast<std::int64_t>(i) * dst_step, converted + i * sizeof element, sizeof element);
      });
    }
    dst += signed_part * dst_step;
    src += signed_part * src_step;
    left -= part;
  }
  return accepted;
}

}  // namespace penstock::model
