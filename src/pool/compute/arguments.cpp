#include "pool/compute/arguments.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "model/box.hpp"
#include "penstock/error.hpp"
#include "pool/compute/function.hpp"

namespace penstock::pool::compute {

namespace {

using nlohmann::json;

constexpr int deepest = 64;  // the parser's stack is bounded by this

[[noreturn]] void refuse_arguments(const std::string& what) {
  throw Error(Errc::invalid_argument, "arguments: " + what);
}

json parse(std::string_view text) {
  if (text.empty()) return json::object();
  if (text.size() > max_arguments_bytes) refuse_arguments("the text is too long");
  bool too_deep = false;
  const auto watch = [&](int depth, json::parse_event_t, json&) {
    too_deep |= depth > deepest;
    return !too_deep;
  };
  auto value = json::parse(text, watch, false);
  if (too_deep) refuse_arguments("nested too deeply");
  if (value.is_discarded()) refuse_arguments("not JSON");
  if (!value.is_object()) refuse_arguments("not a JSON object");
  return value;
}

std::uint64_t natural(const json& value, const std::string& key) {
  if (!value.is_number_unsigned()) refuse_arguments(key + " holds something that is no natural number");
  return value.get<std::uint64_t>();
}

std::vector<std::uint64_t> naturals(const json& value, const std::string& key) {
  if (!value.is_array() || value.size() > max_dims) refuse_arguments(key + " is no list of at most 8 numbers");
  std::vector<std::uint64_t> all;
  for (const auto& item : value) all.push_back(natural(item, key));
  return all;
}

void read_range(const json& value, Arguments& into) {
  if (!value.is_array() || value.size() != 2 || !value[0].is_number() || !value[1].is_number())
    refuse_arguments("range is no list of two numbers");
  const std::array<double, 2> range{value[0].get<double>(), value[1].get<double>()};
  if (!std::isfinite(range[0]) || !std::isfinite(range[1]) || !std::isfinite(range[1] - range[0]) ||
      range[0] > range[1])
    refuse_arguments("range does not go from low to high");
  into.range = range;
}

void read_box(const json& value, Arguments& into) {
  if (!value.is_object() || value.size() != 2 || !value.contains("start") || !value.contains("count"))
    refuse_arguments("box is not {\"start\": [..], \"count\": [..]}");
  const Box box{Dims(naturals(value["start"], "box.start")), Dims(naturals(value["count"], "box.count"))};
  if (!model::is_valid(box)) refuse_arguments("box: start and count do not fit each other");
  into.box = box;
}

void read_factor(const json& value, Arguments& into) {
  if (value.is_array()) into.factor = naturals(value, "factor");
  else into.factor = {natural(value, "factor")};
  for (const auto factor : into.factor)
    if (factor == 0) refuse_arguments("factor is zero");
}

}  // namespace

Arguments parse_arguments(std::string_view text, std::span<const std::string_view> allowed) {
  const auto object = parse(text);
  Arguments arguments;
  for (const auto& [key, value] : object.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      if (allowed.empty()) throw Error(Errc::unknown_option, "unknown argument '" + key + "'; there are none");
      throw Error(Errc::unknown_option, base::unknown_name("argument", key, allowed));
    }
    if (key == "bins") arguments.bins = natural(value, key);
    else if (key == "range") read_range(value, arguments);
    else if (key == "factor") read_factor(value, arguments);
    else if (key == "box") read_box(value, arguments);
  }
  return arguments;
}

void check_arguments(std::string_view text) { parse(text); }

}  // namespace penstock::pool::compute
