#include "base/config.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/config_file.hpp"
#include "base/log.hpp"
#include "base/option_tables.hpp"
#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::base {
namespace {

constexpr const char* every_name = "*";
constexpr std::string_view fixed_in_code = "fixed in code";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string variable_name(std::string name, std::string_view of) {
  for (const char c : of) {
    const auto byte = static_cast<unsigned char>(c);
    name.push_back(byte < 128 && std::isalnum(byte) ? static_cast<char>(std::toupper(byte)) : '_');
  }
  return name;
}

// ---------------------------------------------------------------------------------------------------------- overlay

template <class Options>
constexpr ConfigSection section_of{Place<Options>::section, Place<Options>::what, Place<Options>::list,
                                   Place<Options>::alone};

// Options of one kind, and who gave each: code first, then whoever calls set.
template <class Options>
class Overlay {
 public:
  explicit Overlay(Options in_code) : options_(std::move(in_code)), given_(table().size()) {
    const Options plain;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (fixes(table()[i].name)) given_[i] = {Source::code, std::string(fixed_in_code)};
      else if (gives(table()[i].name) || table()[i].get(options_) != table()[i].get(plain))
        given_[i] = {Source::code, "code"};
    }
  }

  // Throws as set_option does; what code fixes stays.
  void set(const std::string& key, const std::string& value, Source source, const std::string& where) {
    if (key == "fixed") throw Error(Errc::invalid_argument, "fixed is given in code only");
    Options changed = options_;
    set_field(table(), changed, key, value);
    const auto at = std::ranges::find(table(), key, [](const auto& field) { return field.name; }) - table().begin();
    const auto& field = table()[static_cast<std::size_t>(at)];
    if (!fixes(key)) {
      options_ = std::move(changed);
      if constexpr (requires { options_.given; }) note_given(options_.given, key);
      given_[static_cast<std::size_t>(at)] = {source, where};
    } else if (field.get(changed) != field.get(options_)) {
      ignored_.emplace_back(key, where);
    }
  }

  // Which nobody has named, also where automatic is fixed in code. source: whose word it counts as.
  void choose_engine(const std::string& engine, Source source, const std::string& where) {
    options_.engine = engine;
    given_[0] = {source, where};
  }

  const Options& options() const { return options_; }
  struct Given {
    Source source = Source::builtin;
    std::string where = "default";
  };
  const Given& given(std::size_t field) const { return given_[field]; }

  std::vector<OptionValue> describe() const {
    std::vector<OptionValue> all;
    for (std::size_t i = 0; i < given_.size(); ++i)
      all.push_back({std::string(table()[i].name), table()[i].get(options_), given_[i].source, given_[i].where});
    return all;
  }

  void warn_of_ignored(std::string_view what, std::string_view name) const {
    for (const auto& [option, where] : ignored_)
      log(Level::warn, "an option is fixed in code and stays as it is",
          {{what, std::string(name)}, {"option", option}, {"ignored", where}});
  }

 private:
  static const auto& table() { return Place<Options>::table; }
  bool fixes(std::string_view option) const {
    if constexpr (requires { options_.fixed; }) return is_among(options_.fixed, option);
    else return false;
  }
  bool gives(std::string_view option) const {
    if constexpr (requires { options_.given; }) return is_among(options_.given, option);
    else return false;
  }

  Options options_;
  std::vector<Given> given_;                                  // by field
  std::vector<std::pair<std::string, std::string>> ignored_;  // option, and where it was given
};

// Who asks for options: one that opens what they are for, or one that only looks.
enum class Asks : std::uint8_t { to_open, to_look };

