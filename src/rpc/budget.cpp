#include <algorithm>
#include <deque>
#include <mutex>

#include "rpc/budget.hpp"

namespace penstock::rpc {

struct Budget::Credit::Owner {
  Owner(fabric::Progress& p, std::uint64_t bytes) : progress(p), total(bytes), free(bytes) {}

  struct Waiter {
    Waiter(fabric::Progress& progress, std::uint64_t amount) : bytes(amount), changed(progress) {}
    const std::uint64_t bytes;
    int overtaken = 0;
    bool granted = false;
    fabric::Promise<void> changed;  // granted, or too late
  };

  // With the mutex held: serves the queue in order; those that do not fit may be overtaken, but not too often.
  void grant() {
    for (auto at = waiting.begin(); at != waiting.end();) {
      Waiter& waiter = **at;
      if (waiter.bytes > free) {
        if (waiter.overtaken >= max_overtakes) return;
        ++at;
        continue;
      }
      for (auto before = waiting.begin(); before != at; ++before) ++(*before)->overtaken;
      free -= waiter.bytes;
      waiter.granted = true;
      waiter.changed.set();
      at = waiting.erase(at);
      if (std::any_of(waiting.begin(), at, [](const auto& w) { return w->overtaken >= max_overtakes; })) return;
    }
  }
  void give_back(std::uint64_t bytes) {
    std::lock_guard lock(mutex);
    free += bytes;
    grant();
  }

  fabric::Progress& progress;
  const std::uint64_t total;
  mutable std::mutex mutex;  // guards what follows
  std::uint64_t free;
  std::deque<std::shared_ptr<Waiter>> waiting;
};

Budget::Credit::Credit(Credit&& other) noexcept
    : owner_(std::move(other.owner_)), bytes_(std::exchange(other.bytes_, 0)) {}

Budget::Credit& Budget::Credit::operator=(Credit&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Budget::Credit::~Credit() {
  if (owner_) owner_->give_back(bytes_);
}

Budget::Budget(fabric::Progress& progress, std::uint64_t bytes)
    : owner_(std::make_shared<Credit::Owner>(progress, bytes)) {}

Budget::~Budget() = default;

std::optional<Budget::Credit> Budget::try_acquire(std::uint64_t bytes) {
  std::lock_guard lock(owner_->mutex);
  if (!owner_->waiting.empty() || bytes > owner_->free) return std::nullopt;
  owner_->free -= bytes;
  Credit credit;
  credit.owner_ = owner_;
  credit.bytes_ = bytes;
  return credit;
}

Task<Budget::Credit> Budget::acquire(std::uint64_t bytes, base::Deadline deadline) {
  const auto owner = owner_;
  if (bytes > owner->total)
    throw Error(Errc::invalid_argument,
                std::to_string(bytes) + " bytes are more than the budget of " + std::to_string(owner->total));
  const auto waiter = std::make_shared<Credit::Owner::Waiter>(owner->progress, bytes);
  // Gives back what a dropped or late task does not take.
  struct Place {
    std::shared_ptr<Credit::Owner> owner;
    std::shared_ptr<Credit::Owner::Waiter> waiter;
    ~Place() {
      if (!waiter) return;
      std::lock_guard lock(owner->mutex);
      if (waiter->granted) owner->free += waiter->bytes;
      else std::erase(owner->waiting, waiter);
      owner->grant();
    }
  };
  Place place{owner, waiter};
  {
    std::lock_guard lock(owner->mutex);
    owner->waiting.push_back(waiter);
    owner->grant();
  }
  auto future = waiter->changed.future();
  fabric::Timer timer;
  if (!deadline.is_never() && !future.done())
    timer = owner->progress.after(deadline.remaining(), [waiter] { waiter->changed.set(); });
  co_await std::move(future);
  std::lock_guard lock(owner->mutex);
  if (!waiter->granted)
    throw Error(Errc::timeout, "no memory for " + std::to_string(bytes) + " bytes came free in time");
  place.waiter = nullptr;
  Credit credit;
  credit.owner_ = owner;
  credit.bytes_ = bytes;
  co_return credit;
}

std::uint64_t Budget::total_bytes() const { return owner_->total; }

std::uint64_t Budget::free_bytes() const {
  std::lock_guard lock(owner_->mutex);
  return owner_->free;
}

std::uint64_t Budget::waiting() const {
  std::lock_guard lock(owner_->mutex);
  return owner_->waiting.size();
}

}  // namespace penstock::rpc
