#include "analysis/demand.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/refuse.hpp"
#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::analysis {
namespace {

using Json = nlohmann::json;
using Code = Program::Code;

struct Operation {
  std::string_view word;
  Code code;
  std::size_t operands;
};
constexpr std::array operations{Operation{"step", Code::step, 0},       Operation{"time", Code::time, 0},
                                Operation{"maybe", Code::number, 0},    Operation{"+", Code::add, 2},
                                Operation{"-", Code::subtract, 2},      Operation{"*", Code::multiply, 2},
                                Operation{"/", Code::divide, 2},        Operation{"%", Code::modulo, 2},
                                Operation{"//", Code::floor_divide, 2}, Operation{"**", Code::power, 2},
                                Operation{"==", Code::equal, 2},        Operation{"!=", Code::unequal, 2},
                                Operation{"<", Code::less, 2},          Operation{"<=", Code::less_equal, 2},
                                Operation{">", Code::greater, 2},       Operation{">=", Code::greater_equal, 2},
                                Operation{"and", Code::logical_and, 2}, Operation{"or", Code::logical_or, 2},
                                Operation{"not", Code::logical_not, 1}, Operation{"min", Code::least, 2},
                                Operation{"max", Code::greatest, 2},    Operation{"abs", Code::absolute, 1}};

std::size_t operands_of(Code code) {
  return code == Code::number ? 0 : std::ranges::find(operations, code, &Operation::code)->operands;
}

// Python's remainder has the divisor's sign, and its quotient goes with that. b is not 0.
double modulo(double a, double b) noexcept {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
double floor_divide(double a, double b) noexcept {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

double apply(Code code, double a, double b) noexcept {
  switch (code) {
    case Code::add: return a + b;
    case Code::subtract: return a - b;
    case Code::multiply: return a * b;
    case Code::divide: return a / b;
    case Code::modulo: return modulo(a, b);
    case Code::floor_divide: return b == 0 ? HUGE_VAL : floor_divide(a, b);
    case Code::power: return std::pow(a, b);
    case Code::equal: return a == b;
    case Code::unequal: return a != b;
    case Code::less: return a < b;
    case Code::less_equal: return a <= b;
    case Code::greater: return a > b;
    case Code::greater_equal: return a >= b;
    case Code::logical_and: return a != 0 && b != 0;
    case Code::logical_or: return a != 0 || b != 0;
    case Code::logical_not: return a == 0;
    case Code::least: return std::min(a, b);
    case Code::greatest: return std::max(a, b);
    case Code::absolute: return std::fabs(a);
    case Code::number:
    case Code::step:
    case Code::time: break;
  }
  return 1;
}

}  // namespace

Program::Program(std::vector<Word> words) : words_(std::move(words)) {
  if (words_.empty() || words_.size() > max_words)
    refuse("a program has 1 to " + std::to_string(max_words) + " words, not " + std::to_string(words_.size()));
  std::size_t depth = 0;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const auto operands = operands_of(words_[i].code);
    if (depth < operands) refuse("word " + std::to_string(i) + " of the program lacks an operand");
    depth += 1 - operands;
  }
  if (depth != 1) refuse("the program leaves " + std::to_string(depth) + " values; 1 is needed");
}

bool Program::holds(double step, double time) const noexcept {
  std::array<double, max_words> stack;  // each word leaves at most one more value
  std::size_t depth = 0;
  for (const auto& word : words_) {
    double value = 0;
    switch (word.code) {
      case Code::number: value = word.number; break;
      case Code::step: value = step; break;
      case Code::time: value = time; break;
      case Code::logical_not:
      case Code::absolute: value = apply(word.code, stack[--depth], 0); break;
      default: depth -= 2; value = apply(word.code, stack[depth], stack[depth + 1]);
    }
    if (!std::isfinite(value)) return true;
    stack[depth++] = value;
  }
  return stack[0] != 0;
}

std::string_view type_of(const Value& value) {
  constexpr std::array<std::string_view, 4> names{"boolean", "integer", "number", "string"};
  return names.at(value.index());
}

namespace {

constexpr std::array<std::string_view, 4> request_keys{"version", "number", "rules", "steering"};
constexpr std::array<std::string_view, 2> rule_keys{"fields", "when"};

// Errors of what it runs name the place in the request.
template <class Body>
auto at(const std::string& place, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    throw error.in(place);
  }
}

// What stands in a wrong place, shortly. Lists and objects may be so deep that writing them out would overflow the stack.
std::string short_text(const Json& value) {
  if (value.is_structured()) return std::string("a value of type ") + value.type_name();
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40);
}