// A variable of the environment is for one name. Throws Error(invalid_argument) where another name in the file, or one that this
// process has opened, gives the same variable.
template <class Options>
void require_one_name(const std::string& variable, const std::string& name, const ConfigFile* file, Asks asks) {
  const auto refuse_other = [&](const std::string& other, const std::string& where) {
    throw Error(Errc::invalid_argument, variable + " is set, and may be for '" + name + "' or for '" + other + "'" +
                                            where + ": give one of them another name, or use penstock.yaml");
  };
  if (file)
    for (const auto& entry : file->entries(Place<Options>::section))
      if (entry.name != name && entry.name != every_name &&
          variable_name(Place<Options>::variable, entry.name) == variable)
        refuse_other(entry.name, " (" + entry.where + ")");
  if (asks == Asks::to_look) return;
  static std::mutex mutex;  // guards `users`
  static std::map<std::string, std::string> users;
  const std::lock_guard lock(mutex);
  const auto& user = users.try_emplace(variable, name).first->second;
  if (user != name) refuse_other(user, ", which this process has opened");
}

template <class Options>
void add_variable(Overlay<Options>& overlay, const std::string& variable) {
  try {
    for_each_part(environment(variable.c_str()), Place<Options>::alone,
                  [&](const std::string& key, const std::string& value) {
                    overlay.set(key, value, Source::environment, variable);
                  });
  } catch (const Error& error) {
    throw error.in(variable);
  }
}

template <class Options>
Overlay<Options> overlaid(std::string_view of, Options in_code, const std::string& config_file, Asks asks) {
  const std::string name(of);
  Overlay<Options> overlay(std::move(in_code));
  std::optional<ConfigFile> file;
  if (!config_file.empty()) file.emplace(config_file);
  const auto from_file = [&](const std::string& key, const std::string& value, const std::string& where) {
    overlay.set(key, value, Source::file, where);
  };
  if (file) file->read_entry(section_of<Options>, every_name, from_file);
  if (file && name != every_name) file->read_entry(section_of<Options>, name, from_file);
  const char* for_all = Place<Options>::variable_of_all;
  if (for_all && !environment(for_all).empty()) add_variable(overlay, for_all);
  const std::string variable = variable_name(Place<Options>::variable, name);
  if (!environment(variable.c_str()).empty()) {
    require_one_name<Options>(variable, name, file ? &*file : nullptr, asks);
    add_variable(overlay, variable);
  }
  return overlay;
}

// ------------------------------------------------------------------------------------- options without effect

const StreamField* idle_field(const Overlay<StreamOptions>& all, std::size_t i, Ends end) {
  static const StreamOptions plain;
  const StreamField& field = tables::stream[i];
  const Ends side = (end & writers) != 0 ? writers : readers;
  if ((field.ends & end) != 0 || (field.ends & side) == 0) return nullptr;
  const auto value = field.get(all.options());
  return value != field.get(plain) && value != field.elsewhere ? &field : nullptr;
}

}  // namespace

std::string environment_name(std::string_view stream) { return variable_name(Place<StreamOptions>::variable, stream); }

std::string writers_engine(const std::string& engine) { return engine == automatic_engine ? "direct" : engine; }

StreamOptions options_in_effect(std::string_view stream, Side side, const StreamOptions& in_code,
                                const std::string& config_file, const std::string& found) {
  auto all = overlaid(stream, in_code, config_file, Asks::to_open);
  all.warn_of_ignored("stream", stream);
  if (all.options().engine == automatic_engine) {
    if (side == Side::writer) all.choose_engine(writers_engine(all.options().engine), Source::builtin, "default");
    else if (!found.empty()) all.choose_engine(found, Source::file, "where it was found");
  }
  const auto end = end_of(all.options().engine, side);
  if (!end) return all.options();
  const auto& engine = all.given(0);
  static_assert(tables::stream[0].name == "engine");
  const std::string what = "a stream of engine " + all.options().engine;
  std::string idle;  // without effect where the configuration chose the engine, or in what serves other streams, too
  for (std::size_t i = 0; i < tables::stream.size(); ++i) {
    const auto* field = idle_field(all, i, *end);
    if (!field) continue;
    const auto& [source, where] = all.given(i);
    // An engine chosen at run time must not need a change of the code.
    if (source == Source::code && engine.source <= Source::code) refuse(*field, what);
    if (where == environment_name(stream)) try {
        refuse(*field, what);
      } catch (const Error& error) {
        throw error.in(where);
      }
    idle.append(idle.empty() ? "" : ",").append(field->name);
  }
  if (!idle.empty())
    log(Level::warn, "options have no effect with this engine",
        {{"stream", std::string(stream)},
         {"engine", all.options().engine},
         {"engine_from", engine.where},
         {"options", idle}});
  return all.options();
}

