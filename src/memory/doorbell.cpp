#include "memory/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace penstock::memory {

namespace {

using base::Clock;
using base::Deadline;

// A peer may write the page: should one spoil the count of sleepers, a wake-up is late by at most this much.
constexpr std::chrono::milliseconds longest_sleep{200};
// Reading the clock costs tens of nanoseconds (a system call on some virtual machines): look once in so many spins.
constexpr int spins_per_clock = 64;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Shared, not private, futexes: the page is mapped by several processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds timeout) {
  const timespec limit{static_cast<time_t>(timeout.count() / 1'000'000'000),
                       static_cast<long>(timeout.count() % 1'000'000'000)};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// True when the word changed within the time.
bool spin(const std::atomic<std::uint32_t>& word, std::uint32_t seen, Clock::time_point until) {
  do {
    for (int i = 0; i < spins_per_clock; ++i) {
      if (word.load(std::memory_order_acquire) != seen) return true;
      relax();
    }
  } while (Clock::now() < until);
  return false;
}

}  // namespace

Doorbell Doorbell::create() {
  UniqueFd fd;
  Mapping page = create_shared_page(fd);
  return {std::move(fd), std::move(page)};
}

Doorbell Doorbell::attach(int fd) { return {UniqueFd(), map_shared_page(fd)}; }

void Doorbell::ring() {
  if (!page_) return;
  // Sequentially consistent with wait: either the ringer sees the sleeper or the sleeper sees the new word.
  page().word.fetch_add(1, std::memory_order_seq_cst);
  if (page().sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(page().word);
}

std::uint32_t Doorbell::value() const { return page().word.load(std::memory_order_acquire); }

bool Doorbell::wait(std::uint32_t seen, Deadline deadline, std::uint32_t spin_us) const {
  std::atomic<std::uint32_t>& word = page().word;
  if (word.load(std::memory_order_acquire) != seen) return true;
  if (spin_us > 0 && spin(word, seen, std::min(Clock::now() + std::chrono::microseconds(spin_us), deadline.when())))
    return true;
  for (;;) {
    const auto left = deadline.when() - Clock::now();
    if (left <= left.zero()) return word.load(std::memory_order_acquire) != seen;
    page().sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(word, seen, std::min<std::chrono::nanoseconds>(left, longest_sleep));
    page().sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (word.load(std::memory_order_acquire) != seen) return true;
  }
}

}  // namespace penstock::memory
