// How an application thread waits for what its neighbours do: it pumps the rings itself, spins for a bounded time, then
// sleeps on the doorbell that peers and the engine thread ring. No thread stands in between.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "base/clock.hpp"
#include "fabric/progress.hpp"
#include "memory/doorbell.hpp"
#include "penstock/interrupt.hpp"

namespace penstock::stream {

class Waiter {
 public:
  Waiter(std::shared_ptr<fabric::Progress> progress, std::uint32_t spin_us, memory::Doorbell bell)
      : progress_(std::move(progress)), bell_(std::move(bell)), spin_us_(spin_us) {}

  memory::Doorbell& bell() { return bell_; }
  fabric::Progress& progress() { return *progress_; }

  // Until ready() (called with the lock held; it pumps), the deadline, or interrupted() (asked every 100 ms). Returns the
  // last ready().
  template <class Ready>
  bool wait(std::unique_lock<std::mutex>& lock, Ready ready, base::Deadline deadline) {
    base::Clock::time_point next_question{};
    for (;;) {
      const auto seen = bell_.value();
      if (ready()) return true;
      if (deadline.passed()) return false;
      lock.unlock();
      if (const auto now = base::Clock::now(); now >= next_question) {
        if (next_question != base::Clock::time_point{} && interrupted()) {
          lock.lock();
          return ready();
        }
        next_question = now + fabric::interruption_period;
      }
      if (progress_->threaded()) {
        bell_.wait(seen, earlier(deadline, base::Deadline::at(next_question)), spin_us_);
      } else if (!progress_->poll()) {
        // Nobody else polls the sockets: look at them again soon, whatever the bell says.
        bell_.wait(seen, earlier(deadline, base::Deadline::at(base::Clock::now() + std::chrono::microseconds(200))),
                   spin_us_);
      }
      lock.lock();
    }
  }

 private:
  std::shared_ptr<fabric::Progress> progress_;
  memory::Doorbell bell_;
  std::uint32_t spin_us_;
};

}  // namespace penstock::stream
