#include "base/config.hpp"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/option_fields.hpp"
#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::base::fields {

template <>
struct EnumNames<WhenFull> {
  static constexpr std::array<std::string_view, 3> names{"block", "discard_newest", "discard_oldest"};
};
template <>
struct EnumNames<Delivery> {
  static constexpr std::array<std::string_view, 2> names{"every", "latest"};
};
template <>
struct EnumNames<DataPlane> {
  static constexpr std::array<std::string_view, 4> names{"automatic", "shm", "tcp", "ucx"};
};
template <>
struct EnumNames<Acknowledge> {
  static constexpr std::array<std::string_view, 3> names{"memory", "replicated", "durable"};
};

template <>
struct EnumNames<Wait> {
  static constexpr std::array<std::string_view, 4> names{"block", "drop", "latest", "automatic"};
};

template <>
struct EnumNames<MeshFormat> {
  static constexpr std::array<std::string_view, 5> names{"auto", "offset64", "cdf5", "netcdf4", "netcdf4_classic"};
};
template <>
struct EnumNames<MeshIntegers> {
  static constexpr std::array<std::string_view, 3> names{"as_given", "32", "64"};
};

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

}  // namespace penstock::base::fields

namespace penstock {
namespace {

using base::Field;
using namespace base::fields;

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

// Which ends of streams take an option, one bit each: a new engine is a name, and its two ends.
constexpr std::array<std::string_view, 5> engine_names{"direct", "pool", "insitu", "file", "space"};
enum Ends : std::uint16_t {
  direct_writer = 1,
  direct_reader = 2,
  pool_writer = 4,
  pool_reader = 8,
  insitu_writer = 16,
  insitu_reader = 32,
  file_writer = 64,
  file_reader = 128,
  space_writer = 256,
  space_reader = 512,
  writers = direct_writer | pool_writer | insitu_writer | file_writer | space_writer,
  readers = direct_reader | pool_reader | insitu_reader | file_reader | space_reader,
  all_ends = writers | readers,
  // Those whose readers are programs that run at the same time, and hold the writer.
  live_writers = direct_writer | insitu_writer,
  queue_writers = live_writers | pool_writer,
  step_writers = queue_writers | file_writer,
  either_remote = direct_writer | direct_reader | pool_writer | pool_reader,
  either_in_pool = pool_writer | pool_reader | space_writer | space_reader,
  either_in_files = file_writer | file_reader,
  keeping_writers = pool_writer | file_writer,
  keeping_readers = pool_reader | file_reader | space_reader,
  pooled_writers = pool_writer | space_writer,
};

struct StreamField : Field<StreamOptions> {
  Ends ends = all_ends;
  std::string_view elsewhere = {};  // a value that says what the other ends do anyway
};

using O = StreamOptions;
constexpr std::array stream_fields{
    StreamField{text<&O::engine, parse_word>("engine")},
    StreamField{choice<&O::data_plane>("data_plane"), either_remote},
    StreamField{number<&O::queue_steps, 1>("queue_steps"), step_writers},
    StreamField{size<&O::queue_bytes, 1>("queue_bytes"), queue_writers},
    StreamField{choice<&O::when_full>("when_full"), queue_writers},
    StreamField{number<&O::rendezvous_readers>("rendezvous_readers"), live_writers, "0"},
    StreamField{number<&O::reserve_steps>("reserve_steps"), direct_writer},
    StreamField{boolean<&O::keep_first_step>("keep_first_step"), direct_writer},
    StreamField{boolean<&O::min_max>("min_max"), writers},
    StreamField{size<&O::step_bytes>("step_bytes"), step_writers},
    StreamField{choice<&O::delivery>("delivery"), readers},
    StreamField{text<&O::pool, parse_name>("pool"), either_in_pool},
    StreamField{choice<&O::acknowledge>("acknowledge"), pooled_writers},
    StreamField{size<&O::stripe_bytes, 4096>("stripe_bytes"), pool_writer},
    StreamField{number<&O::retain_steps>("retain_steps"), pooled_writers},
    StreamField{size<&O::retain_bytes>("retain_bytes"), pool_writer},
    StreamField{number<&O::retain_age_ms>("retain_age_ms"), pool_writer},
    StreamField{text<&O::retain_for, parse_names>("retain_for"), pooled_writers},
    StreamField{text<&O::resume, parse_resume>("resume"), keeping_writers},
    StreamField{text<&O::group, parse_name>("group"), static_cast<Ends>(pool_reader | space_reader)},
    StreamField{text<&O::start, parse_start>("start"), keeping_readers},
    StreamField{text<&O::folder, parse_line>("folder"), either_in_files},
    StreamField{number<&O::compression, 0, 9>("compression"), file_writer},
    StreamField{boolean<&O::sync>("sync"), file_writer},
    StreamField{text<&O::trace, parse_line>("trace")},
    StreamField{number<&O::spin_us>("spin_us")},
    StreamField{number<&O::open_timeout_ms>("open_timeout_ms")},
    StreamField{number<&O::step_timeout_ms>("step_timeout_ms")},
    StreamField{number<&O::close_timeout_ms>("close_timeout_ms")},
};

using C = CoprocessorOptions;
constexpr std::array coprocessor_fields{
    choice<&C::wait>("wait"),
    number<&C::every, 1>("every"),
    lines<&C::pipelines>("pipelines"),
    text<&C::output, parse_line>("output"),
};

using M = MeshOptions;
constexpr std::array mesh_fields{
    text<&M::database, parse_name>("database"),
    text<&M::path, parse_line>("path"),
    choice<&M::format>("format"),
    choice<&M::integers>("integers"),
    number<&M::compression, 0, 9>("compression"),
    number<&M::states_per_file>("states_per_file"),
    boolean<&M::shared>("shared"),
    boolean<&M::sync>("sync"),
    text<&M::resume, parse_resume_time>("resume"),
};

}  // namespace

std::string to_yaml(const StreamOptions& options) { return base::fields_to_yaml(stream_fields, options); }

void set_option(StreamOptions& options, const std::string& key, const std::string& value) {
  base::set_field(stream_fields, options, key, value);
}

std::string coprocessor_options_to_yaml(const CoprocessorOptions& options) {
  return base::fields_to_yaml(coprocessor_fields, options);
}

void set_option(CoprocessorOptions& options, const std::string& key, const std::string& value) {
  base::set_field(coprocessor_fields, options, key, value);
}

std::string mesh_options_to_yaml(const MeshOptions& options) { return base::fields_to_yaml(mesh_fields, options); }

void set_option(MeshOptions& options, const std::string& key, const std::string& value) {
  base::set_field(mesh_fields, options, key, value);
}

namespace base {
namespace {

constexpr std::array<std::string_view, 7> file_keys{"streams", "coprocessing", "meshes", "directory",
                                                    "listen",  "log",          "trace"};
constexpr std::string_view every_stream = "*";

// Where the options of one kind stand: their section of the file, and how variables of the environment begin.
template <class Options>
struct Place;
template <>
struct Place<StreamOptions> {
  static constexpr const char *section = "streams", *what = "a stream", *variable = "PENSTOCK_STREAM_";
  static constexpr std::string_view list = "";  // the option that takes several values
};
template <>
struct Place<CoprocessorOptions> {
  static constexpr const char *section = "coprocessing", *what = "a channel", *variable = "PENSTOCK_COPROCESSING_";
  static constexpr std::string_view list = "pipelines";
};
template <>
struct Place<MeshOptions> {
  static constexpr const char *section = "meshes", *what = "a mesh", *variable = "PENSTOCK_MESH_";
  static constexpr std::string_view list = "";
};

[[noreturn]] void fail(const std::string& file, const YAML::Node& node, Errc code, const std::string& message) {
  throw Error(code, file + ":" + std::to_string(node.Mark().line + 1) + ": " + message);
}

// Runs body; its errors name the place in the file.
template <class Body>
void at(const std::string& file, const YAML::Node& node, Body body) {
  try {
    body();
  } catch (const Error& error) {
    fail(file, node, error.code(), error.what());
  }
}

// A scalar's text; YAML's own types do not matter, because the field decides.
std::string scalar(const std::string& file, const YAML::Node& node, std::string_view what) {
  if (!node.IsScalar()) fail(file, node, Errc::invalid_argument, std::string(what) + " takes one value");
  return node.Scalar();
}

// Calls body(key, value, key's node) for each entry of a map; a key may come only once, which yaml-cpp does not check.
template <class Body>
void for_each_entry(const std::string& file, const YAML::Node& map, std::string_view what, Body body) {
  if (map.IsNull()) return;
  if (!map.IsMap()) fail(file, map, Errc::invalid_argument, std::string(what) + " must be a map of keys and values");
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string key = scalar(file, entry.first, "a key");
    if (!seen.insert(key).second) fail(file, entry.first, Errc::invalid_argument, "'" + key + "' is given twice");
    body(key, entry.second, entry.first);
  }
}

YAML::Node load(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error(Errc::not_found, "cannot read the configuration file " + file);
  try {
    return YAML::Load(in);
  } catch (const YAML::Exception& error) {
    throw Error(Errc::invalid_argument, file + ":" + std::to_string(error.mark.line + 1) + ": " + error.msg);
  }
}

// One value, or a list with ';' between its items.
std::string list(const std::string& file, const YAML::Node& node, std::string_view what) {
  if (!node.IsSequence()) return scalar(file, node, what);
  std::string text;
  for (const auto& item : node) text.append(text.empty() ? "" : ";").append(scalar(file, item, what));
  return text;
}

template <class Options>
void apply_node(Options& options, const std::string& file, const YAML::Node& node) {
  if (node.IsScalar()) {
    at(file, node, [&] { apply_text(options, node.Scalar()); });
    return;
  }
  for_each_entry(
      file, node, Place<Options>::what, [&](const std::string& key, const YAML::Node& value, const YAML::Node& place) {
        const std::string text = Place<Options>::list == key ? list(file, value, key) : scalar(file, value, key);
        at(file, place, [&] { set_option(options, key, text); });
      });
}

// Reads a section and keeps nothing: a mistake anywhere in it is reported at once.
template <class Options>
void check_section(const std::string& file, const YAML::Node& section, const std::string& key) {
  for_each_entry(file, section, key, [&](const std::string&, const YAML::Node& node, const YAML::Node&) {
    Options scratch;
    apply_node(scratch, file, node);
  });
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The first that is not empty.
std::string first_of(std::initializer_list<std::string> candidates) {
  for (const std::string& candidate : candidates)
    if (!candidate.empty()) return candidate;
  return "";
}

std::string default_directory() {
  const std::string runtime = environment("XDG_RUNTIME_DIR");
  return runtime.empty() ? "/tmp/penstock-" + std::to_string(getuid()) : runtime + "/penstock";
}

}  // namespace

std::string find_config_file(const std::string& named_in_code) {
  const std::string named = first_of({named_in_code, environment("PENSTOCK_CONFIG")});
  if (!named.empty()) return named;
  std::error_code ignored;
  return std::filesystem::exists("penstock.yaml", ignored) ? "penstock.yaml" : "";
}

namespace {

std::string variable_name(std::string name, std::string_view of) {
  for (const char c : of) {
    const auto byte = static_cast<unsigned char>(c);
    name.push_back(byte < 128 && std::isalnum(byte) ? static_cast<char>(std::toupper(byte)) : '_');
  }
  return name;
}

// Calls set(key, value) for each part of "word,key=value,key=value"; the first part, without a key, is the value of `alone`.
template <class Set>
void for_each_part(std::string_view text, const char* alone, Set set) {
  bool first = true;
  for (const std::string_view part : split(text, ',')) {
    const auto equals = part.find('=');
    if (equals != std::string_view::npos) {
      set(std::string(trim(part.substr(0, equals))), std::string(trim(part.substr(equals + 1))));
    } else if (first) {
      set(alone, std::string(part));
    } else {
      throw Error(Errc::invalid_argument, "'" + std::string(part) + "' is not key=value");
    }
    first = false;
  }
}

}  // namespace

std::string environment_name(std::string_view stream) { return variable_name(Place<StreamOptions>::variable, stream); }

void apply_text(StreamOptions& options, std::string_view text, std::optional<Side> side) {
  for_each_part(text, "engine",
                [&](const std::string& key, const std::string& value) { set_option(options, key, value, side); });
}

void apply_text(CoprocessorOptions& options, std::string_view text) {
  for_each_part(text, "wait",
                [&](const std::string& key, const std::string& value) { set_option(options, key, value); });
}

void apply_text(MeshOptions& options, std::string_view text) {
  for_each_part(text, "database",
                [&](const std::string& key, const std::string& value) { set_option(options, key, value); });
}

StreamOptions from_yaml(std::string_view text, const std::function<void(const Error&)>& refused) {
  StreamOptions options;
  for (const std::string_view line : split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    try {
      set_option(options, std::string(trim(line.substr(0, colon))), std::string(trim(line.substr(colon + 1))));
    } catch (const Error& error) {
      if (!refused) throw;
      refused(error);
    }
  }
  return options;
}

std::vector<std::string_view> stream_option_names() { return field_names(stream_fields); }
std::vector<std::string_view> mesh_option_names() { return field_names(mesh_fields); }

void check(const StreamOptions& options) { check_fields(stream_fields, options); }
void check_coprocessor(const CoprocessorOptions& options) { check_fields(coprocessor_fields, options); }
void check_mesh(const MeshOptions& options) { check_fields(mesh_fields, options); }

namespace {

template <class Options>
Options overlay_file(std::string_view name, Options options, const std::string& config_file) {
  if (config_file.empty()) return options;
  const YAML::Node root = load(config_file);
  const YAML::Node section = root.IsMap() ? root[Place<Options>::section] : YAML::Node();
  for (const std::string_view entry : {every_stream, name}) {
    if (!section.IsDefined() || !section.IsMap()) break;
    const YAML::Node node = section[std::string(entry)];
    if (node.IsDefined()) apply_node(options, config_file, node);
  }
  return options;
}

template <class Options>
Options overlay_environment(std::string_view name, Options options) {
  const std::string variable = variable_name(Place<Options>::variable, name);
  if (const std::string text = environment(variable.c_str()); !text.empty()) {
    try {
      apply_text(options, text);
    } catch (const Error& error) {
      throw error.in(variable);
    }
  }
  return options;
}

// The end that a side of this engine is; none of an engine that the table does not know, which is refused elsewhere.
std::optional<Ends> end_of(std::string_view engine, Side side) {
  for (std::size_t i = 0; i < engine_names.size(); ++i)
    if (engine_names[i] == engine) return static_cast<Ends>(1 << (2 * i + (side == Side::writer ? 0 : 1)));
  return std::nullopt;
}

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

// Calls found(field) for what is set in `options` other than in `before`, is of that end's side, and has no effect there.
template <class Found>
void for_each_idle(const StreamOptions& options, const StreamOptions& before, Ends end, Found found) {
  const Ends side = (end & writers) != 0 ? writers : readers;
  for (const auto& field : stream_fields) {
    if ((field.ends & end) != 0 || (field.ends & side) == 0) continue;
    if (const auto value = field.get(options); value != field.get(before) && value != field.elsewhere) found(field);
  }
}

[[noreturn]] void refuse(const StreamField& field, const std::string& what) {
  throw Error(Errc::invalid_argument,
              std::string(field.name) + " is an option of " + describe(field.ends) + ", and this is " + what);
}

// For overlays that show whether they name an engine: no engine's name is empty.
StreamOptions without_engine(StreamOptions options) {
  options.engine.clear();
  return options;
}

Ends ends_of(Side side) { return side == Side::writer ? writers : readers; }

}  // namespace

StreamOptions options_in_effect(std::string_view stream, Side side, const StreamOptions& in_code,
                                const std::string& config_file) {
  const StreamOptions in_file = overlay_file(stream, without_engine(in_code), config_file);
  StreamOptions all = overlay_environment(stream, without_engine(in_file));
  const std::string variable = environment_name(stream);
  const bool by_environment = !all.engine.empty();
  const bool by_file = !by_environment && !in_file.engine.empty();
  if (!by_environment) all.engine = by_file ? in_file.engine : in_code.engine;
  const auto end = end_of(all.engine, side);
  if (!end) return all;

  const std::string what = "a stream of engine " + all.engine;
  std::string idle;  // without effect where the configuration chose the engine, or in a file that serves others
  const auto note = [&](const StreamField& field) { idle.append(idle.empty() ? "" : ",").append(field.name); };
  for_each_idle(in_code, {}, *end, [&](const StreamField& field) {
    // An engine chosen at run time must not need a change of the code.
    if (!by_environment && !by_file) refuse(field, what);
    note(field);
  });
  for_each_idle(in_file, in_code, *end, note);
  for_each_idle(all, in_file, *end, [&](const StreamField& field) {
    try {
      refuse(field, what);
    } catch (const Error& error) {
      throw error.in(variable);
    }
  });
  const std::string chosen_by = by_environment ? variable : by_file ? config_file : "code or default";
  if (!idle.empty())
    log(Level::warn, "options have no effect with this engine",
        {{"stream", std::string(stream)}, {"engine", all.engine}, {"engine_from", chosen_by}, {"options", idle}});
  return all;
}

StreamOptions effective(StreamOptions options, Side side) {
  const auto end = end_of(options.engine, side);
  if (!end) return options;
  const StreamOptions plain;
  for (const auto& field : stream_fields)
    if ((field.ends & *end) == 0) field.set(options, field.get(plain));
  return options;
}

void set_option(StreamOptions& options, const std::string& key, const std::string& value, std::optional<Side> side) {
  penstock::set_option(options, key, value);
  const auto field = std::ranges::find(stream_fields, key, &StreamField::name);
  if (!side || (field->ends & ends_of(*side)) != 0) return;
  refuse(*field, *side == Side::writer ? "a writer" : "a reader");
}

void read_settings_file(const std::string& file,
                        const std::function<void(const std::string&, const std::string&)>& set) {
  for_each_entry(file, load(file), "the configuration",
                 [&](const std::string& key, const YAML::Node& value, const YAML::Node& place) {
                   const std::string text = value.IsNull() ? "" : list(file, value, key);
                   at(file, place, [&] { set(key, text); });
                 });
}

StreamOptions options_for_stream(std::string_view stream, StreamOptions defaults, const std::string& config_file) {
  return overlay_environment(stream, overlay_file(stream, std::move(defaults), config_file));
}

CoprocessorOptions options_for_coprocessor(std::string_view channel, CoprocessorOptions defaults,
                                           const std::string& config_file) {
  return overlay_environment(channel, overlay_file(channel, std::move(defaults), config_file));
}

MeshOptions options_for_mesh(std::string_view region, MeshOptions defaults, const std::string& config_file) {
  return overlay_environment(region, overlay_file(region, std::move(defaults), config_file));
}

Settings settings(const ContextOptions& options) {
  Settings result;
  result.config_file = find_config_file(options.config_file);
  std::string directory;
  std::string listen;
  if (!result.config_file.empty()) {
    const std::string& file = result.config_file;
    for_each_entry(file, load(file), "the configuration",
                   [&](const std::string& key, const YAML::Node& value, const YAML::Node& place) {
                     if (key == "streams") {
                       check_section<StreamOptions>(file, value, key);
                     } else if (key == "coprocessing") {
                       check_section<CoprocessorOptions>(file, value, key);
                     } else if (key == "meshes") {
                       check_section<MeshOptions>(file, value, key);
                     } else if (key == "directory") {
                       directory = scalar(file, value, key);
                     } else if (key == "listen") {
                       listen = scalar(file, value, key);
                     } else if (key == "log") {
                       result.log = scalar(file, value, key);
                       at(file, place, [&] { parse_level(result.log); });
                     } else if (key == "trace") {
                       result.trace = scalar(file, value, key);
                     } else {
                       fail(file, place, Errc::unknown_option, unknown_name("key", key, file_keys));
                     }
                   });
  }
  result.directory = first_of({options.directory, environment("PENSTOCK_DIRECTORY"), directory, default_directory()});
  result.listen = first_of({options.listen, environment("PENSTOCK_LISTEN"), listen});
  result.trace = first_of({environment("PENSTOCK_TRACE"), result.trace});
  return result;
}

}  // namespace base
}  // namespace penstock
