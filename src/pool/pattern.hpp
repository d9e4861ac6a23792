// Patterns over rows and columns: exact, prefix ("heat*"), or glob (*, ?, [a-z], [!x]; backslash takes the next character as
// it is). Matching is linear in text and pattern (no recursion), over bytes.
#pragma once

#include <string>
#include <string_view>

#include "penstock/pool.hpp"

namespace penstock::pool {

class TextPattern {
 public:
  TextPattern() : TextPattern("*") {}
  // Throws Error(invalid_argument): an unclosed [, a backslash at the end, longer than two times max_key_bytes.
  explicit TextPattern(std::string pattern);
  bool matches(std::string_view text) const;
  bool exact() const { return form_ == Form::exact; }
  // What every matching text starts with (exact: all of it).
  const std::string& prefix() const { return prefix_; }
  const std::string& text() const { return pattern_; }

 private:
  enum class Form { exact, prefix, glob } form_;
  std::string pattern_, prefix_;
};

struct KeyPattern {
  KeyPattern() = default;
  explicit KeyPattern(const Pattern& pattern) : row(pattern.row), column(pattern.column) {}
  TextPattern row, column;
  bool matches(std::string_view r, std::string_view c) const { return row.matches(r) && column.matches(c); }
};

}  // namespace penstock::pool
