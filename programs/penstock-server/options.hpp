// What can be chosen for a server: one struct, filled from a YAML file, then $PENSTOCK_SERVER_<KEY>, then key=value
// arguments (the later wins), and printed back. Every key may be given in every way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pool/compute/compute_workers.hpp"
#include "pool/server.hpp"
#include "storage/tier.hpp"

namespace penstock::server {

struct ServeOptions {
  std::string pool = "default";
  std::string name;    // in messages; "": host:pid
  std::string folder;  // the server's own: its id, an embedded directory's journal, tiers with relative paths
  std::string listen;  // address for TCP; "": every interface
  std::string directory =
      "embedded";             // run one here; or registered, tcp://host:port/directory?token=..., etcd://host:port
  std::string registration;   // folder where an embedded directory is registered; "": as for streams
  std::uint32_t servers = 1;  // the pool begins with so many
  std::uint32_t replication = 1;
  std::uint32_t lease_ms = 2000;
  std::uint64_t memory = std::uint64_t{1} << 30;
  double memory_ahead = 0.25;  // of memory: made before it is needed
  double high_watermark = 0.9, low_watermark = 0.75;
  std::string tiers;  // "disk:/path,limit=10GiB", from fast to slow, ';' between them
  bool write_behind = true;
  std::uint64_t rebalance_bytes_per_s = std::uint64_t{512} << 20;
  std::uint32_t workers = 2;
  // Of one client, of a stream, of all clients: as in pool::ServerOptions.
  std::uint32_t max_leases = 262'144, max_subscriptions = 1024, max_waits = 16'384, max_events = 100'000;
  std::uint32_t max_readers = 4096, max_calls = 65'536;
  std::uint64_t call_memory = std::uint64_t{256} << 20;
  std::string http = "127.0.0.1:0";   // or off
  std::uint32_t compute_workers = 0;  // processes for plug-ins and Python; 0: as many as hardware threads
  std::uint32_t compute_time_ms = 60'000;
  std::uint64_t compute_memory = std::uint64_t{1} << 30;
  std::string compute_plugins;    // shared objects, ';' between them
  std::string compute_functions;  // name=file.py:function, ';' between them
  std::string compute_python = "python3";
  std::uint32_t start_timeout_ms = 60'000;
  std::uint32_t drain_timeout_ms = 60'000;  // 0: SIGTERM does not hand objects on
  std::uint32_t stop_timeout_ms = 60'000;
  std::string log;  // a level; "": $PENSTOCK_LOG, else info
};

// Throws Error: unknown_option (suggests the nearest), invalid_argument.
void set_option(ServeOptions& options, std::string_view key, std::string_view value);
// file: "" for none. arguments: key=value each. Throws Error naming the place.
ServeOptions load_options(const std::string& file, const std::vector<std::string>& arguments);
// What one option cannot see of the others. Throws Error(invalid_argument).
void check(const ServeOptions& options);
// "key: value" a line; tokens in addresses are left out.
std::string to_yaml(const ServeOptions& options);
// An address without its token.
std::string without_token(std::string address);

// The parts' own options. Throw Error(invalid_argument).
std::vector<storage::TierOptions> parse_tiers(const ServeOptions& options);
pool::compute::ComputeOptions compute_options(const ServeOptions& options);
pool::PoolServerOptions pool_options(const ServeOptions& options, std::uint64_t id);

}  // namespace penstock::server
