// Where options come from: code, then penstock.yaml, then the environment; the later wins.
//
// What code names in `fixed` neither of them changes.
//
// One table of fields per options struct (base/option_tables.hpp) serves all of them, and to_yaml and set_option of the public
// header. Errors name the file and line, or the variable of the environment. Reads files and the environment, and keeps which
// name each variable was read for: safe from any thread as long as none changes the environment.
//
//   penstock.yaml:
//     streams:
//       "*": {queue_steps: 8}                  # every stream
//       heat: {data_plane: tcp}                # one stream, on top of that
//       wake: "direct,when_full=block"         # the short form, as in PENSTOCK_STREAM_WAKE
//     pools:
//       stage: {timeout_ms: 60000}
//     coprocessing:
//       heat: {wait: automatic, every: 10, pipelines: [pictures.yaml]}
//     meshes:
//       results: {database: exodus, path: results.e}
//     directory: /run/user/1000/penstock
//     listen: 10.0.0.1
//     log: info
//     trace: /scratch/traces
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::base {

// The options in effect for one stream. config_file: as settings() gives it; "" for none.
// Environment: PENSTOCK_STREAMS, then PENSTOCK_STREAM_<NAME>, the name in upper case with every other character as _, holding
// "engine,key=value,key=value"; the engine may be left out. Throws Error(invalid_argument) where a variable is set that two
// names of this process, or of the file, give.
StreamOptions options_for_stream(std::string_view stream, StreamOptions defaults, const std::string& config_file);
// The same, with who gave each option.
std::vector<OptionValue> describe_stream(std::string_view stream, StreamOptions in_code,
                                         const std::string& config_file);

// The same for a channel's coprocessor: the section `coprocessing`, and PENSTOCK_COPROCESSING_<NAME>, whose first word may be
// `wait` alone ("automatic,every=10").
CoprocessorOptions options_for_coprocessor(std::string_view channel, CoprocessorOptions defaults,
                                           const std::string& config_file);

// The same for a mesh region: the section `meshes`, and PENSTOCK_MESH_<NAME>, whose first word may be `database` alone
// ("exodus,path=out.e").
MeshOptions options_for_mesh(std::string_view region, MeshOptions defaults, const std::string& config_file);

// The same for a client of a pool: the section `pools`, and PENSTOCK_POOL_<NAME>. Without a name: the entry "*" alone.
// Warns of what code fixes and others tried to set.
PoolOptions options_for_pool(PoolOptions in_code, const std::string& config_file);
// The same, with who gave each option; without the warnings.
std::vector<OptionValue> describe_pool(PoolOptions in_code, const std::string& config_file);
// What streams in a pool take from there: pool, directory and token. A warning names what else is given.
PoolOptions options_of_pool_for_streams(const std::string& pool, const std::string& config_file);

enum class Side : std::uint8_t { writer, reader };
// The same for one side of a stream that is being opened. An option that has no effect with the stream's engine is an
// Error(invalid_argument) that names it and who takes it, when it is given in the environment, or in code while neither the
// file nor the environment names an engine. It is a warning when it is in the file, or in code while the configuration names
// the engine, or in PENSTOCK_STREAMS: choosing an engine at run time must not need a change of the code. Options of the other
// side are legal: a StreamOptions, a file and an environment may serve both. A writer's engine automatic is direct, a reader's
// is `found`, where its stream is, as if the configuration named that. Also warns of what code fixes and others tried to set.
StreamOptions options_in_effect(std::string_view stream, Side side, const StreamOptions& in_code,
                                const std::string& config_file, const std::string& found = "");
inline constexpr std::string_view automatic_engine = "automatic";
// A writer's engine of this name: automatic is direct.
std::string writers_engine(const std::string& engine);
// set_option for options that are given to one side, if there is one: those that only the other side takes are an
// Error(invalid_argument).
void set_option(StreamOptions& options, const std::string& key, const std::string& value, std::optional<Side> side);
void set_option(ContextOptions& options, const std::string& key, const std::string& value);
// Whether anybody gave the option, with the default's value or another.
bool is_given(const StreamOptions& options, std::string_view option);
// The options that have an effect on this side of a stream of their engine; the others are as if nobody had given them.
StreamOptions effective(StreamOptions options, Side side);

// Of all options of a stream, in the order of to_yaml.
std::vector<std::string_view> stream_option_names();
std::vector<std::string_view> mesh_option_names();
// Applies "direct,queue_steps=2" to the options. side: given where the text is for one side only.
void apply_text(StreamOptions& options, std::string_view text, std::optional<Side> side = {});
void apply_text(MeshOptions& options, std::string_view text);
// Options from the text that to_yaml writes. A line that set_option refuses is given to `refused` and skipped: the text may be
// of another version.
StreamOptions from_yaml(std::string_view text, const std::function<void(const Error&)>& refused);
// Throws Error(invalid_argument) for values that set_option would refuse.
void check(const StreamOptions& options);
void check_coprocessor(const CoprocessorOptions& options);
void check_mesh(const MeshOptions& options);
void check_pool(const PoolOptions& options);
// "PENSTOCK_STREAM_HEAT_2D" for "heat-2d".
std::string environment_name(std::string_view stream);

// Reads a YAML file of "key: value" and calls set(key, value as text) for each, in the file's order; a list's items have ';'
// between them. Errors, also those that set throws, name the file and line. Throws Error(not_found, invalid_argument).
void read_settings_file(const std::string& file,
                        const std::function<void(const std::string&, const std::string&)>& set);

// What concerns the whole process: of the defaults, ContextOptions, the file and the environment the last that says something.
// Reads and checks the whole file, so that a misspelt key is reported at once, whatever streams are opened.
struct Settings {
  std::string config_file;  // absolute: the process may change its working directory; "" when there is none
  std::string directory;    // never empty
  std::string listen;       // "" when nobody says
  std::string log;          // a level's name, "" when the file does not say; $PENSTOCK_LOG is read by the logger
  std::string trace;        // where clients of pools record what they do; "" for nowhere
  std::vector<OptionValue> described;
  struct Ignored {
    std::string setting, where;
  };
  std::vector<Ignored> ignored;  // what others say of what code fixes
};
Settings settings(const ContextOptions& in_code);
void warn_of_ignored(const Settings& settings);

}  // namespace penstock::base
