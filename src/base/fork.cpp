#include "base/fork.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "penstock/error.hpp"

namespace penstock::base {

namespace {

constexpr std::size_t most_left = 1 << 16;  // descriptors with higher numbers stay open in children

std::atomic<std::uint32_t> fork_count{0};
// By descriptor, what it was open on: a number that has come to mean something else since is left alone.
std::array<std::atomic<std::uint64_t>, most_left> left{};
std::atomic<std::size_t> left_end{0};  // above the highest

std::uint64_t identity(const struct stat& of) {
  return (static_cast<std::uint64_t>(of.st_ino) ^ static_cast<std::uint64_t>(of.st_dev) << 44) | std::uint64_t{1} << 63;
}

// In the child, where only what is safe in a signal handler may be called.
void in_child() {
  ++fork_count;
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  for (std::size_t fd = 0; fd < left_end.load(); ++fd) {
    const auto before = left[fd].exchange(0);
    struct stat now {};
    if (before != 0 && ::fstat(static_cast<int>(fd), &now) == 0 && identity(now) == before)
      ::dup3(nothing, static_cast<int>(fd), O_CLOEXEC);
  }
  ::close(nothing);
}

void watch_forks() { [[maybe_unused]] static const int told = ::pthread_atfork(nullptr, nullptr, in_child); }

}  // namespace

void leave_to_parent(int descriptor) {
  watch_forks();
  struct stat now {};
  if (descriptor < 0 || static_cast<std::size_t>(descriptor) >= most_left || ::fstat(descriptor, &now) != 0) return;
  const auto fd = static_cast<std::size_t>(descriptor);
  left[fd].store(identity(now));
  for (auto end = left_end.load(); end <= fd && !left_end.compare_exchange_weak(end, fd + 1);) {
  }
}

std::uint32_t forks() {
  watch_forks();
  return fork_count.load(std::memory_order_relaxed);
}

void Origin::check(const std::string& what) const {
  if (inherited()) throw Error(Errc::wrong_state, what + " was made before a fork, and belongs to the parent process");
}

}  // namespace penstock::base
