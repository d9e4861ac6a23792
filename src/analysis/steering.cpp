#include "analysis/steering.hpp"

#include <cmath>
#include <sstream>

#include "analysis/refuse.hpp"
#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::analysis {
namespace {

constexpr std::size_t max_refusals = 8, max_refusal_bytes = 160;

std::string to_text(const Value& value) {
  std::ostringstream text;
  text << std::boolalpha;
  std::visit([&](const auto& v) { text << v; }, value);
  return text.str();
}

bool is_number(const Value& value) {
  return std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value);
}

// An integer will do where a number is wanted, and a number that is whole where an integer is: analyses in Python write both.
Value converted(const Value& value, const Value& like) {
  if (value.index() == like.index()) return value;
  if (std::holds_alternative<double>(like) && std::holds_alternative<std::int64_t>(value))
    return static_cast<double>(std::get<std::int64_t>(value));
  constexpr double exact = 9007199254740992.0;  // 2^53
  if (const auto* number = std::get_if<double>(&value); number && std::holds_alternative<std::int64_t>(like) &&
                                                        std::trunc(*number) == *number && std::fabs(*number) <= exact)
    return static_cast<std::int64_t>(*number);
  refuse("it is of type " + std::string(type_of(like)) + ", and " + to_text(value).substr(0, 40) + " is of type " +
         std::string(type_of(value)));
}

void check_bounds(const Steering::Parameter& parameter, const Value& value) {
  if (const auto* number = std::get_if<double>(&value); number && !std::isfinite(*number)) refuse("it is not finite");
  if (parameter.least && value < *parameter.least)
    refuse(to_text(value) + " is less than " + to_text(*parameter.least));
  if (parameter.greatest && *parameter.greatest < value)
    refuse(to_text(value) + " is greater than " + to_text(*parameter.greatest));
}

}  // namespace

void Steering::declare(std::string_view name, Value value, std::optional<Value> least, std::optional<Value> greatest) {
  const std::string context = "parameter '" + std::string(name) + "'";
  if (name.empty()) refuse("a parameter needs a name");
  if (parameters_.contains(name)) throw Error(Errc::already_exists, context + " is declared already");
  for (const auto* bound : {&least, &greatest})
    if (*bound && (!is_number(value) || (*bound)->index() != value.index()))
      refuse(context + ": only numbers have bounds, of their own type");
  Parameter parameter{value, value, std::move(least), std::move(greatest)};
  try {
    check_bounds(parameter, value);
  } catch (const Error& error) {
    throw error.in(context);
  }
  parameters_.emplace(name, std::move(parameter));
}

Steering::Parameter& Steering::find(std::string_view name) {
  const auto found = parameters_.find(name);
  if (found != parameters_.end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [each, parameter] : parameters_) names.push_back(each);
  throw Error(Errc::not_found, base::unknown_name("parameter", name.substr(0, 80), names));
}

const Value& Steering::value(std::string_view name) const { return const_cast<Steering*>(this)->find(name).value; }

void Steering::set(std::string_view name, const Value& value) {
  auto& parameter = find(name);
  const auto fitting = converted(value, parameter.initial);
  check_bounds(parameter, fitting);
  parameter.value = fitting;
}

void Steering::apply(const std::vector<std::pair<std::string, Value>>& values) {
  refused_.clear();
  for (const auto& [name, value] : values) {
    try {
      set(name, value);
    } catch (const Error& error) {
      if (refused_.size() < max_refusals)
        refused_.emplace(name.substr(0, max_refusal_bytes), std::string(error.what()).substr(0, max_refusal_bytes));
    }
  }
}

}  // namespace penstock::analysis
