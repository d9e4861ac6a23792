// Small text helpers: nearest names for error messages, numbers and sizes with their units, lists of words.
//
// Everything here is pure and safe from any thread. Parsers throw Error(invalid_argument) with a message that names the
// text, never the option it was for: callers add that with Error::in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::base {

// How many single-character insertions, deletions, substitutions and swaps of neighbours turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that the word most likely meant; "" when none is close. Case does not matter.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);
std::string nearest_name(std::string_view word, std::span<const std::string_view> candidates);

// "; did you mean 'queue_steps'?", or, when none is close, "; there are: a, b, c"; "" when there is no candidate.
std::string suggestion(std::string_view word, std::span<const std::string_view> candidates);
// "unknown option 'queu_steps'; did you mean 'queue_steps'?", or, when none is close, "...; there are: a, b, c".
std::string unknown_name(std::string_view what, std::string_view word, std::span<const std::string_view> candidates);

// Without the blanks at both ends.
std::string_view trim(std::string_view text);
// The parts between separators, trimmed; one empty part for empty text.
std::vector<std::string_view> split(std::string_view text, char separator);

// Decimal, from least to greatest.
std::uint64_t parse_integer(std::string_view text, std::uint64_t least, std::uint64_t greatest);
// "0.5", "1e-3", "inf".
double parse_real(std::string_view text);
// The shortest text that parse_real reads as the same number.
std::string format_real(double value);
// true/false, yes/no, on/off, 1/0, in any case.
bool parse_boolean(std::string_view text);
// Bytes: a decimal number, which may have a fraction, and a unit: none or B, kB MB GB TB (powers of 1000), or KiB MiB
// GiB TiB (powers of 1024), in any case. "1.5GiB" is 1610612736.
std::uint64_t parse_size(std::string_view text);
// The shortest exact text for parse_size: "64MiB", "1000B" -> "1000".
std::string format_size(std::uint64_t bytes);

}  // namespace penstock::base
