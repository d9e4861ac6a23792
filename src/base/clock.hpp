// Monotonic time and deadlines, and the time of day. Values; safe from any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "penstock/options.hpp"

namespace penstock::base {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The time of day, since 1970; hosts agree on it as far as their clocks do.
inline std::int64_t unix_time_us() {
  using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::system_clock;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

// A moment until which something may be waited for. Made once from the caller's Timeout, so that a wait of several parts
// keeps to one limit.
class Deadline {
 public:
  // `forever` never passes; zero or less has passed already. `configured` must have been resolved before.
  explicit Deadline(Timeout timeout) : when_(Clock::time_point::max()) {
    const auto now = Clock::now();
    if (timeout < std::chrono::duration_cast<Timeout>(Clock::time_point::max() - now)) when_ = now + timeout;
  }
  static Deadline never() { return Deadline(forever); }
  static Deadline at(Clock::time_point when) {
    Deadline deadline(forever);
    deadline.when_ = when;
    return deadline;
  }

  bool is_never() const { return when_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= when_; }
  // Rounded up, so that waiting for it reaches the deadline; `forever` when it never passes; at least zero.
  Timeout remaining() const {
    if (is_never()) return forever;
    return std::max(Timeout(0), std::chrono::ceil<Timeout>(when_ - Clock::now()));
  }
  // For wait_until and timers.
  Clock::time_point when() const { return when_; }

  friend Deadline earlier(Deadline a, Deadline b) { return a.when_ <= b.when_ ? a : b; }

 private:
  Clock::time_point when_;
};

}  // namespace penstock::base
