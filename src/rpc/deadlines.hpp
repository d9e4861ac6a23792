// Which of many numbered things is due next. One timer on the engine for all of them; things that have ended are forgotten
// lazily, so that adding and ending cost little. Not synchronised: its owner's lock guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "fabric/progress.hpp"

namespace penstock::rpc {

class Deadlines {
 public:
  using Clock = base::Clock;

  // alive: how many things have not ended, and is_alive whether one has: what has ended is swept out now and then.
  // fire is called on the engine thread when something may be due; its owner then calls take_due.
  void add(fabric::Progress& progress, base::Deadline deadline, std::uint64_t id, std::size_t alive,
           const std::function<bool(std::uint64_t)>& is_alive, const std::function<void()>& fire) {
    if (deadline.is_never()) return;
    if (heap_.size() > 1024 && heap_.size() > 4 * alive) {
      std::erase_if(heap_, [&](const Due& due) { return !is_alive(due.id); });
      std::make_heap(heap_.begin(), heap_.end(), later);
    }
    heap_.push_back({deadline.when(), id});
    std::push_heap(heap_.begin(), heap_.end(), later);
    if (deadline.when() < armed_for_) arm(progress, deadline.when(), fire);
  }

  // Those whose deadline has passed, dead ones among them; arms the timer for the next.
  std::vector<std::uint64_t> take_due(fabric::Progress& progress, const std::function<void()>& fire) {
    std::vector<std::uint64_t> due;
    const auto now = Clock::now();
    while (!heap_.empty() && heap_.front().when <= now) {
      due.push_back(heap_.front().id);
      std::pop_heap(heap_.begin(), heap_.end(), later);
      heap_.pop_back();
    }
    armed_for_ = Clock::time_point::max();
    if (!heap_.empty()) arm(progress, heap_.front().when, fire);
    return due;
  }

  void clear() {
    heap_.clear();
    timer_.cancel();
  }

 private:
  struct Due {
    Clock::time_point when;
    std::uint64_t id;
  };
  static bool later(const Due& a, const Due& b) { return a.when > b.when; }
  void arm(fabric::Progress& progress, Clock::time_point when, const std::function<void()>& fire) {
    armed_for_ = when;
    timer_ = progress.after(std::max(Clock::duration(0), when - Clock::now()), fire);
  }

  std::vector<Due> heap_;
  Clock::time_point armed_for_ = Clock::time_point::max();
  fabric::Timer timer_;
};

}  // namespace penstock::rpc
