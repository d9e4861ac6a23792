// Element types, shapes and boxes: the vocabulary of every other header.
//
// All types here are plain values: copyable, no I/O, safe to use from any thread. Indices count elements, never bytes;
// dimension 0 is the slowest in row-major order. At most `max_dims` dimensions.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace penstock {

inline constexpr std::size_t max_dims = 8;

// 16-bit floats are carried as bits; Penstock moves them and compares them but offers no arithmetic.
struct float16 {
  std::uint16_t bits;
  friend bool operator==(const float16&, const float16&) = default;
};
struct bfloat16 {
  std::uint16_t bits;
  friend bool operator==(const bfloat16&, const bfloat16&) = default;
};

enum class DType : std::uint8_t {
  none = 0,
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  complex64,
  complex128,
  string,
};
inline constexpr std::size_t dtype_count = 17;

// Bytes of one element; 0 for strings, whose length varies.
std::size_t size_of(DType);
// The NumPy-style name ("float64"); "none" for an invalid value.
std::string_view name_of(DType);
// The inverse of name_of; DType::none when unknown.
DType dtype_from_name(std::string_view);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  else if constexpr (std::is_same_v<T, float>) return DType::float32;
  else if constexpr (std::is_same_v<T, double>) return DType::float64;
  else if constexpr (std::is_same_v<T, float16>) return DType::float16;
  else if constexpr (std::is_same_v<T, bfloat16>) return DType::bfloat16;
  else if constexpr (std::is_same_v<T, std::complex<float>>) return DType::complex64;
  else if constexpr (std::is_same_v<T, std::complex<double>>) return DType::complex128;
  else if constexpr (std::is_same_v<T, std::string>) return DType::string;
  else if constexpr (std::is_integral_v<T>) {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? DType::int8 : DType::uint8;
    else if constexpr (sizeof(T) == 2) return is_signed ? DType::int16 : DType::uint16;
    else if constexpr (sizeof(T) == 4) return is_signed ? DType::int32 : DType::uint32;
    else return is_signed ? DType::int64 : DType::uint64;
  } else {
    static_assert(!sizeof(T*), "penstock has no element type for this C++ type");
  }
}

// A list of at most max_dims sizes or indices, without allocation.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::uint64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  // Throws Error(invalid_argument) when there are more than max_dims values.
  explicit Dims(std::span<const std::uint64_t> values);
  static Dims filled(std::size_t size, std::uint64_t value);

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::uint64_t operator[](std::size_t i) const { return values_[i]; }
  std::uint64_t& operator[](std::size_t i) { return values_[i]; }
  const std::uint64_t* begin() const { return values_.data(); }
  const std::uint64_t* end() const { return values_.data() + size_; }
  std::uint64_t* begin() { return values_.data(); }
  std::uint64_t* end() { return values_.data() + size_; }
  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }

 private:
  std::array<std::uint64_t, max_dims> values_{};
  std::uint32_t size_ = 0;
};

// The product of the sizes (1 for no dimensions). Throws Error(invalid_argument) on 64-bit overflow.
std::uint64_t element_count(const Dims&);
// "64x64x32"; "scalar" for no dimensions.
std::string to_string(const Dims&);

// A rectangular part of an array: elements start[d] .. start[d] + count[d] - 1 in each dimension.
struct Box {
  Dims start;
  Dims count;
  friend bool operator==(const Box&, const Box&) = default;
};

// The box of a whole array.
Box whole(const Dims& shape);

// How an array lies in memory: row = last dimension contiguous (C, NumPy default), column = first dimension contiguous
// (Fortran). Indices mean the same in both: element (i, j, k) of a column-major variable is element (i, j, k) for every
// reader, whatever order it asks for.
enum class Order : std::uint8_t { row, column };

// What the blocks of a variable are parts of.
enum class Kind : std::uint8_t {
  global_array,  // one array with a shape; each block is a box of it
  local_array,   // each block is an array of its own, addressed by its number; no global shape
  global_value,  // one value per step
  local_value,   // one value per writer rank; readers see an array of them, in rank order
};

}  // namespace penstock
