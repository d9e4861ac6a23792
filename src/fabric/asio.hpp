// The event loop as this module's sources see it; no header of another room includes this one.
#pragma once

#include <version>  // first: Asio asks the standard library's macros how to allocate, and all sources must have one answer

#include <asio.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/fork.hpp"
#include "fabric/progress.hpp"

namespace penstock::fabric {

struct Progress::Impl {
  explicit Impl(Mode mode) : threaded(mode == Mode::threaded) {}

  const std::shared_ptr<const int> life = std::make_shared<const int>();  // as long as this
  const bool threaded;
  const base::Origin origin;              // in a forked child nobody runs the loop
  std::atomic<std::thread::id> engine{};  // which thread runs the loop just now
  std::mutex mutex;                       // guards `notices`, for wait_for
  std::condition_variable changed;
  std::uint64_t notices = 0;
  std::thread thread;
  // What must let go of its callbacks when the loop has ended, because they may own it. Guarded by `mutex`.
  std::unordered_map<const void*, std::function<void()>> owners;
  // Last, so destroyed first: what handlers own may still use the rest.
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(context);
};

// Breaks the cycles of connections that own themselves through their callbacks. The loop runs no more.
void release_owners(Progress::Impl& impl);

inline asio::io_context& context_of(Progress& progress) { return progress.impl().context; }

}  // namespace penstock::fabric
