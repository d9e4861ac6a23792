// Traces of many processes as one: operations of all in the order of their starts, on one clock.
//
// Clocks. Processes of one machine (same boot id) share the kernel's steady clock, so their order among each other is exact:
// one offset from steady to real time, the median of what their headers say, serves all of them. Between machines, the offsets
// are as good as the machines' real-time clocks agree (NTP: milliseconds; PTP: microseconds), so an effect may seem to come
// before its cause by that much. Pure; values.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "pool/trace.hpp"

namespace penstock::pool {

struct Timeline {
  std::vector<Trace> processes;
  std::vector<std::int64_t> offsets_ns;  // of each process: add it to its steady clock to get real time
  struct Item {
    std::uint32_t process = 0;
    std::uint32_t record = 0;
    std::int64_t start_ns = 0;  // since the first of all
  };
  std::vector<Item> items;
  std::int64_t begin_ns = 0;  // real time of the first

  const TraceRecord& record(const Item& item) const { return processes[item.process].records[item.record]; }
};

Timeline merge(std::vector<Trace> traces);

// As Chrome's trace event format (JSON), which Perfetto and chrome://tracing open: a process for each file, a thread for each
// client thread; operations that overlap within a thread are asynchronous slices.
void write_chrome_trace(const Timeline& timeline, std::ostream& out);

}  // namespace penstock::pool
