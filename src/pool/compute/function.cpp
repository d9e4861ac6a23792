#include "pool/compute/function.hpp"

#include <array>

#include "model/box.hpp"
#include "penstock/error.hpp"

namespace penstock::pool::compute {

namespace {

constexpr std::array<Builtin, 8> table{{{"min", run_min},
                                        {"max", run_max},
                                        {"sum", run_sum},
                                        {"histogram", run_histogram},
                                        {"subset", run_subset},
                                        {"downsample", run_downsample},
                                        {"first", run_first},
                                        {"last", run_last}}};

[[noreturn]] void refuse_input(const Input& input, const std::string& what) {
  throw Error(Errc::invalid_argument, "input '" + input.name.substr(0, 200) + "': " + what);
}

std::uint64_t bytes_of(DType dtype, const Dims& shape) {
  const auto count = element_count(shape);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, size_of(dtype), &bytes))
    throw Error(Errc::invalid_argument, "an array of " + to_string(shape) + " is too large");
  return bytes;
}

}  // namespace

void check(const Input& input) {
  if (input.name.size() > max_name_bytes) refuse_input(input, "the name is too long");
  if (static_cast<std::size_t>(input.dtype) >= dtype_count) refuse_input(input, "no such element type");
  if (size_of(input.dtype) == 0) {
    if (!input.shape.empty() || input.box) refuse_input(input, "raw bytes and strings have no shape");
    return;
  }
  if (bytes_of(input.dtype, input.shape) != input.bytes.size())
    refuse_input(input, to_string(input.shape) + " of " + std::string(name_of(input.dtype)) + " is not " +
                            std::to_string(input.bytes.size()) + " bytes");
  if (input.box && (!model::is_valid(*input.box) || input.box->count != input.shape))
    refuse_input(input, "its box has another shape");
}

std::byte* Output::raw(std::uint64_t size) {
  dtype = DType::none;
  shape = {};
  bytes = size;
  return allocate_(size);
}

std::byte* Output::array(DType type, const Dims& dims) {
  if (size_of(type) == 0) throw Error(Errc::invalid_argument, "a result of elements without a size");
  bytes = bytes_of(type, dims);
  dtype = type;
  shape = dims;
  return allocate_(bytes);
}

void Stop::check() const {
  if (flag_ != nullptr && flag_->load(std::memory_order_relaxed)) throw Error(Errc::cancelled, "the call was given up");
}

std::span<const Builtin> builtins() { return table; }

const Builtin* find_builtin(std::string_view name) {
  for (const auto& builtin : table)
    if (builtin.name == name) return &builtin;
  return nullptr;
}

DType common_dtype(std::span<const Input> inputs) {
  if (inputs.empty()) throw Error(Errc::invalid_argument, "there is no input");
  const DType dtype = inputs.front().dtype;
  for (const auto& input : inputs)
    if (input.dtype != dtype)
      refuse_input(input,
                   "elements of type " + std::string(name_of(input.dtype)) + " among " + std::string(name_of(dtype)));
  if (size_of(dtype) == 0)
    throw Error(Errc::unsupported, dtype == DType::none ? "raw bytes have no elements" : "strings have no arithmetic");
  return dtype;
}

}  // namespace penstock::pool::compute
