// JSON that others wrote. Whole numbers: nlohmann turns -1 and 1.5 into unsigned numbers without a word, and for one that
// is too large its conversion is undefined behaviour.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::fabric {

// Throws Error(protocol) for anything but a whole number in this range; nlohmann's out_of_range when there is no such name.
template <class Integer>
Integer json_integer(const nlohmann::json& object, const char* name,
                     Integer least = std::numeric_limits<Integer>::min(),
                     Integer greatest = std::numeric_limits<Integer>::max()) {
  const auto& value = object.at(name);
  const auto within = [&](auto number) {
    return std::cmp_greater_equal(number, least) && std::cmp_less_equal(number, greatest);
  };
  // What is not negative is kept as unsigned by the parser, and as signed by the library's users.
  if (value.is_number_unsigned() && within(value.template get<std::uint64_t>()))
    return static_cast<Integer>(value.template get<std::uint64_t>());
  if (value.is_number_integer() && !value.is_number_unsigned() && within(value.template get<std::int64_t>()))
    return static_cast<Integer>(value.template get<std::int64_t>());
  throw Error(Errc::protocol, std::string("a value out of range for ") + name);
}

// What is wrong with a text, for people: without the library's number of the error, "[json.exception.parse_error.101] ".
inline std::string problem_of(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const auto end = text.starts_with("[json.exception.") ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace penstock::fabric
