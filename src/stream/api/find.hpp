// Finding a stream that a reader opens by its name alone: with the finders of all engines (engine.hpp).
//
// One that is being written is taken before one that has ended, and of several the first in the order of engines(). One that
// has ended is taken in the same look; whoever waits for a stream is warned of that: it may be an earlier run's.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "penstock/cohort.hpp"
#include "stream/api/engine.hpp"

namespace penstock::stream {

struct Place {
  std::string engine;
  Finder::Found found;                   // on ranks other than 0 its pool alone
  std::shared_ptr<const Finder> finder;  // rank 0: keep it until the stream is open, which then uses its connections
};

// Collective. Rank 0 looks until the deadline, and says in the log that it waits. Throws Error(timeout) that says where it looked
// and the nearest name, on every rank.
Place wait_for_stream(const EngineContext& context, std::span<const EngineEntry> engines, const std::string& name,
                      Cohort& cohort, const StreamOptions& options, base::Deadline deadline);
// Looks once. Throws Error(not_found), as above.
Place find_stream(const EngineContext& context, std::span<const EngineEntry> engines, const std::string& name,
                  const StreamOptions& options, base::Deadline deadline);

}  // namespace penstock::stream
