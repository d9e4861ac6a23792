// The engine: one event loop that runs a process's protocols.
//
// Threaded: one library thread with all signals blocked. Explicit: whoever calls poll() is the engine thread meanwhile.
// Callbacks run on the engine thread, must not block and must not throw. A Progress outlives everything made on it
// (connections, listeners, planes); destroying it stops the loop, drops what was posted and joins the thread.
// All functions may be called from any thread, except poll (one at a time).
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/clock.hpp"

namespace penstock::fabric {

// How often a wait asks whether the application wants to be interrupted (penstock/interrupt.hpp).
inline constexpr std::chrono::milliseconds interruption_period{100};

// A pending callback. Destroying it cancels it; cancelled on the engine thread, it does not run any more.
class Timer {
 public:
  Timer() = default;
  Timer(Timer&&) noexcept = default;
  Timer& operator=(Timer&& other) noexcept;
  ~Timer() { cancel(); }
  void cancel();

 private:
  friend class Progress;
  struct State;
  explicit Timer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class Progress {
 public:
  enum class Mode { threaded, explicit_poll };
  explicit Progress(Mode mode = Mode::threaded);
  // Shared, and safe to be let go of last by what runs on it: then another thread destroys it.
  static std::shared_ptr<Progress> create(Mode mode = Mode::threaded);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void post(std::function<void()> task);
  Timer after(std::chrono::nanoseconds delay, std::function<void()> task);

  // Runs task on the engine thread and returns when it is done (at once when this is the engine thread, or in explicit
  // mode). Rethrows what it throws.
  void call(const std::function<void()>& task);
  bool on_engine_thread() const;
  // Throws Error(wrong_state) on the library's thread, which would wait for itself, as in a callback that makes a call that waits.
  void require_may_wait() const;

  // Explicit mode: runs what is ready; true when something ran. Threaded: false.
  bool poll();
  bool threaded() const;

  // Waits until ready() (called in this thread), the deadline, or penstock::interrupted() (asked every 100 ms);
  // returns the last ready(). In explicit mode it polls meanwhile. Whoever changes what ready() looks at calls notify().
  // Throws Error(wrong_state) as require_may_wait does, instead of waiting.
  bool wait_for(const std::function<bool()>& ready, base::Deadline deadline);
  void notify();

  struct Impl;  // fabric's own: fabric/asio.hpp
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::fabric
