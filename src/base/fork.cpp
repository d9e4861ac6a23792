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

constexpr std::size_t most_sockets = 1 << 16;  // those with higher numbers stay open in children

std::atomic<std::uint32_t> fork_count{0};
// Inode numbers by descriptor: a number that has come to mean something else since is left alone.
std::array<std::atomic<ino_t>, most_sockets> sockets{};
std::atomic<std::size_t> sockets_end{0};  // above the highest

// In the child, where only what is safe in a signal handler may be called.
void in_child() {
  ++fork_count;
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  for (std::size_t fd = 0; fd < sockets_end.load(); ++fd) {
    const ino_t inode = sockets[fd].exchange(0);
    struct stat now {};
    if (inode != 0 && ::fstat(static_cast<int>(fd), &now) == 0 && S_ISSOCK(now.st_mode) && now.st_ino == inode)
      ::dup3(nothing, static_cast<int>(fd), O_CLOEXEC);
  }
  ::close(nothing);
}

void watch_forks() { [[maybe_unused]] static const int told = ::pthread_atfork(nullptr, nullptr, in_child); }

}  // namespace

void leave_to_parent(int socket) {
  watch_forks();
  struct stat now {};
  if (socket < 0 || static_cast<std::size_t>(socket) >= most_sockets || ::fstat(socket, &now) != 0) return;
  const auto fd = static_cast<std::size_t>(socket);
  sockets[fd].store(now.st_ino);
  for (auto end = sockets_end.load(); end <= fd && !sockets_end.compare_exchange_weak(end, fd + 1);) {
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
