#include "pool/keys/pattern.hpp"

#include "penstock/error.hpp"

namespace penstock::pool {

namespace {

[[noreturn]] void refuse_pattern(const std::string& pattern, const char* why) {
  throw Error(Errc::invalid_argument, "the pattern '" + pattern.substr(0, 80) + "' " + why);
}

}  // namespace

TextPattern::TextPattern(std::string pattern) : pattern_(std::move(pattern)) {
  if (pattern_.size() > 2 * max_key_bytes) refuse_pattern(pattern_, "is longer than any key");
  for (std::size_t at = 0; at < pattern_.size(); ++at) {
    const char c = pattern_[at];
    if (c == '*') {
      if (elements_.empty() || elements_.back().kind != Kind::star) elements_.push_back({Kind::star});
    } else if (c == '?') {
      elements_.push_back({Kind::any});
    } else if (c == '[') {
      at = parse_set(at);
    } else {
      if (c == '\\' && ++at == pattern_.size()) refuse_pattern(pattern_, "ends with a backslash that takes nothing");
      elements_.push_back({Kind::byte, static_cast<std::uint8_t>(pattern_[at])});
    }
  }
  // Literal bytes up to the first element that is none are compared at once.
  std::size_t literal = 0;
  while (literal < elements_.size() && elements_[literal].kind == Kind::byte)
    prefix_.push_back(static_cast<char>(elements_[literal++].byte));
  elements_.erase(elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(literal));
  if (elements_.empty()) form_ = Form::exact;
  else if (elements_.size() == 1 && elements_[0].kind == Kind::star) form_ = Form::prefix;
  else form_ = Form::glob;
}

TextPattern TextPattern::exactly(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') pattern.push_back('\\');
    pattern.push_back(c);
  }
  return TextPattern(std::move(pattern));
}

// Parses the set that opens at `at`; returns where it closes. A ] that comes first belongs to the set, as in the shell.
std::size_t TextPattern::parse_set(std::size_t at) {
  std::bitset<256> set;
  ++at;
  const bool inverted = at < pattern_.size() && pattern_[at] == '!';
  if (inverted) ++at;
  const auto next = [&]() -> std::uint8_t {
    if (at < pattern_.size() && pattern_[at] == '\\') ++at;
    if (at >= pattern_.size()) refuse_pattern(pattern_, "has a [ that is not closed");
    return static_cast<std::uint8_t>(pattern_[at++]);
  };
  for (bool first = true;; first = false) {
    if (at < pattern_.size() && pattern_[at] == ']' && !first) break;
    const unsigned low = next();
    unsigned high = low;
    if (at + 1 < pattern_.size() && pattern_[at] == '-' && pattern_[at + 1] != ']') {
      ++at;
      high = next();
    }
    if (high < low) refuse_pattern(pattern_, "has a range that runs backwards");
    for (unsigned byte = low; byte <= high; ++byte) set.set(byte);
  }
  if (inverted) set.flip();
  elements_.push_back({Kind::set, 0, static_cast<std::uint16_t>(sets_.size())});
  sets_.push_back(set);
  return at;
}

bool TextPattern::matches(std::string_view text) const {
  switch (form_) {
    case Form::exact: return text == prefix_;
    case Form::prefix: return text.starts_with(prefix_);
    case Form::glob: return text.starts_with(prefix_) && matches_glob(text.substr(prefix_.size()));
  }
  return false;
}

bool TextPattern::fits(const Element& element, char c) const {
  switch (element.kind) {
    case Kind::byte: return element.byte == static_cast<std::uint8_t>(c);
    case Kind::any: return true;
    case Kind::set: return sets_[element.set].test(static_cast<std::uint8_t>(c));
    case Kind::star: return false;
  }
  return false;
}

// Each piece between stars is taken at the first place where it fits: a later place could not help those that follow. So
// only the last star is ever returned to.
bool TextPattern::matches_glob(std::string_view text) const {
  constexpr std::size_t none = ~std::size_t{0};
  std::size_t at = 0, element = 0, star = none, resume = 0;
  while (at < text.size()) {
    if (element < elements_.size() && elements_[element].kind == Kind::star) {
      star = element++;
      resume = at;
      if (element == elements_.size()) return true;
    } else if (element < elements_.size() && fits(elements_[element], text[at])) {
      ++element;
      ++at;
    } else if (star != none) {
      element = star + 1;
      at = ++resume;
    } else {
      return false;
    }
  }
  if (element < elements_.size() && elements_[element].kind == Kind::star) ++element;
  return element == elements_.size();
}

}  // namespace penstock::pool
