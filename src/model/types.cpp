#include "penstock/types.hpp"

#include <algorithm>

#include "penstock/error.hpp"

namespace penstock {

namespace {

struct DTypeRow {
  std::string_view name;
  std::size_t size;
};
constexpr std::array<DTypeRow, dtype_count> dtypes{{{"none", 0},
                                                    {"bool", 1},
                                                    {"int8", 1},
                                                    {"int16", 2},
                                                    {"int32", 4},
                                                    {"int64", 8},
                                                    {"uint8", 1},
                                                    {"uint16", 2},
                                                    {"uint32", 4},
                                                    {"uint64", 8},
                                                    {"float16", 2},
                                                    {"bfloat16", 2},
                                                    {"float32", 4},
                                                    {"float64", 8},
                                                    {"complex64", 8},
                                                    {"complex128", 16},
                                                    {"string", 0}}};

std::size_t row_of(DType dtype) {
  const auto row = static_cast<std::size_t>(dtype);
  return row < dtype_count ? row : 0;
}

}  // namespace

std::size_t size_of(DType dtype) { return dtypes[row_of(dtype)].size; }

std::string_view name_of(DType dtype) { return dtypes[row_of(dtype)].name; }

DType dtype_from_name(std::string_view name) {
  for (std::size_t row = 1; row < dtype_count; ++row)
    if (dtypes[row].name == name) return static_cast<DType>(row);
  return DType::none;
}

Dims::Dims(std::span<const std::uint64_t> values) {
  if (values.size() > max_dims)
    throw Error(Errc::invalid_argument, std::to_string(values.size()) + " dimensions are more than the " +
                                            std::to_string(max_dims) + " allowed");
  std::copy(values.begin(), values.end(), values_.begin());
  size_ = static_cast<std::uint32_t>(values.size());
}

Dims Dims::filled(std::size_t size, std::uint64_t value) {
  std::array<std::uint64_t, max_dims> values;
  values.fill(value);
  if (size > max_dims) throw Error(Errc::invalid_argument, std::to_string(size) + " dimensions are too many");
  return Dims(std::span<const std::uint64_t>(values.data(), size));
}

std::uint64_t element_count(const Dims& dims) {
  if (std::find(dims.begin(), dims.end(), 0u) != dims.end()) return 0;
  std::uint64_t product = 1;
  for (const auto size : dims)
    if (__builtin_mul_overflow(product, size, &product))
      throw Error(Errc::invalid_argument, "an array of " + to_string(dims) + " has too many elements");
  return product;
}

std::string to_string(const Dims& dims) {
  if (dims.empty()) return "scalar";
  std::string text;
  for (const auto size : dims) {
    if (!text.empty()) text += 'x';
    text += std::to_string(size);
  }
  return text;
}

Box whole(const Dims& shape) { return {Dims::filled(shape.size(), 0), shape}; }

}  // namespace penstock
