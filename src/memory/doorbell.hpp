// A word in a shared page on which a process sleeps and its peers wake it.
//
// Each process has one; peers map it and may write it, so it says only "look again": what happened is found elsewhere.
// The waiting pattern: seen = value(); look; if there is nothing, wait(seen, ...); look again. Any thread of any process
// that maps the page may ring; several threads may wait.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "memory/segment.hpp"

namespace penstock::memory {

class Doorbell {
 public:
  // This process's own. Throws Error(memory).
  static Doorbell create();
  // A peer's; the descriptor stays the caller's. Throws Error(protocol).
  static Doorbell attach(int fd);
  Doorbell() = default;  // rings nobody

  int fd() const { return fd_.get(); }  // -1 when attached
  explicit operator bool() const { return static_cast<bool>(page_); }

  void ring();
  std::uint32_t value() const;
  // Until the value is no longer `seen` (true) or the deadline passes (false): spins for spin_us at most, then sleeps.
  // May return true without need.
  bool wait(std::uint32_t seen, base::Deadline deadline, std::uint32_t spin_us) const;

 private:
  struct Page {
    std::atomic<std::uint32_t> word;
    std::atomic<std::uint32_t> sleepers;
  };
  Doorbell(UniqueFd fd, Mapping page) : fd_(std::move(fd)), page_(std::move(page)) {}
  Page& page() const { return *reinterpret_cast<Page*>(page_.data()); }
  UniqueFd fd_;
  Mapping page_;
};

}  // namespace penstock::memory
