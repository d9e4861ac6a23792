// What an analysis asks of a channel: requests, read from JSON, and the programs that say at which steps a rule holds.
// docs/internals/coprocessing.md has the format. The texts come from outside: everything is checked and bounded here.
//
// Values; any thread. Errors: Error(invalid_argument), which says where in the request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::analysis {

inline constexpr std::size_t max_request_bytes = std::size_t{1} << 20;
inline constexpr std::size_t max_rules = 256;
inline constexpr std::size_t max_words = 256;           // of a program
inline constexpr std::size_t max_request_words = 4096;  // of all programs: the simulation runs them at each cycle
inline constexpr std::size_t max_text = 4096;           // bytes of a steering value

// A condition over a step's number and time, in reverse Polish notation: a calculator with a stack. That no word lacks an
// operand, and that one value is left, is checked when it is made.
class Program {
 public:
  enum class Code : std::uint8_t {
    number,
    step,
    time,
    add,
    subtract,
    multiply,
    divide,
    modulo,
    floor_divide,
    power,
    equal,
    unequal,
    less,
    less_equal,
    greater,
    greater_equal,
    logical_and,
    logical_or,
    logical_not,
    least,
    greatest,
    absolute,
  };
  struct Word {
    Code code = Code::number;
    double number = 0;
  };
  explicit Program(std::vector<Word> words);
  std::size_t size() const { return words_.size(); }

  // Whether the result is not 0. True also when a value on the way is not finite (a division by 0): the analysis decides then.
  // Comparisons and logic give 1 and 0; % and // are Python's. Allocates nothing, calls nothing that can fail.
  bool holds(double step, double time) const noexcept;

 private:
  std::vector<Word> words_;
};

struct Rule {
  bool all = false;  // fields; `fields` is empty then
  std::set<std::string, std::less<>> fields;
  Program when;
};

using Value = std::variant<bool, std::int64_t, double, std::string>;
std::string_view type_of(const Value& value);

struct Request {
  std::uint64_t number = 0;
  std::vector<Rule> rules;
  std::vector<std::pair<std::string, Value>> steering;
};

Request parse_request(std::string_view json);

}  // namespace penstock::analysis
