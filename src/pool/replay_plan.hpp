// When to do again what traces recorded, as pure functions.
//
// Each client thread of the recording is a lane, which does its operations in their order. Beyond that, what must be kept for
// outcomes to be the same is kept: an operation that began after a change of one of its keys had ended waits for that change,
// and a change waits for the reads of its keys that had ended. A read that found an object while the put of it was still
// under way waits for the put. Patterns, rows and computations count as reads (drop_pattern: changes) of every key of their
// namespace. Operations that overlapped, and could have come out either way, may do so again. Needs, wants and row waits wait
// by themselves for what was put while they waited. Calls on a stream in a pool keep the order of their Writer or Reader;
// readers wait by themselves for steps, but a step ends after the looks for it that were in vain.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pool/timeline.hpp"

namespace penstock::pool {

struct ReplayPace {
  double factor = 1;  // 1: as recorded; 2: twice as fast; 0: as fast as the order allows
};

struct ReplayStep {
  std::uint32_t item = 0;  // of the timeline
  std::uint32_t lane = 0;
  bool detached = false;             // the lane goes on before it has ended
  std::int64_t at_ns = 0;            // not before, since the start of the replay
  std::vector<std::uint32_t> after;  // steps that must have ended: of other lanes, or detached. There are no cycles.
};

struct ReplayPlan {
  std::vector<ReplayStep> steps;  // in the order of their starts
  std::uint32_t lanes = 0;
};

// Throws Error(invalid_argument): a factor that is negative or no number.
ReplayPlan plan_replay(const Timeline& timeline, ReplayPace pace);

// An object that was there before the recording: an operation found it, and none that had begun by then can have put it. To be
// put before a replay; how many bytes it had is known as far as somebody read them.
struct ReplayObject {
  std::uint32_t item = 0;  // that found it first
  Namespace ns;
  Key key;
  std::optional<std::uint64_t> tag;
  std::uint64_t bytes = 0;
};
std::vector<ReplayObject> objects_before(const Timeline& timeline);

}  // namespace penstock::pool
