// For the tests of this module: recordings made by hand.
#pragma once

#include <string>

#include "pool/timeline.hpp"

namespace penstock::pool {

// One process; times are nanoseconds since it began.
class Recording {
 public:
  Recording() {
    trace_.clients = {"pool"};
    trace_.texts.push_back(std::string(16, '\0'));
  }
  TraceRecord& add(std::uint32_t thread, Verb verb, const std::string& row, std::int64_t start, std::int64_t end,
                   Errc outcome = Errc::ok) {
    TraceRecord& record = trace_.records.emplace_back();
    record.verb = verb;
    record.thread = thread;
    record.start_ns = start;
    record.duration_ns = end - start;
    record.outcome = outcome;
    record.failed = outcome == Errc::ok ? 0 : 1;
    record.ns = 1;
    record.keys = {{static_cast<std::uint32_t>(trace_.texts.size()), 0}};
    trace_.texts.push_back(row);
    return record;
  }
  TraceRecord& last() { return trace_.records.back(); }
  Timeline timeline() {
    std::vector<Trace> traces{trace_};
    return merge(std::move(traces));
  }

 private:
  Trace trace_;
};

}  // namespace penstock::pool
