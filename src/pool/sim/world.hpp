// The real servers and clients of a pool in one process, with simulated time, network and directory (clock.hpp,
// network.hpp, directory.hpp). One seed gives one run.
//
// run_schedule plays a plan to its end and reports the first thing that must not be: a client found what the oracle
// does not allow, a call did not end by its deadline or failed although it had 30 s, a server that lives was left out
// of the view, a drain or the pool itself did not come to an end, or an owner lacks what it owns in the settled view at
// the end. Servers are killed only where the pool promises to survive it: fewer than `replication` of them before it
// has settled again.
#pragma once

#include <cstdint>
#include <string>

#include "pool/sim/plan.hpp"

namespace penstock::pool::sim {

// Planted around the library, which has none of this.
enum class Bug {
  none,
  settled_early,      // a view says that it is settled when servers have yet to pass on what they hold
  drain_at_once,      // a server that drains does not wait until others hold what it has
  replica_lost,       // a replica is acknowledged and not kept, now and then
  drop_untold,        // a drop does not reach the replicas
  nothing_missing,    // a server says that it lacks nothing of what it is offered
  absence_forgotten,  // views do not say since when a server has been there
  lease_not_renewed   // a server that could not be heard while the directory was away is taken for dead
};
const char* name_of(Bug bug);

struct Result {
  std::string failure;  // empty when all was well
  std::uint64_t frames = 0, calls = 0, failed_calls = 0, views = 0, simulated_ms = 0;
  std::uint64_t kills = 0, drains = 0, drains_by_command = 0, outages = 0;
};

// trace: prints what happens.
Result run_schedule(const Plan& plan, Bug bug = Bug::none, bool trace = false);

}  // namespace penstock::pool::sim
