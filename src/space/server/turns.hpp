// Who may convert now: first come, first served, so many at a time. A turn that ends passes to the next. Engine thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "base/clock.hpp"
#include "fabric/task.hpp"

namespace penstock::space {

class Turns {
 public:
  // most: how many at a time; asked for each turn, and at least one.
  Turns(fabric::Progress& progress, std::function<std::size_t()> most) : progress_(progress), most_(std::move(most)) {}

  // Held by the work it is for.
  class Turn {
   public:
    explicit Turn(std::shared_ptr<Turns> of) : of_(std::move(of)) {}
    Turn(const Turn&) = delete;
    ~Turn() { of_->pass_on(); }

   private:
    const std::shared_ptr<Turns> of_;
  };

  // Throws Error(timeout).
  static fabric::Task<std::unique_ptr<Turn>> take(std::shared_ptr<Turns> of, base::Deadline deadline) {
    if (of->running_ < of->most_() && of->waiting_.empty()) {
      ++of->running_;
      co_return std::make_unique<Turn>(std::move(of));
    }
    auto promise = std::make_shared<fabric::Promise<bool>>(of->progress_);
    of->waiting_.push_back(promise);
    fabric::Timer timer;
    if (!deadline.is_never())
      timer = of->progress_.after(deadline.remaining(), [of, promise] {
        if (std::erase(of->waiting_, promise) > 0) promise->set(false);
      });
    const bool granted = co_await promise->future();
    if (!granted) throw Error(Errc::timeout, "the conversion had no turn in time");
    co_return std::make_unique<Turn>(std::move(of));
  }

 private:
  void pass_on() {
    --running_;
    while (!waiting_.empty() && running_ < most_()) {
      const auto next = std::move(waiting_.front());
      waiting_.pop_front();
      ++running_;
      next->set(true);
    }
  }

  fabric::Progress& progress_;
  const std::function<std::size_t()> most_;
  std::size_t running_ = 0;
  std::deque<std::shared_ptr<fabric::Promise<bool>>> waiting_;
};

}  // namespace penstock::space
