#include "options.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/option_fields.hpp"
#include "base/text.hpp"
#include "fabric/registration.hpp"
#include "space/server/space_service.hpp"

namespace penstock::server {
namespace {

using namespace base::fields;

std::string parse_pool(std::string_view text) {
  const std::string name = parse_name(text);
  if (name.empty()) throw Error(Errc::invalid_argument, "a pool has a name");
  return name;
}

std::string parse_directory(std::string_view text) {
  const std::string where = parse_line(text);
  if (where == "embedded" || where == "registered" || where.starts_with("etcd://") || where.starts_with("tcp://"))
    return where;
  throw Error(Errc::invalid_argument,
              "'" + without_token(where).substr(0, 80) +
                  "' is not embedded, registered, tcp://host:port/directory?token=... or etcd://host:port");
}

std::string parse_plane(std::string_view text) {
  const std::string plane = parse_line(text);
  if (plane != "automatic" && plane != "ucx" && !plane.empty())
    throw Error(Errc::invalid_argument, "'" + plane.substr(0, 80) + "' is not automatic or ucx");
  return plane == "automatic" ? "" : plane;
}

std::string parse_log(std::string_view text) {
  const std::string level = parse_line(text);
  if (!level.empty()) base::parse_level(level);
  return level;
}

using O = ServeOptions;
using Node = pool::PoolServerOptions;
using Server = pool::ServerOptions;
using Store = pool::StoreOptions;
using Compute = pool::compute::ComputeOptions;
using Limits = pool::compute::ComputeLimits;
template <auto Make>
constexpr auto in_node = within<&O::node, Make>;
template <auto Make>
constexpr auto in_server = in_node<within<&Node::server, Make>>;
template <auto Make>
constexpr auto in_store = in_server<within<&Server::store, Make>>;
template <auto Make>
constexpr auto in_compute = in_node<within<&Node::compute, Make>>;

constexpr std::array serve_fields{
    in_server<text<&Server::pool, parse_pool>>("pool"),
    in_server<text<&Server::name, parse_line>>("name"),
    text<&O::folder, parse_line>("folder"),
    in_server<text<&Server::listen, parse_line>>("listen"),
    in_server<text<&Server::data_plane, parse_plane>>("data_plane"),
    in_node<text<&Node::directory, parse_directory>>("directory"),
    in_node<text<&Node::registration_directory, parse_line>>("registration"),
    in_server<number<&Server::servers, 1>>("servers"),
    in_server<number<&Server::replication, 1>>("replication"),
    in_server<number<&Server::lease_ms, 200>>("lease_ms"),
    in_store<size<&Store::memory_bytes, 1 << 20>>("memory"),
    in_store<share<&Store::memory_ahead>>("memory_ahead"),
    in_store<share<&Store::high_watermark>>("high_watermark"),
    in_store<share<&Store::low_watermark>>("low_watermark"),
    text<&O::tiers, parse_line>("tiers"),
    in_store<boolean<&Store::write_behind>>("write_behind"),
    size<&O::array_replicas>("array_replicas"),
    in_server<size<&Server::rebalance_bytes_per_s, 1 << 20>>("rebalance_bytes_per_s"),
    in_server<number<&Server::workers, 1>>("workers"),
    in_server<number<&Server::max_leases, 1>>("max_leases"),
    in_server<number<&Server::max_subscriptions, 1>>("max_subscriptions"),
    in_server<number<&Server::max_waits, 1>>("max_waits"),
    in_server<number<&Server::max_events, 1>>("max_events"),
    in_server<number<&Server::max_readers, 1>>("max_readers"),
    in_server<number<&Server::max_calls, 1>>("max_calls"),
    in_server<size<&Server::call_memory, 1 << 20>>("call_memory"),
    text<&O::http, parse_line>("http"),
    in_compute<number<&Compute::workers>>("compute_workers"),
    number<&O::compute_time_ms, 1>("compute_time_ms"),
    in_compute<within<&Compute::limits, size<&Limits::memory_bytes, 1 << 20>>>("compute_memory"),
    text<&O::compute_plugins, parse_line>("compute_plugins"),
    text<&O::compute_functions, parse_line>("compute_functions"),
    in_compute<text<&Compute::python, parse_line>>("compute_python"),
    number<&O::start_timeout_ms, 1>("start_timeout_ms"),
    number<&O::drain_timeout_ms>("drain_timeout_ms"),
    number<&O::stop_timeout_ms, 1>("stop_timeout_ms"),
    text<&O::log, parse_log>("log"),
};

constexpr std::string_view environment_prefix = "PENSTOCK_SERVER_";

void apply_environment(ServeOptions& options) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (!text.starts_with(environment_prefix) || equals == std::string_view::npos) continue;
    std::string key(text.substr(environment_prefix.size(), equals - environment_prefix.size()));
    std::ranges::transform(key, key.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    try {
      set_option(options, key, text.substr(equals + 1));
    } catch (const Error& error) {
      throw error.in(text.substr(0, equals));
    }
  }
}

std::vector<std::string> items_of(const std::string& list) {
  std::vector<std::string> items;
  for (const std::string_view item : base::split(list, ';'))
    if (!item.empty()) items.emplace_back(item);
  return items;
}

// "disk:/path,limit=10GiB,small=64KiB,cache=32MiB"
storage::TierOptions parse_tier(const std::string& item, const std::string& folder) {
  storage::TierOptions tier;
  const auto parts = base::split(item, ',');
  const auto colon = parts[0].find(':');
  if (colon == std::string_view::npos || colon + 1 == parts[0].size())
    throw Error(Errc::invalid_argument, "'" + item + "' is no tier, such as disk:/path,limit=10GiB");
  tier.kind = parts[0].substr(0, colon);
  tier.path = (std::filesystem::path(folder) / parts[0].substr(colon + 1)).string();
  const auto kinds = storage::tier_kinds();
  if (std::ranges::find(kinds, tier.kind) == kinds.end())
    throw Error(Errc::invalid_argument, base::unknown_name("kind of tier", tier.kind, kinds));
  for (const std::string_view part : std::span(parts).subspan(1)) {
    const auto equals = part.find('=');
    const auto key = base::trim(part.substr(0, equals));
    const auto value = equals == std::string_view::npos ? "" : part.substr(equals + 1);
    if (key == "limit") tier.limit_bytes = base::parse_size(value);
    else if (key == "small") tier.small_bytes = base::parse_size(value);
    else if (key == "cache") tier.rocksdb_cache_bytes = base::parse_size(value);
    else
      throw Error(Errc::unknown_option, base::unknown_name("option of a tier", key,
                                                           std::array<std::string_view, 3>{"limit", "small", "cache"}));
  }
  return tier;
}

std::vector<storage::TierOptions> parse_tiers(const ServeOptions& options) {
  std::vector<storage::TierOptions> tiers;
  for (const std::string& item : items_of(options.tiers)) {
    try {
      tiers.push_back(parse_tier(item, options.folder));
    } catch (const Error& error) {
      throw error.in("tiers");
    }
  }
  return tiers;
}

std::map<std::string, pool::compute::PythonFunction> parse_functions(const ServeOptions& options) {
  std::map<std::string, pool::compute::PythonFunction> functions;
  for (const std::string& item : items_of(options.compute_functions)) {
    const auto equals = item.find('='), colon = item.rfind(':');
    if (equals == std::string::npos || equals == 0 || colon == std::string::npos || colon < equals + 2 ||
        colon + 1 == item.size())
      throw Error(Errc::invalid_argument, "compute_functions: '" + item + "' is not name=file.py:function");
    functions[item.substr(0, equals)] = {item.substr(equals + 1, colon - equals - 1), item.substr(colon + 1)};
  }
  return functions;
}

}  // namespace

