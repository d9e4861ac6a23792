#include "options.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/option_fields.hpp"
#include "base/text.hpp"
#include "fabric/registration.hpp"

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

std::string parse_log(std::string_view text) {
  const std::string level = parse_line(text);
  if (!level.empty()) base::parse_level(level);
  return level;
}

using O = ServeOptions;
constexpr std::array serve_fields{
    text<&O::pool, parse_pool>("pool"),
    text<&O::name, parse_line>("name"),
    text<&O::folder, parse_line>("folder"),
    text<&O::listen, parse_line>("listen"),
    text<&O::directory, parse_directory>("directory"),
    text<&O::registration, parse_line>("registration"),
    number<&O::servers, 1>("servers"),
    number<&O::replication, 1>("replication"),
    number<&O::lease_ms, 200>("lease_ms"),
    size<&O::memory, 1 << 20>("memory"),
    share<&O::memory_ahead>("memory_ahead"),
    share<&O::high_watermark>("high_watermark"),
    share<&O::low_watermark>("low_watermark"),
    text<&O::tiers, parse_line>("tiers"),
    boolean<&O::write_behind>("write_behind"),
    size<&O::rebalance_bytes_per_s, 1 << 20>("rebalance_bytes_per_s"),
    number<&O::workers, 1>("workers"),
    number<&O::max_leases, 1>("max_leases"),
    number<&O::max_subscriptions, 1>("max_subscriptions"),
    number<&O::max_waits, 1>("max_waits"),
    number<&O::max_events, 1>("max_events"),
    number<&O::max_readers, 1>("max_readers"),
    number<&O::max_calls, 1>("max_calls"),
    size<&O::call_memory, 1 << 20>("call_memory"),
    text<&O::http, parse_line>("http"),
    number<&O::compute_workers>("compute_workers"),
    number<&O::compute_time_ms, 1>("compute_time_ms"),
    size<&O::compute_memory, 1 << 20>("compute_memory"),
    text<&O::compute_plugins, parse_line>("compute_plugins"),
    text<&O::compute_functions, parse_line>("compute_functions"),
    text<&O::compute_python, parse_line>("compute_python"),
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

}  // namespace

void set_option(ServeOptions& options, std::string_view key, std::string_view value) {
  base::set_field(serve_fields, options, key, value);
}

ServeOptions load_options(const std::string& file, const std::vector<std::string>& arguments) {
  ServeOptions options;
  if (!file.empty())
    base::read_settings_file(
        file, [&](const std::string& key, const std::string& value) { set_option(options, key, value); });
  apply_environment(options);
  for (const std::string& argument : arguments) {
    const auto equals = argument.find('=');
    if (equals == std::string::npos) throw Error(Errc::invalid_argument, "'" + argument + "' is not key=value");
    set_option(options, base::trim(std::string_view(argument).substr(0, equals)), argument.substr(equals + 1));
  }
  check(options);
  return options;
}

void check(const ServeOptions& options) {
  if (options.low_watermark > options.high_watermark)
    throw Error(Errc::invalid_argument, "low_watermark is above high_watermark");
  if (options.replication > options.servers && options.servers > 1)
    throw Error(Errc::invalid_argument, "replication is more than there are servers to begin with");
  if (!parse_tiers(options).empty() && options.folder.empty())
    throw Error(Errc::invalid_argument,
                "tiers need a folder: the server's id is kept there, so that it is itself again");
  compute_options(options);
}

std::string without_token(std::string address) {
  const auto token = address.find("token=");
  if (token != std::string::npos) address.replace(token + 6, address.find('&', token) - (token + 6), "...");
  return address;
}

std::string to_yaml(const ServeOptions& options) {
  ServeOptions shown = options;
  shown.directory = without_token(options.directory);
  return base::fields_to_yaml(serve_fields, shown);
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

pool::PoolServerOptions pool_options(const ServeOptions& options, std::uint64_t id) {
  pool::PoolServerOptions result;
  result.registration_directory = fabric::resolve_directory(options.registration);
  // An embedded directory is a process of its own, which registers (directory_process.hpp).
  result.directory = options.directory == "embedded" ? "registered" : options.directory;
  auto& server = result.server;
  server.pool = options.pool;
  server.name = options.name;
  server.id = id;
  server.listen = options.listen;
  server.servers = options.servers;
  server.replication = options.replication;
  server.lease_ms = options.lease_ms;
  server.rebalance_bytes_per_s = options.rebalance_bytes_per_s;
  server.workers = options.workers;
  server.max_leases = options.max_leases;
  server.max_subscriptions = options.max_subscriptions;
  server.max_waits = options.max_waits;
  server.max_events = options.max_events;
  server.max_readers = options.max_readers;
  server.max_calls = options.max_calls;
  server.call_memory = options.call_memory;
  server.store.memory_bytes = options.memory;
  server.store.memory_ahead = options.memory_ahead;
  server.store.high_watermark = options.high_watermark;
  server.store.low_watermark = options.low_watermark;
  server.store.tiers = parse_tiers(options);
  server.store.write_behind = options.write_behind;
  result.compute = compute_options(options);
  return result;
}

pool::compute::ComputeOptions compute_options(const ServeOptions& options) {
  pool::compute::ComputeOptions result;
  result.workers = options.compute_workers;
  result.limits.wall = result.limits.cpu = std::chrono::milliseconds(options.compute_time_ms);
  result.limits.memory_bytes = options.compute_memory;
  result.plugins = items_of(options.compute_plugins);
  result.python = options.compute_python;
  for (const std::string& item : items_of(options.compute_functions)) {
    const auto equals = item.find('='), colon = item.rfind(':');
    if (equals == std::string::npos || equals == 0 || colon == std::string::npos || colon < equals + 2 ||
        colon + 1 == item.size())
      throw Error(Errc::invalid_argument, "compute_functions: '" + item + "' is not name=file.py:function");
    result.python_functions[item.substr(0, equals)] = {item.substr(equals + 1, colon - equals - 1),
                                                       item.substr(colon + 1)};
  }
  return result;
}

}  // namespace penstock::server
