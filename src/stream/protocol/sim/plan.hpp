// What happens in one simulated schedule: every choice that is made before it starts, drawn from one number.
#pragma once

#include <string>
#include <vector>

#include "stream/protocol/ledger.hpp"
#include "stream/protocol/sim/fabric.hpp"

namespace penstock::stream::sim {

struct CohortPlan {
  std::uint32_t ranks = 1;
  std::uint32_t fan_out = default_fan_out;
  bool latest = false;
  bool ring = true;  // to the writer's root
  Time join_at = 0;
  Time think = 10;    // at most so long between two steps
  double pin = 0;     // the chance that a step is held while the next ones are taken
  double leave = 0;   // the chance, before each step, that a rank leaves
  double linger = 0;  // the chance that a rank which left keeps its process
  double keep = 0;    // the chance that a step is not released before everything else is over (a kept view)
};

enum class FaultKind {
  crash_writer,
  crash_reader,
  cut_reader,
  cut_reader_tree,
  garbage_to_writer,
  garbage_to_reader,
  garbage_in_reader_tree,
  stall_reader,
  stop_reader,
  stall_writer,
};
struct Fault {
  FaultKind kind{};
  std::uint64_t at_event = 0;
  std::uint32_t cohort = 0;
  std::uint32_t rank = 0;
};

struct Plan {
  std::uint64_t seed = 1;
  FabricSettings fabric;
  LedgerSettings writer;
  std::uint32_t fan_out = default_fan_out;
  std::uint64_t steps = 5;
  Time write_time = 10;      // at most so long for a step, and between two
  double void_chance = 0;    // that a rank voids a step
  double layout_chance = 0;  // that a rank's layout changes
  Time close_deadline = never;
  std::vector<CohortPlan> cohorts;
  std::vector<Fault> faults;
};

Plan random_plan(std::uint64_t seed);
// The same, where readers leave and keep leases.
Plan leaving_plan(std::uint64_t seed);
// The same, where steps may be dropped and some readers release nothing.
Plan hoarding_plan(std::uint64_t seed);
std::string describe(const Plan& plan);

}  // namespace penstock::stream::sim