void check_keys(const Json& object, std::span<const std::string_view> keys, const char* what) {
  if (!object.is_object()) refuse(std::string(what) + " is an object");
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(keys, key) == keys.end()) refuse(base::unknown_name("key", key.substr(0, 80), keys));
}

const Json& member(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(std::string("'") + key + "' is missing");
  return *found;
}

std::uint64_t whole_number(const Json& value, const char* what) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<std::int64_t>() < 0) ||
      value.get<std::uint64_t>() > INT64_MAX)
    refuse(std::string(what) + " is a whole number, not " + short_text(value));
  return value.get<std::uint64_t>();
}

const Json& list(const Json& value, std::size_t most, const char* what) {
  if (!value.is_array() || value.size() > most)
    refuse(std::string(what) + " is a list of at most " + std::to_string(most));
  return value;
}

Program::Word word_of(const Json& value) {
  if (value.is_number()) return {Code::number, value.get<double>()};
  const auto* word = value.get_ptr<const std::string*>();
  if (!word) refuse("a word is a number or a string, not " + short_text(value));
  const auto found = std::ranges::find(operations, *word, &Operation::word);
  if (found == operations.end()) refuse("'" + word->substr(0, 40) + "' is no word of a program");
  return {found->code, 1};  // of `maybe`
}

Program program_of(const Json& value) {
  std::vector<Program::Word> words;
  for (const auto& word : list(value, max_words, "it")) words.push_back(word_of(word));
  return Program(std::move(words));
}

Rule rule_of(const Json& value) {
  check_keys(value, rule_keys, "a rule");
  Rule rule{.when = at("when", [&] { return program_of(member(value, "when")); })};
  const auto& fields = member(value, "fields");
  rule.all = fields.is_null();
  if (!rule.all)
    for (const auto& field : list(fields, max_request_bytes, "fields (or null)")) {
      if (!field.is_string()) refuse("a field is a string, not " + short_text(field));
      rule.fields.insert(field.get_ref<const std::string&>());
    }
  return rule;
}

Value value_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX))
    return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  const auto* text = value.get_ptr<const std::string*>();
  if (!text || text->size() > max_text)
    refuse("a value is a boolean, a number or a string of at most " + std::to_string(max_text) + " bytes, not " +
           short_text(value));
  return *text;
}

Request request_of(const Json& json) {
  check_keys(json, request_keys, "a request");
  if (const auto& version = member(json, "version"); version != 1)
    refuse("it is of version " + short_text(version) + ", and this is 1");
  Request request;
  request.number = whole_number(member(json, "number"), "number");
  for (const auto& rule : list(member(json, "rules"), max_rules, "rules"))
    request.rules.push_back(at("rule " + std::to_string(request.rules.size()), [&] { return rule_of(rule); }));
  std::size_t words = 0;
  for (const auto& rule : request.rules) words += rule.when.size();
  if (words > max_request_words)
    refuse("its programs have " + std::to_string(words) + " words together; at most " +
           std::to_string(max_request_words) + " are run");
  const auto steering = json.find("steering");
  if (steering == json.end()) return request;
  if (!steering->is_object()) refuse("steering is an object");
  for (const auto& item : steering->items())
    request.steering.emplace_back(
        item.key(), at("steering '" + item.key().substr(0, 80) + "'", [&] { return value_of(item.value()); }));
  return request;
}

}  // namespace

Request parse_request(std::string_view json) {
  if (json.size() > max_request_bytes)
    refuse("the request has " + std::to_string(json.size()) + " bytes; at most " + std::to_string(max_request_bytes) +
           " are read");
  const auto parsed = [&] {
    try {
      return Json::parse(json);
    } catch (const Json::exception& error) {
      refuse(std::string("the request is no JSON: ") + error.what());
    }
  }();
  return at("request", [&] { return request_of(parsed); });
}

}  // namespace penstock::analysis
