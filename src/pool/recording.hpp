// What is behind penstock::Recording.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "penstock/trace.hpp"
#include "pool/timeline.hpp"

namespace penstock {

struct Recording::Impl {
  pool::Timeline timeline;
};

namespace pool {

// {"median_us": ..., "p99_us": ...}; null when there are none.
nlohmann::json describe_durations(std::vector<std::int64_t> durations_ns);

}  // namespace pool
}  // namespace penstock
