// One table of fields for each struct of options: a name, and how the value is read from and written as text. Files, the
// environment, command lines and what is printed back all go through the table, so they cannot differ.
//
//   constexpr std::array store_fields{size<&StoreOptions::memory, 1>("memory"), share<&StoreOptions::ahead>("ahead"), ...};
//   set_field(store_fields, options, "memroy", "1GiB");   // unknown option 'memroy'; did you mean 'memory'?
//
// Pure; any thread. Setters throw Error(invalid_argument) without naming the option; set_field adds the name.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::base {

template <class Options>
struct Field {
  std::string_view name;
  void (*set)(Options&, std::string_view);
  std::string (*get)(const Options&);
};

namespace fields {

template <class T>
struct MemberTraits;
template <class C, class V>
struct MemberTraits<V C::*> {
  using Class = C;
  using Value = V;
};
template <auto Member>
using ClassOf = typename MemberTraits<decltype(Member)>::Class;
template <auto Member>
using ValueOf = typename MemberTraits<decltype(Member)>::Value;

// Anything of one line, trimmed.
std::string parse_line(std::string_view text);
// Several, with ';' between them; none of nothing.
std::vector<std::string> parse_lines(std::string_view text);

// The values' names, in order from 0: specialise with a static array `names`.
template <class T>
struct EnumNames;

template <class T>
T parse_enum(std::string_view text) {
  const auto& names = EnumNames<T>::names;
  const auto found = std::ranges::find(names, trim(text));
  if (found == names.end()) throw Error(Errc::invalid_argument, unknown_name("value", text, names));
  return static_cast<T>(found - names.begin());
}

// A whole number from Least to Greatest.
template <auto Member, std::uint64_t Least = 0, std::uint64_t Greatest = UINT32_MAX>
constexpr Field<ClassOf<Member>> number(std::string_view name) {
  using O = ClassOf<Member>;
  return {name,
          [](O& options, std::string_view text) {
            options.*Member = static_cast<std::uint32_t>(parse_integer(text, Least, Greatest));
          },
          [](const O& options) { return std::to_string(options.*Member); }};
}

// Bytes.
template <auto Member, std::uint64_t Least = 0>
constexpr Field<ClassOf<Member>> size(std::string_view name) {
  using O = ClassOf<Member>;
  return {name,
          [](O& options, std::string_view text) {
            const std::uint64_t bytes = parse_size(text);
            if (bytes < Least) throw Error(Errc::invalid_argument, "it must be at least " + std::to_string(Least));
            options.*Member = bytes;
          },
          [](const O& options) { return format_size(options.*Member); }};
}

// A share: above 0, at most 1; with a % sign behind, of a hundred.
template <auto Member>
constexpr Field<ClassOf<Member>> share(std::string_view name) {
  using O = ClassOf<Member>;
  return {name,
          [](O& options, std::string_view text) {
            std::string_view digits = trim(text);
            const bool percent = digits.ends_with('%');
            if (percent) digits.remove_suffix(1);
            double value = 0;
            const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
            if (percent) value /= 100;
            if (error != std::errc() || end != digits.data() + digits.size() || !(value > 0 && value <= 1))
              throw Error(Errc::invalid_argument,
                          "'" + std::string(text.substr(0, 40)) + "' is no share, such as 0.9 or 90%");
            options.*Member = value;
          },
          [](const O& options) {
            char text[32];
            const auto end = std::to_chars(text, text + sizeof text, options.*Member).ptr;
            return std::string(text, end);
          }};
}

template <auto Member>
constexpr Field<ClassOf<Member>> boolean(std::string_view name) {
  using O = ClassOf<Member>;
  return {name, [](O& options, std::string_view text) { options.*Member = parse_boolean(text); },
          [](const O& options) { return std::string(options.*Member ? "true" : "false"); }};
}

template <auto Member>
constexpr Field<ClassOf<Member>> choice(std::string_view name) {
  using O = ClassOf<Member>;
  using T = ValueOf<Member>;
  return {
      name, [](O& options, std::string_view text) { options.*Member = parse_enum<T>(text); },
      [](const O& options) { return std::string(EnumNames<T>::names.at(static_cast<std::size_t>(options.*Member))); }};
}

// Text that Parse checks and puts in order.
template <auto Member, std::string (*Parse)(std::string_view)>
constexpr Field<ClassOf<Member>> text(std::string_view name) {
  using O = ClassOf<Member>;
  return {name,
          [](O& options, std::string_view value) {
            options.*Member = Parse(trim(value) == "\"\"" ? "" : value);  // as to_yaml writes nothing
          },
          [](const O& options) { return options.*Member; }};
}

// Lines of text with ';' between them, in a vector.
template <auto Member>
constexpr Field<ClassOf<Member>> lines(std::string_view name) {
  using O = ClassOf<Member>;
  return {name, [](O& options, std::string_view text) { options.*Member = parse_lines(text); },
          [](const O& options) {
            std::string out;
            for (const std::string& line : options.*Member) out.append(out.empty() ? "" : ";").append(line);
            return out;
          }};
}

// A field of the part that a member is. Make: what makes the part's field, as number<&Part::workers, 1> does.
template <auto Member, auto Make>
constexpr Field<ClassOf<Member>> within(std::string_view name) {
  using O = ClassOf<Member>;
  return {name, [](O& options, std::string_view text) { Make("").set(options.*Member, text); },
          [](const O& options) { return Make("").get(options.*Member); }};
}

// Parses for `text`: letters, digits, '_' and '-', at least one.
std::string parse_word(std::string_view text);
// A name of at most 128 letters, digits, '_', '-' and '.', or nothing.
std::string parse_name(std::string_view text);
// Names with commas between them; '+' does too, where a comma means something else.
std::string parse_names(std::string_view text);

}  // namespace fields

template <class Table>
std::vector<std::string_view> field_names(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& field : table) names.push_back(field.name);
  return names;
}

// Throws Error: unknown_option (suggests the nearest), invalid_argument (names the option).
template <class Table, class Options>
void set_field(const Table& table, Options& options, std::string_view key, std::string_view value) {
  const auto field = std::ranges::find(table, key, &Field<Options>::name);
  if (field == table.end()) throw Error(Errc::unknown_option, unknown_name("option", key, field_names(table)));
  try {
    field->set(options, value);
  } catch (const Error& error) {
    throw error.in(key);
  }
}

// "key: value" a line, in the table's order.
template <class Table, class Options>
std::string fields_to_yaml(const Table& table, const Options& options) {
  std::string out;
  for (const auto& field : table) {
    const std::string value = field.get(options);
    out.append(field.name).append(": ").append(value.empty() ? "\"\"" : value).append("\n");
  }
  return out;
}

// Throws Error(invalid_argument) for values that a setter would refuse.
template <class Table, class Options>
void check_fields(const Table& table, const Options& options) {
  for (const auto& field : table) {
    Options copy;
    try {
      field.set(copy, field.get(options));
    } catch (const Error& error) {
      throw error.in(field.name);
    } catch (const std::out_of_range&) {  // an enumerator that does not exist
      throw Error(Errc::invalid_argument, std::string(field.name) + ": not a value of its type");
    }
  }
}

}  // namespace penstock::base
