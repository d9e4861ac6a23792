// What can be chosen for a server: one struct, filled from a YAML file, then $PENSTOCK_SERVER_<KEY>, then key=value
// arguments (the later wins), and printed back. Every key may be given in every way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pool/node/server.hpp"

namespace penstock::server {

struct ServeOptions {
  ServeOptions() { node.server.store.memory_ahead = 0.25; }

  // The library's part, but for what complete_node makes of the text below. Its directory "embedded": a process of its own.
  pool::PoolServerOptions node;
  std::string folder;           // the server's own: its id, an embedded directory's journal, tiers with relative paths
  std::string tiers;            // "disk:/path,limit=10GiB", from fast to slow, ';' between them
  std::string compute_plugins;  // shared objects, ';' between them
  std::string compute_functions;  // name=file.py:function, ';' between them
  std::uint32_t compute_time_ms = 60'000;
  std::string http = "127.0.0.1:0";  // or off
  std::uint32_t start_timeout_ms = 60'000;
  std::uint64_t array_replicas = 0;         // bytes; 0: a quarter of the memory
  std::uint32_t drain_timeout_ms = 60'000;  // 0: SIGTERM does not hand objects on
  std::uint32_t stop_timeout_ms = 60'000;
  std::string log;  // a level; "": $PENSTOCK_LOG, else info
};

// Throws Error: unknown_option (suggests the nearest), invalid_argument.
void set_option(ServeOptions& options, std::string_view key, std::string_view value);
// "key=value".
void set_argument(ServeOptions& options, std::string_view argument);
// file: "" for none. arguments: key=value each. Throws Error naming the place.
ServeOptions load_options(const std::string& file, const std::vector<std::string>& arguments);
// What one option cannot see of the others. Throws Error(invalid_argument).
void check(const ServeOptions& options);
// "key: value" a line; tokens in addresses are left out.
std::string to_yaml(const ServeOptions& options);
// An address without its token.
std::string without_token(std::string address);

// options.node, complete. Throws Error(invalid_argument).
pool::PoolServerOptions complete_node(const ServeOptions& options, std::uint64_t id);

}  // namespace penstock::server
