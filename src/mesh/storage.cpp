#include <charconv>

#include "penstock/error.hpp"
#include "penstock/region.hpp"

namespace penstock::mesh {
namespace {

constexpr std::uint32_t max_components = 100'000;

Storage array_of(std::uint32_t size) {
  Storage storage{"[" + std::to_string(size) + "]", {}};
  const auto width = std::to_string(size).size();
  for (std::uint32_t i = 1; i <= size; ++i) {
    const auto number = std::to_string(i);
    storage.suffixes.push_back(std::string(width - number.size(), '0') + number);
  }
  return storage;
}

}  // namespace

// As IOSS has them (Ioss_ConcreteVariableType).
const std::vector<Storage>& named_storages() {
  static const std::vector<Storage> storages{
      {"scalar", {}},
      {"vector_2d", {"x", "y"}},
      {"vector_3d", {"x", "y", "z"}},
      {"quaternion_2d", {"s", "q"}},
      {"quaternion_3d", {"x", "y", "z", "q"}},
      {"full_tensor_36", {"xx", "yy", "zz", "xy", "yz", "zx", "yx", "zy", "xz"}},
      {"full_tensor_32", {"xx", "yy", "zz", "xy", "yx"}},
      {"full_tensor_22", {"xx", "yy", "xy", "yx"}},
      {"full_tensor_16", {"xx", "xy", "yz", "zx", "yx", "zy", "xz"}},
      {"full_tensor_12", {"xx", "xy", "yx"}},
      {"sym_tensor_33", {"xx", "yy", "zz", "xy", "yz", "zx"}},
      {"sym_tensor_31", {"xx", "yy", "zz", "xy"}},
      {"sym_tensor_21", {"xx", "yy", "xy"}},
      {"sym_tensor_13", {"xx", "xy", "yz", "zx"}},
      {"sym_tensor_11", {"xx", "xy"}},
      {"asym_tensor_03", {"xy", "yz", "zx"}},
      {"asym_tensor_02", {"xy", "yz"}},
      {"matrix_22", {"11", "12", "21", "22"}},
      {"matrix_33", {"11", "12", "13", "21", "22", "23", "31", "32", "33"}},
  };
  return storages;
}

Storage storage_named(std::string_view name) {
  for (const auto& each : named_storages())
    if (each.name == name) return each;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    std::uint32_t size = 0;
    const auto* end = name.data() + name.size() - 1;
    const auto result = std::from_chars(name.data() + 1, end, size);
    if (result.ec == std::errc{} && result.ptr == end && size > 0 && size <= max_components) return array_of(size);
  }
  throw Error(Errc::invalid_argument,
              "'" + std::string(name) +
                  "' is no storage: scalar, vector_3d, sym_tensor_33 and the like, or \"[n]\" with n up to " +
                  std::to_string(max_components));
}

}  // namespace penstock::mesh
