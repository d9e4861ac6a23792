#include "pool/sim/clock.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

namespace {

constexpr std::int64_t beginning_ns = 1'000'000'000'000'000;  // far from zero: some moments lie before it

bool simulated = false;
std::int64_t now_ns = 0;
std::int64_t due_ns = -1;  // when the event loop wants to be woken; -1: never
int timer = -1;            // the event loop's
bool fired = false;        // advance has let it fire

int set_timer(int fd, int flags, const itimerspec* value, itimerspec* old) {
  return static_cast<int>(::syscall(SYS_timerfd_settime, fd, flags, value, old));
}

}  // namespace

// Instead of libstdc++'s.
std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  if (simulated) return time_point(duration(now_ns));
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

// Instead of glibc's: Asio's reactor sets its timer by this. The timer stays off; what it was to be set to is kept.
extern "C" int timerfd_settime(int fd, int flags, const itimerspec* value, itimerspec* old) noexcept {
  if (!simulated) return set_timer(fd, flags, value, old);
  timer = fd;
  due_ns = now_ns;  // an absolute moment is one that has passed
  if ((flags & TFD_TIMER_ABSTIME) == 0) due_ns += value->it_value.tv_sec * 1'000'000'000 + value->it_value.tv_nsec;
  const itimerspec off{};
  return std::exchange(fired, false) ? set_timer(fd, 0, &off, old) : 0;
}

namespace penstock::pool::sim {

SimulatedTime::SimulatedTime() {
  if (simulated) throw std::logic_error("time is simulated already");
  simulated = true;
  now_ns = beginning_ns;
  due_ns = timer = -1;
  fired = false;
}

SimulatedTime::~SimulatedTime() { simulated = false; }

bool SimulatedTime::advance() {
  if (due_ns < 0) return false;
  now_ns = std::max(now_ns, due_ns);
  due_ns = -1;
  itimerspec at_once{};
  at_once.it_value.tv_nsec = 1;
  set_timer(timer, 0, &at_once, nullptr);
  fired = true;
  pollfd ready{timer, POLLIN, 0};
  ::poll(&ready, 1, -1);
  return true;
}

std::uint64_t SimulatedTime::elapsed_us() const { return static_cast<std::uint64_t>(now_ns - beginning_ns) / 1000; }

}  // namespace penstock::pool::sim
