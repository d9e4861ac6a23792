#include "base/fork.hpp"

#include <pthread.h>

#include <atomic>

#include "penstock/error.hpp"

namespace penstock::base {

std::uint32_t forks() {
  static std::atomic<std::uint32_t> count{0};
  [[maybe_unused]] static const int told = ::pthread_atfork(nullptr, nullptr, [] { ++count; });
  return count.load(std::memory_order_relaxed);
}

void Origin::check(const std::string& what) const {
  if (inherited())
    throw Error(Errc::wrong_state, what + " was made before a fork, and belongs to the parent process");
}

}  // namespace penstock::base
