// Simulated time: while a SimulatedTime lives, base::Clock stands still and moves only when it is told to. Needs no
// seam in the library: the test program brings its own std::chrono::steady_clock::now and timerfd_settime (clock.cpp).
// One at a time, for one Progress in explicit mode that is made after it.
#pragma once

#include "base/clock.hpp"

namespace penstock::pool::sim {

class SimulatedTime {
 public:
  SimulatedTime();
  ~SimulatedTime();
  SimulatedTime(const SimulatedTime&) = delete;
  // Moves the clock to the moment for which the event loop asked to be woken, and wakes it. False: it waits for
  // nothing.
  bool advance();
  // Since the beginning, in microseconds.
  std::uint64_t elapsed_us() const;
};

}  // namespace penstock::pool::sim
