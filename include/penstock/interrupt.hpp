// Ending a wait early, for language bindings. A thread that waits inside the library runs no interpreter: without this, Ctrl-C
// would be noticed at the call's deadline. While a handler is set for a thread, every wait of that thread in the library asks it,
// about every 100 ms. Once it has said yes the calls end, as by a deadline that has passed: with Error(cancelled) or
// Error(timeout), or as not ready. What the servers were asked for goes on there until the call's own deadline. Calls that use the
// caller's memory (Pool::put) are Uninterrupted: they could not give it back.
//
// Threads: a handler is its own thread's; others do not see it.
#pragma once

namespace penstock {

class InterruptHandler {
 public:
  // ask: no lock of the library is held; it must not throw. Handlers may be nested: the innermost is asked.
  InterruptHandler(bool (*ask)(void* context), void* context);
  ~InterruptHandler();
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

 private:
  friend bool interrupted();
  bool (*const ask_)(void*);
  void* const context_;
  bool said_yes_ = false;
  InterruptHandler* const before_;
};

// While it lives, this thread's waits are not interrupted, whatever handler is set around it.
class Uninterrupted {
  InterruptHandler handler_{[](void*) { return false; }, nullptr};
};

// Asks this thread's handler; false where there is none. Once true, true until the handler is gone.
bool interrupted();

}  // namespace penstock
