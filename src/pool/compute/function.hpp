// What a function gets and gives, wherever it runs. Values; pointers into memory that the caller keeps for the call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::pool::compute {

inline constexpr std::size_t max_inputs = 1u << 16;
inline constexpr std::size_t max_name_bytes = 16u << 10;  // two key parts of 4 KiB and more
inline constexpr std::size_t max_arguments_bytes = 1u << 20;
inline constexpr std::size_t max_info_bytes = 64u << 10;

// An object, or a block of a variable: row-major elements, or raw bytes when dtype is none.
struct Input {
  std::string name;
  DType dtype = DType::none;
  Dims shape;
  std::optional<Box> box;  // within the global array; count is the shape
  std::span<const std::byte> bytes;
};

// Throws Error(invalid_argument) naming the input when its parts contradict each other.
void check(const Input& input);

// Where a function puts its one result.
class Output {
 public:
  // Gives zeroed memory of that size that lives until the result was taken; throws Error(memory) when that is too much.
  using Allocate = std::function<std::byte*(std::uint64_t bytes)>;
  explicit Output(Allocate allocate) : allocate_(std::move(allocate)) {}

  std::byte* raw(std::uint64_t bytes);
  // Throws Error(invalid_argument) for a type without a size or a shape without a count.
  std::byte* array(DType dtype, const Dims& shape);
  template <class T>
  void value(T value) {
    __builtin_memcpy(array(dtype_of<T>(), {}), &value, sizeof value);
  }

  DType dtype = DType::none;  // none: raw bytes
  Dims shape;
  std::uint64_t bytes = 0;
  std::string info;  // JSON beside the result, or ""

 private:
  Allocate allocate_;
};

// Asked now and then by long loops; throws Error(cancelled) once nobody waits for the result any more.
class Stop {
 public:
  explicit Stop(const std::atomic<bool>* flag = nullptr) : flag_(flag) {}
  void check() const;

 private:
  const std::atomic<bool>* flag_;
};

// ----------------------------------------------------------------------------------------------------------- built-ins

// One input or several of one type, combined as if they were one array (blocks of one variable).
//   min, max     of bool, integers and floats, in their own type. NaN is ignored; only NaN gives NaN. No elements: an
//                error.
//   sum          bool and signed integers give int64, unsigned uint64 (both wrap), floats float64 (pairwise), complex
//                complex128. NaN propagates. No elements: 0.
//   histogram    {"bins": 10, "range": [low, high]}; counts as int64[bins]; values compared as float64 with edges
//                low + i (high - low) / bins, the last bin closed, as numpy.histogram does. Without a range: the least and
//                the greatest finite value. NaN and what is outside is not counted. info: range, counted, left_out.
//   subset       {"box": {"start": [..], "count": [..]}}; the box of the global array when blocks have boxes, else of
//                the one input. Every element must be there.
//   downsample   {"factor": 2} or one for each dimension: the elements whose global indices are multiples of it.
//   first, last  the first or last input as it is.
// 16-bit floats have no arithmetic here; strings and raw bytes only first and last.
using Function = void (*)(std::span<const Input> inputs, std::string_view arguments, Output& output, Stop stop);

struct Builtin {
  std::string_view name;
  Function function;
};
std::span<const Builtin> builtins();
// Null when there is none of that name.
const Builtin* find_builtin(std::string_view name);

// Their parts (reduce.cpp, select.cpp).
void run_min(std::span<const Input>, std::string_view, Output&, Stop);
void run_max(std::span<const Input>, std::string_view, Output&, Stop);
void run_sum(std::span<const Input>, std::string_view, Output&, Stop);
void run_histogram(std::span<const Input>, std::string_view, Output&, Stop);
void run_subset(std::span<const Input>, std::string_view, Output&, Stop);
void run_downsample(std::span<const Input>, std::string_view, Output&, Stop);
void run_first(std::span<const Input>, std::string_view, Output&, Stop);
void run_last(std::span<const Input>, std::string_view, Output&, Stop);

// The type that all inputs have. Throws Error(invalid_argument) when they differ or there is none, Error(unsupported)
// for raw bytes and strings, which have no elements.
DType common_dtype(std::span<const Input> inputs);

}  // namespace penstock::pool::compute
