// The tables of options: names, how each is read and written, and for a stream's options who takes them. For base/config*.cpp
// and base/option_tables.cpp only.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/config.hpp"
#include "base/option_fields.hpp"
#include "penstock/options.hpp"

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

std::string parse_start(std::string_view text);
std::string parse_resume(std::string_view text);
std::string parse_resume_time(std::string_view text);

}  // namespace penstock::base::fields

namespace penstock::base {

// Which ends of streams take an option, one bit each: a new engine is a name, and its two ends.
inline constexpr std::array<std::string_view, 5> engine_names{"direct", "pool", "insitu", "file", "space"};
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

namespace tables {

using namespace fields;
using O = StreamOptions;
inline constexpr std::array stream{
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
inline constexpr std::array coprocessor{
    choice<&C::wait>("wait"),
    number<&C::every, 1>("every"),
    lines<&C::pipelines>("pipelines"),
    text<&C::output, parse_line>("output"),
};

using M = MeshOptions;
inline constexpr std::array mesh{
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

using P = PoolOptions;
inline constexpr std::array pool{
    text<&P::pool, parse_name>("pool"),   text<&P::directory, parse_line>("directory"),
    text<&P::role, parse_name>("role"),   text<&P::token, parse_line>("token"),
    text<&P::ns, parse_line>("ns"),       number<&P::timeout_ms>("timeout_ms"),
    choice<&P::data_plane>("data_plane"), text<&P::trace, parse_line>("trace"),
};

using X = ContextOptions;
inline constexpr std::array context{
    text<&X::config_file, parse_line>("config_file"),
    text<&X::directory, parse_line>("directory"),
    text<&X::listen, parse_line>("listen"),
    boolean<&X::explicit_progress>("explicit_progress"),
};

}  // namespace tables

// Of one kind of options: its table, and where it stands in penstock.yaml and in the environment.
template <class Options>
struct Place;
template <>
struct Place<StreamOptions> {
  static constexpr const auto& table = tables::stream;
  static constexpr const char *section = "streams", *what = "a stream", *variable = "PENSTOCK_STREAM_";
  static constexpr const char* variable_of_all = "PENSTOCK_STREAMS";  // nullptr: none
  static constexpr std::string_view list = "";                        // the option that takes several values
  static constexpr std::string_view alone = "engine";                 // the option whose value may stand alone
};
template <>
struct Place<CoprocessorOptions> {
  static constexpr const auto& table = tables::coprocessor;
  static constexpr const char *section = "coprocessing", *what = "a channel", *variable = "PENSTOCK_COPROCESSING_";
  static constexpr const char* variable_of_all = nullptr;
  static constexpr std::string_view list = "pipelines";
  static constexpr std::string_view alone = "wait";
};
template <>
struct Place<MeshOptions> {
  static constexpr const auto& table = tables::mesh;
  static constexpr const char *section = "meshes", *what = "a mesh", *variable = "PENSTOCK_MESH_";
  static constexpr const char* variable_of_all = nullptr;
  static constexpr std::string_view list = "";
  static constexpr std::string_view alone = "database";
};
template <>
struct Place<PoolOptions> {
  static constexpr const auto& table = tables::pool;
  static constexpr const char *section = "pools", *what = "a pool", *variable = "PENSTOCK_POOL_";
  static constexpr const char* variable_of_all = nullptr;
  static constexpr std::string_view list = "";
  static constexpr std::string_view alone = "";
};

// The end that a side of this engine is; none of an engine that the table does not know, which is refused elsewhere.
std::optional<Ends> end_of(std::string_view engine, Side side);
// Throws Error(invalid_argument): the option has no effect there.
[[noreturn]] void refuse(const StreamField& field, const std::string& what);

// The names in a text for `fixed`, in order. Throws Error(unknown_option) for one that is none of these options.
std::string fixed_names(std::string_view text, std::span<const std::string_view> options);
// Whether the name is among names with commas between them, as in `fixed` and `given`.
bool is_among(std::string_view names, std::string_view name);
// Adds a name to `given`, once.
void note_given(std::string& given, std::string_view name);

// Calls set(key, value) for each part of "word,key=value,key=value"; the first part, without a key, is the value of `alone`.
void for_each_part(std::string_view text, std::string_view alone,
                   const std::function<void(const std::string&, const std::string&)>& set);

}  // namespace penstock::base
