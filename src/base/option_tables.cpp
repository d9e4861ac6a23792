#include "base/option_tables.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::base::fields {

std::string parse_word(std::string_view text) {
  const std::string_view word = trim(text);
  if (word.empty()) throw Error(Errc::invalid_argument, "a name is missing");
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  if (!std::ranges::all_of(word, fits))  // it goes into YAML and messages as it is
    throw Error(Errc::invalid_argument,
                "'" + std::string(word.substr(0, 40)) + "' is not a name: use letters, digits, '_' and '-'");
  return std::string(word);
}

std::string parse_name(std::string_view text) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  };
  const std::string_view name = trim(text);
  if (name.size() > 128 || !std::ranges::all_of(name, fits))
    throw Error(Errc::invalid_argument, "'" + std::string(name.substr(0, 40)) +
                                            "' is not a name: use at most 128 letters, digits, '_', '-' and '.'");
  return std::string(name);
}

std::string parse_names(std::string_view text) {
  std::string plain(trim(text)), out;
  std::ranges::replace(plain, '+', ',');
  if (plain.empty()) return out;
  for (const std::string_view part : split(plain, ',')) {
    const std::string name = parse_name(part);
    if (name.empty()) throw Error(Errc::invalid_argument, "a name is missing");
    out.append(out.empty() ? "" : ",").append(name);
  }
  return out;
}

std::string parse_line(std::string_view text) {
  const std::string_view line = trim(text);
  if (line.find_first_of("\n\r") != std::string_view::npos || line.find('\0') != std::string_view::npos)
    throw Error(Errc::invalid_argument, "it must be one line");
  return std::string(line);
}

std::vector<std::string> parse_lines(std::string_view text) {
  std::vector<std::string> out;
  const std::string lines = parse_line(text);
  if (lines.empty() || lines == "\"\"") return out;  // as to_yaml writes nothing
  for (const std::string_view line : split(lines, ';')) {
    if (line.empty()) throw Error(Errc::invalid_argument, "'" + lines.substr(0, 40) + "' has an empty item");
    out.emplace_back(line);
  }
  return out;
}

std::string parse_start(std::string_view text) {
  const std::string_view start = base::trim(text);
  if (start == "oldest" || start == "newest") return std::string(start);
  try {
    return std::to_string(base::parse_integer(start, 0, INT64_MAX));
  } catch (const Error&) {
    throw Error(Errc::invalid_argument,
                "'" + std::string(start.substr(0, 40)) + "' is neither oldest, newest nor a step");
  }
}

std::string parse_resume(std::string_view text) {
  const std::string_view resume = base::trim(text);
  if (resume == "no" || resume == "append") return std::string(resume);
  try {
    return std::to_string(base::parse_integer(resume, 0, INT64_MAX));
  } catch (const Error&) {
    throw Error(Errc::invalid_argument, "'" + std::string(resume.substr(0, 40)) + "' is neither no, append nor a step");
  }
}

std::string parse_resume_time(std::string_view text) {
  const std::string resume(base::trim(text));
  if (resume != "no" && resume != "append") base::parse_real(resume);
  return resume;
}

}  // namespace penstock::base::fields

