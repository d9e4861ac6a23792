// The real protocol under a simulated network: whole schedules of writer ranks, reader cohorts and faults in one process.
//
// run_schedule plays one plan to its end and reports the first thing that must not be (oracle.hpp says what), or who
// waits for whom if the end is not reached. Bugs can be planted, to see that schedules find them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stream/protocol/sim/oracle.hpp"
#include "stream/protocol/sim/plan.hpp"

namespace penstock::stream::sim {

// Planted in what nodes send and hear; the library has none of this.
enum class Bug {
  none,
  release_lost,     // one release does not arrive
  release_twice,    // a reader's root gives one lease back twice
  release_early,    // a node joins a child's release without waiting for the other children
  record_early,     // a node joins a child's record without waiting for the other children
  grant_lost,       // a child is forgotten when a grant is passed on
  layout_left_out,  // a delta of an epoch misses a rank
  drops_untold,     // a reader is not told of dropped steps
  goodbye_early,    // the end is told one step too early
  leave_late,       // a reader that keeps leases leaves only when it has given them back
  leave_ends_all,   // a reader that leaves is taken to hold nothing
  share_ignored,    // a reader may hold all of the queue but one step
};
const char* name_of(Bug bug);

struct Result {
  std::string failure;  // empty when all was well
  std::uint64_t events = 0, messages = 0, steps_taken = 0, committed = 0;
  std::uint64_t by_kind[wire::kind_count] = {};
  std::size_t longest_ring = 0;
};

// trace: prints every message.
Result run_schedule(const Plan& plan, Bug bug = Bug::none, bool trace = false);

}  // namespace penstock::stream::sim