std::vector<OptionValue> describe_stream(std::string_view stream, StreamOptions in_code,
                                         const std::string& config_file) {
  return overlaid(stream, std::move(in_code), config_file, Asks::to_look).describe();
}

StreamOptions options_for_stream(std::string_view stream, StreamOptions defaults, const std::string& config_file) {
  return overlaid(stream, std::move(defaults), config_file, Asks::to_look).options();
}

CoprocessorOptions options_for_coprocessor(std::string_view channel, CoprocessorOptions defaults,
                                           const std::string& config_file) {
  return overlaid(channel, std::move(defaults), config_file, Asks::to_look).options();
}

MeshOptions options_for_mesh(std::string_view region, MeshOptions defaults, const std::string& config_file) {
  return overlaid(region, std::move(defaults), config_file, Asks::to_look).options();
}

namespace {

std::string name_of(const PoolOptions& options) { return options.pool.empty() ? every_name : options.pool; }

// Whether this process has not said this yet.
bool first_time(const std::string& what) {
  static std::mutex mutex;  // guards `said`
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  return said.insert(what).second;
}

}  // namespace

PoolOptions options_for_pool(PoolOptions in_code, const std::string& config_file) {
  const std::string name = name_of(in_code);
  const auto all = overlaid(name, std::move(in_code), config_file, Asks::to_open);
  all.warn_of_ignored("pool", name);
  return all.options();
}

std::vector<OptionValue> describe_pool(PoolOptions in_code, const std::string& config_file) {
  const std::string name = name_of(in_code);
  return overlaid(name, std::move(in_code), config_file, Asks::to_look).describe();
}

PoolOptions options_of_pool_for_streams(const std::string& pool, const std::string& config_file) {
  PoolOptions in_code;
  in_code.pool = pool;
  const std::string name = name_of(in_code);
  const auto all = overlaid(name, std::move(in_code), config_file, Asks::to_open);
  std::string idle, where;
  for (const auto& option : all.describe()) {
    if (option.source < Source::file || is_among("pool,directory,token", option.name)) continue;
    idle.append(idle.empty() ? "" : ",").append(option.name);
    where.append(where.empty() ? "" : ",").append(option.from);
  }
  if (!idle.empty() && first_time(name + " " + where))
    log(Level::warn, "streams take pool, directory and token of a pool's options only: the others are for its clients",
        {{"pool", name}, {"options", idle}, {"from", where}});
  PoolOptions taken;
  taken.pool = all.options().pool;
  taken.directory = all.options().directory;
  taken.token = all.options().token;
  return taken;
}

// --------------------------------------------------------------------------------------------------------- settings