namespace penstock {
namespace {

using base::Place;

// `fixed`, which is no field: it is about what code gives, and is not printed back.
template <class Options>
void set_fixed(Options& options, std::string_view names) {
  options.fixed = base::fixed_names(names, base::field_names(Place<Options>::table));
}

template <class Options>
void set_in_code(Options& options, const std::string& key, const std::string& value) {
  if (key == "fixed") set_fixed(options, value);
  else base::set_field(Place<Options>::table, options, key, value);
  if constexpr (requires { options.given; }) base::note_given(options.given, key);
}

// Options from the text that to_yaml writes. A line that set_option refuses throws, or is given to `refused` and skipped.
template <class Options>
Options read_yaml(std::string_view text, const std::function<void(const Error&)>& refused = {}) {
  Options options;
  for (const std::string_view line : base::split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    try {
      set_option(options, std::string(base::trim(line.substr(0, colon))),
                 std::string(base::trim(line.substr(colon + 1))));
    } catch (const Error& error) {
      if (!refused) throw;
      refused(error);
    }
  }
  if constexpr (requires { options.given; }) options.given.clear();
  return options;
}

}  // namespace

std::string to_yaml(const StreamOptions& options) { return base::fields_to_yaml(base::tables::stream, options); }
std::string coprocessor_options_to_yaml(const CoprocessorOptions& options) {
  return base::fields_to_yaml(base::tables::coprocessor, options);
}
std::string mesh_options_to_yaml(const MeshOptions& options) {
  return base::fields_to_yaml(base::tables::mesh, options);
}

StreamOptions from_yaml(std::string_view text) { return read_yaml<StreamOptions>(text); }
CoprocessorOptions coprocessor_options_from_yaml(std::string_view text) { return read_yaml<CoprocessorOptions>(text); }
MeshOptions mesh_options_from_yaml(std::string_view text) { return read_yaml<MeshOptions>(text); }

void set_option(StreamOptions& options, const std::string& key, const std::string& value) {
  set_in_code(options, key, value);
}
void set_option(CoprocessorOptions& options, const std::string& key, const std::string& value) {
  base::set_field(base::tables::coprocessor, options, key, value);
}
void set_option(MeshOptions& options, const std::string& key, const std::string& value) {
  base::set_field(base::tables::mesh, options, key, value);
}
void set_option(PoolOptions& options, const std::string& key, const std::string& value) {
  set_in_code(options, key, value);
}

namespace base {

StreamOptions from_yaml(std::string_view text, const std::function<void(const Error&)>& refused) {
  return read_yaml<StreamOptions>(text, refused);
}

std::vector<std::string_view> stream_option_names() { return field_names(tables::stream); }
std::vector<std::string_view> mesh_option_names() { return field_names(tables::mesh); }

void check(const StreamOptions& options) {
  check_fields(tables::stream, options);
  StreamOptions copy;
  set_fixed(copy, options.fixed);
}
void check_coprocessor(const CoprocessorOptions& options) { check_fields(tables::coprocessor, options); }
void check_mesh(const MeshOptions& options) { check_fields(tables::mesh, options); }
void check_pool(const PoolOptions& options) {
  check_fields(tables::pool, options);
  PoolOptions copy;
  set_fixed(copy, options.fixed);
}

namespace {

std::string describe(Ends ends) {
  std::string text = (ends & writers) == 0 ? "readers" : (ends & readers) == 0 ? "writers" : "streams";
  if ((ends & writers) == writers || (ends & readers) == readers) return text;
  std::string_view before = " of engine ";
  for (std::size_t i = 0; i < engine_names.size(); ++i) {
    if ((ends & (3 << (2 * i))) == 0) continue;
    text.append(std::exchange(before, " or ")).append(engine_names[i]);
  }
  return text;
}

}  // namespace

// The end that a side of this engine is; none of an engine that the table does not know, which is refused elsewhere.
std::optional<Ends> end_of(std::string_view engine, Side side) {
  for (std::size_t i = 0; i < engine_names.size(); ++i)
    if (engine_names[i] == engine) return static_cast<Ends>(1 << (2 * i + (side == Side::writer ? 0 : 1)));
  return std::nullopt;
}

void refuse(const StreamField& field, const std::string& what) {
  throw Error(Errc::invalid_argument,
              std::string(field.name) + " is an option of " + describe(field.ends) + ", and this is " + what);
}

void set_option(StreamOptions& options, const std::string& key, const std::string& value, std::optional<Side> side) {
  penstock::set_option(options, key, value);
  const auto field = std::ranges::find(tables::stream, key, &StreamField::name);
  if (!side || field == tables::stream.end() || (field->ends & (*side == Side::writer ? writers : readers)) != 0)
    return;
  refuse(*field, *side == Side::writer ? "a writer" : "a reader");
}

std::string fixed_names(std::string_view text, std::span<const std::string_view> options) {
  const std::string fixed = fields::parse_names(text);
  for (const std::string_view name : split(fixed, ','))
    if (!name.empty() && std::ranges::find(options, name) == options.end())
      throw Error(Errc::unknown_option, "fixed: " + unknown_name("option", name, options));
  return fixed;
}

void note_given(std::string& given, std::string_view name) {
  if (!is_among(given, name)) given.append(given.empty() ? "" : ",").append(name);
}

bool is_among(std::string_view names, std::string_view name) {
  const auto all = split(names, ',');
  return std::ranges::find(all, name) != all.end();
}

bool is_given(const StreamOptions& options, std::string_view option) {
  const auto field = std::ranges::find(tables::stream, option, &StreamField::name);
  if (field == tables::stream.end()) throw Error(Errc::internal, "no option " + std::string(option));
  return is_among(options.given, option) || field->get(options) != field->get(StreamOptions());
}

void set_option(ContextOptions& options, const std::string& key, const std::string& value) {
  if (key == "fixed") options.fixed = fixed_names(value, field_names(tables::context));
  else set_field(tables::context, options, key, value);
}

StreamOptions effective(StreamOptions options, Side side) {
  const auto end = end_of(options.engine, side);
  if (!end) return options;
  const StreamOptions plain;
  for (const auto& field : tables::stream)
    if ((field.ends & *end) == 0) field.set(options, field.get(plain));
  return options;
}

void for_each_part(std::string_view text, std::string_view alone,
                   const std::function<void(const std::string&, const std::string&)>& set) {
  bool first = true;
  for (const std::string_view part : split(text, ',')) {
    const auto equals = part.find('=');
    if (equals != std::string_view::npos) {
      set(std::string(trim(part.substr(0, equals))), std::string(trim(part.substr(equals + 1))));
    } else if (first && !alone.empty()) {
      set(std::string(alone), std::string(part));
    } else {
      throw Error(Errc::invalid_argument, "'" + std::string(part) + "' is not key=value");
    }
    first = false;
  }
}

void apply_text(StreamOptions& options, std::string_view text, std::optional<Side> side) {
  for_each_part(text, Place<StreamOptions>::alone,
                [&](const std::string& key, const std::string& value) { set_option(options, key, value, side); });
}

void apply_text(MeshOptions& options, std::string_view text) {
  for_each_part(text, Place<MeshOptions>::alone,
                [&](const std::string& key, const std::string& value) { set_option(options, key, value); });
}

}  // namespace base
}  // namespace penstock
