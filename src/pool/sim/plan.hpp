// What happens in one simulated schedule of a pool, drawn from one number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::pool::sim {

enum class ActionKind {
  directory_dies,  // and comes back after length_ms
  drain,           // a server leaves; its process ends when it has
  join,
  kill,     // everything of a server vanishes
  restart,  // the same, and a server of the same id comes length_ms later
  cut,      // all connections between two processes
  hold,     // nothing passes between two processes for length_ms
  away,     // a server reaches nobody and nobody reaches it, for its lease and length_ms
};
const char* name_of(ActionKind kind);

// Which servers it meets is drawn when it happens; one that nobody may survive (world.hpp) is left out.
struct Action {
  ActionKind kind{};
  std::uint32_t at_ms = 0, length_ms = 0;
};

struct Plan {
  std::uint64_t seed = 1;
  std::uint32_t servers = 3, replication = 2, clients = 2, keys = 6;  // keys: of each client
  std::uint32_t lease_ms = 1000, max_delay_us = 1000, think_ms = 100, duration_ms = 8000;
  std::vector<Action> actions;  // by time
};

Plan random_plan(std::uint64_t seed);
std::string describe(const Plan& plan);

}  // namespace penstock::pool::sim
