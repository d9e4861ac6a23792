// The arguments of a call: a JSON object, checked as it is read. Unknown keys are errors that suggest the nearest.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::pool::compute {

// What the built-ins know. Each takes those that it names in `allowed`.
struct Arguments {
  std::optional<std::uint64_t> bins;
  std::optional<std::array<double, 2>> range;  // finite, low <= high
  std::vector<std::uint64_t> factor;           // one for all dimensions, or one each; none zero
  std::optional<Box> box;
};

// Empty text is no arguments. Throws Error(invalid_argument, unknown_option).
Arguments parse_arguments(std::string_view json, std::span<const std::string_view> allowed);
// Throws Error(invalid_argument) when the text is neither empty nor a JSON object of moderate depth.
void check_arguments(std::string_view json);

}  // namespace penstock::pool::compute