namespace {

constexpr std::array<std::string_view, 4> section_names{"streams", "pools", "coprocessing", "meshes"};
constexpr std::array<std::string_view, 8> file_keys{"streams",   "pools",  "coprocessing", "meshes",
                                                    "directory", "listen", "log",          "trace"};

template <class Options>
void check_section(const ConfigFile& file) {
  for (const auto& entry : file.entries(Place<Options>::section)) {
    Overlay<Options> scratch{Options{}};
    file.read_entry(section_of<Options>, entry.name,
                    [&](const std::string& key, const std::string& value, const std::string& where) {
                      scratch.set(key, value, Source::file, where);
                    });
  }
}

std::string default_directory() {
  const std::string runtime = environment("XDG_RUNTIME_DIR");
  return runtime.empty() ? "/tmp/penstock-" + std::to_string(getuid()) : runtime + "/penstock";
}

// An IPv4 or IPv6 address, or what may be a host's name. Whether it is this host's is known when somebody listens.
void check_listen(const std::string& address) {
  in6_addr binary;
  const auto without_scope = address.substr(0, address.find('%'));
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_'; };
  if (::inet_pton(AF_INET6, without_scope.c_str(), &binary) == 1 || std::ranges::all_of(address, fits)) return;
  throw Error(Errc::invalid_argument, "'" + address.substr(0, 80) +
                                          "' is not an address to listen on: give an IPv4 or IPv6 address of this "
                                          "host, without a port, or '::' for every interface");
}

// What the file says of the process. Reads and checks all of it.
std::map<std::string, OptionValue> settings_in(const std::string& path) {
  std::map<std::string, OptionValue> found;
  if (path.empty()) return found;
  const ConfigFile file(path);
  const auto check = [](const std::string& key) {
    if (std::ranges::find(file_keys, key) == file_keys.end())
      throw Error(Errc::unknown_option, unknown_name("key", key, file_keys));
    return std::ranges::find(section_names, key) == section_names.end();
  };
  file.read_keys(check, [&](const std::string& key, const std::string& value, const std::string& where) {
    if (key == "log") parse_level(value);
    found[key] = {key, value, Source::file, where};
  });
  check_section<StreamOptions>(file);
  check_section<PoolOptions>(file);
  check_section<CoprocessorOptions>(file);
  check_section<MeshOptions>(file);
  return found;
}

}  // namespace

Settings settings(const ContextOptions& in_code) {
  Settings result;
  static_cast<void>(fixed_names(in_code.fixed, field_names(tables::context)));
  std::map<std::string, OptionValue> file;
  // Of code, the file and the environment the last that says something.
  const auto choose = [&](const std::string& name, const std::string& code, const std::string& otherwise,
                          const char* variable) {
    OptionValue chosen{name, otherwise, Source::builtin, "default"};
    const bool fixed = is_among(in_code.fixed, name);
    if (!code.empty() || fixed)
      chosen = {name, code.empty() ? otherwise : code, Source::code, fixed ? std::string(fixed_in_code) : "code"};
    for (const OptionValue& other : {file[name], OptionValue{name, variable ? environment(variable) : "",
                                                             Source::environment, variable ? variable : ""}}) {
      if (other.value.empty()) continue;
      if (!fixed) chosen = other;
      else if (other.value != chosen.value) result.ignored.push_back({name, other.from});
    }
    result.described.push_back(chosen);
    return chosen.value;
  };
  std::error_code no_error;
  const std::string here = std::filesystem::exists("penstock.yaml", no_error) ? "penstock.yaml" : "";
  result.config_file = choose("config_file", in_code.config_file, here, "PENSTOCK_CONFIG");
  if (!result.config_file.empty())
    result.config_file = result.described.back().value = std::filesystem::absolute(result.config_file, no_error);
  file = settings_in(result.config_file);
  result.directory = choose("directory", in_code.directory, default_directory(), "PENSTOCK_DIRECTORY");
  result.listen = choose("listen", in_code.listen, "", "PENSTOCK_LISTEN");
  try {
    check_listen(result.listen);
  } catch (const Error& error) {
    throw error.in("listen (from " + result.described.back().from + ")");
  }
  result.log = choose("log", "", "", nullptr);
  if (const auto level = environment("PENSTOCK_LOG"); !level.empty())
    result.described.back() = {"log", level, Source::environment, "PENSTOCK_LOG"};  // which the logger reads
  result.trace = choose("trace", "", "", "PENSTOCK_TRACE");
  return result;
}

void warn_of_ignored(const Settings& settings) {
  for (const auto& [option, where] : settings.ignored)
    log(Level::warn, "a setting is fixed in code and stays as it is", {{"setting", option}, {"ignored", where}});
}

void read_settings_file(const std::string& file,
                        const std::function<void(const std::string&, const std::string&)>& set) {
  ConfigFile(file).read_keys(
      [](const std::string&) { return true; },
      [&](const std::string& key, const std::string& value, const std::string&) { set(key, value); });
}

}  // namespace penstock::base
