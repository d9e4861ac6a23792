#include "base/fork.hpp"

#include <pthread.h>

#include <atomic>

namespace penstock::base {

std::uint32_t forks() {
  static std::atomic<std::uint32_t> count{0};
  [[maybe_unused]] static const int told = ::pthread_atfork(nullptr, nullptr, [] { ++count; });
  return count.load(std::memory_order_relaxed);
}

}  // namespace penstock::base
