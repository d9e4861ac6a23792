// Patterns over rows and columns: exact, prefix ("heat*"), or glob (*, ?, [a-z], [!x]; backslash takes the next character as
// it is). Bytes, not characters of any encoding. Matching neither recurses nor backtracks beyond the last star: its cost is
// at most the text's length times that of the longest piece between two stars. Immutable; any thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/pool.hpp"

namespace penstock::pool {

class TextPattern {
 public:
  TextPattern() : TextPattern("*") {}
  // Throws Error(invalid_argument): an unclosed [, a range that runs backwards, a backslash at the end, longer than two times
  // max_key_bytes (every byte of a key escaped).
  explicit TextPattern(std::string pattern);
  // The pattern that matches this text and no other.
  static TextPattern exactly(std::string_view text);

  bool matches(std::string_view text) const;
  bool exact() const { return form_ == Form::exact; }
  // What every matching text starts with (exact: all of it).
  const std::string& prefix() const { return prefix_; }
  const std::string& text() const { return pattern_; }

 private:
  enum class Form { exact, prefix, glob } form_ = Form::exact;
  enum class Kind : std::uint8_t { byte, any, set, star };
  struct Element {
    Kind kind;
    std::uint8_t byte = 0;  // of Kind::byte
    std::uint16_t set = 0;  // index into sets_
  };
  std::size_t parse_set(std::size_t at);
  bool fits(const Element& element, char c) const;
  bool matches_glob(std::string_view text) const;

  std::string pattern_, prefix_;
  std::vector<Element> elements_;  // glob: what follows the prefix
  std::vector<std::bitset<256>> sets_;
};

struct KeyPattern {
  KeyPattern() = default;
  explicit KeyPattern(const Pattern& pattern) : row(pattern.row), column(pattern.column) {}
  TextPattern row, column;
  bool matches(std::string_view r, std::string_view c) const { return row.matches(r) && column.matches(c); }
};

}  // namespace penstock::pool
