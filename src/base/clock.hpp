// Monotonic time and deadlines. Values; safe from any thread.
#pragma once

#include <algorithm>
#include <chrono>

#include "penstock/options.hpp"

namespace penstock::base {

using Clock = std::chrono::steady_clock;

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