void set_option(ServeOptions& options, std::string_view key, std::string_view value) {
  base::set_field(serve_fields, options, key, value);
}

void set_argument(ServeOptions& options, std::string_view argument) {
  const auto equals = argument.find('=');
  if (equals == std::string_view::npos)
    throw Error(Errc::invalid_argument, "'" + std::string(argument) + "' is not key=value");
  set_option(options, base::trim(argument.substr(0, equals)), argument.substr(equals + 1));
}

ServeOptions load_options(const std::string& file, const std::vector<std::string>& arguments) {
  ServeOptions options;
  if (!file.empty())
    base::read_settings_file(
        file, [&](const std::string& key, const std::string& value) { set_option(options, key, value); });
  apply_environment(options);
  for (const std::string& argument : arguments) set_argument(options, argument);
  check(options);
  return options;
}

void check(const ServeOptions& options) {
  const auto& server = options.node.server;
  if (server.store.low_watermark > server.store.high_watermark)
    throw Error(Errc::invalid_argument, "low_watermark is above high_watermark");
  if (server.replication > server.servers && server.servers > 1)
    throw Error(Errc::invalid_argument, "replication is more than there are servers to begin with");
  if (!parse_tiers(options).empty() && options.folder.empty())
    throw Error(Errc::invalid_argument,
                "tiers need a folder: the server's id is kept there, so that it is itself again");
  parse_functions(options);
}

std::string without_token(std::string address) {
  const auto token = address.find("token=");
  if (token != std::string::npos) address.replace(token + 6, address.find('&', token) - (token + 6), "...");
  return address;
}

std::string to_yaml(const ServeOptions& options) {
  ServeOptions shown = options;
  shown.node.directory = without_token(shown.node.directory);
  return base::fields_to_yaml(serve_fields, shown);
}

pool::PoolServerOptions complete_node(const ServeOptions& options, std::uint64_t id) {
  pool::PoolServerOptions node = options.node;
  node.registration_directory = fabric::resolve_directory(node.registration_directory);
  // An embedded directory is a process of its own, which registers (directory_process.hpp).
  if (node.directory == "embedded") node.directory = "registered";
  node.server.id = id;
  node.extend = [bytes = options.array_replicas](auto core) { return space::extend_server(std::move(core), bytes); };
  node.server.store.tiers = parse_tiers(options);
  node.compute.limits.wall = node.compute.limits.cpu = std::chrono::milliseconds(options.compute_time_ms);
  node.compute.plugins = items_of(options.compute_plugins);
  node.compute.python_functions = parse_functions(options);
  return node;
}

}  // namespace penstock::server
