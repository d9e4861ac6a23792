#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "penstock/error.hpp"

namespace penstock::base {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

[[noreturn]] void invalid(std::string_view text, const std::string& expected) {
  throw Error(Errc::invalid_argument, "'" + std::string(text) + "' is not " + expected);
}

// Close enough that a person who typed one may have meant the other.
template <class Name>
std::string nearest_of(std::string_view word, std::span<const Name> candidates) {
  const std::string wanted = lower(word);
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(wanted, lower(candidate));
    if (distance < best_distance && distance < candidate.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

struct Unit {
  std::string_view name;  // lower case
  std::uint64_t bytes;
};
constexpr std::array units{
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"kb", 1'000},
    Unit{"mb", 1'000'000},
    Unit{"gb", 1'000'000'000},
    Unit{"tb", 1'000'000'000'000},
    Unit{"kib", std::uint64_t{1} << 10},
    Unit{"mib", std::uint64_t{1} << 20},
    Unit{"gib", std::uint64_t{1} << 30},
    Unit{"tib", std::uint64_t{1} << 40},
};

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment, three rows of the table at a time.
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
  return nearest_of(word, candidates);
}

std::string nearest_name(std::string_view word, std::span<const std::string_view> candidates) {
  return nearest_of(word, candidates);
}

std::string suggestion(std::string_view word, std::span<const std::string_view> candidates) {
  if (const std::string near = nearest_name(word, candidates); !near.empty()) return "; did you mean '" + near + "'?";
  std::string message;
  std::string_view separator = "; there are: ";
  for (std::string_view candidate : candidates) {
    message.append(separator).append(candidate);
    separator = ", ";
  }
  return message;
}

std::string unknown_name(std::string_view what, std::string_view word, std::span<const std::string_view> candidates) {
  return "unknown " + std::string(what) + " '" + std::string(word) + "'" + suggestion(word, candidates);
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.push_back(trim(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::uint64_t parse_integer(std::string_view text, std::uint64_t least, std::uint64_t greatest) {
  const std::string_view digits = trim(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < least || value > greatest)
    invalid(text, "a whole number from " + std::to_string(least) + " to " + std::to_string(greatest));
  return value;
}

double parse_real(std::string_view text) {
  const std::string_view number = trim(text);
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || std::isnan(value)) invalid(text, "a number");
  return value;
}

std::string format_real(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

bool parse_boolean(std::string_view text) {
  const std::string word = lower(trim(text));
  for (std::string_view yes : {"true", "yes", "on", "1"})
    if (word == yes) return true;
  for (std::string_view no : {"false", "no", "off", "0"})
    if (word == no) return false;
  invalid(text, "true or false");
}

std::uint64_t parse_size(std::string_view text) {
  constexpr const char* expected = "a size such as 65536, 64MiB or 1.5GB";
  const std::string_view word = trim(text);
  const std::size_t digits = std::min(word.find_first_not_of("0123456789."), word.size());
  const std::string_view number = word.substr(0, digits);
  const std::string unit_name = lower(trim(word.substr(digits)));
  const auto unit = std::ranges::find(units, std::string_view(unit_name), &Unit::name);
  if (number.empty() || unit == units.end()) invalid(text, expected);

  std::uint64_t whole = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), whole);
  if (error == std::errc() && end == number.data() + number.size()) {
    if (whole > UINT64_MAX / unit->bytes) invalid(text, "a size below 16 EiB");
    return whole * unit->bytes;
  }
  double fraction = 0;
  const auto [fraction_end, fraction_error] = std::from_chars(number.data(), number.data() + number.size(), fraction);
  if (fraction_error != std::errc() || fraction_end != number.data() + number.size()) invalid(text, expected);
  const double bytes = std::round(fraction * static_cast<double>(unit->bytes));
  if (bytes >= std::ldexp(1.0, 64)) invalid(text, "a size below 16 EiB");
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> names{"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (unit + 1 < names.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes).append(names[unit]);
}

}  // namespace penstock::base
