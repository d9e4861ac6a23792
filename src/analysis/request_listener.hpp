// Listens for the requests of a channel's analysis, on a thread of its own: the simulation never waits for a peer, and asks for
// news at the cost of one load.
//
// The thread opens the stream NAME.requests whenever there is one, keeps the newest text that came, and goes back to looking
// when the stream has ended or its writer is lost. Public functions: one thread at a time, not the listener's own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "penstock/stream.hpp"

namespace penstock::analysis {

class RequestListener {
 public:
  // The context outlives it.
  RequestListener(const Context& context, std::string stream);
  // Returns within about 100 ms: the library looks that often whether a wait is to end.
  ~RequestListener();
  RequestListener(const RequestListener&) = delete;

  // The newest text that came since the last call and differs from the one before; nothing, usually.
  std::optional<std::string> take();
  // Until there is one, or the deadline, or give_up() says so, which is asked a few times a second. False: there is none.
  bool wait(base::Deadline deadline, const std::function<bool()>& give_up);
  // What is awaited, for error messages: the stream, or a step of it.
  std::string awaited() const;

 private:
  void run();
  void listen();
  void note(std::string text);
  void pause();
  static bool asked_to_stop(void* self);

  const Context& context_;
  const std::string stream_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> news_ = false;
  std::atomic<bool> urgent_ = false;  // somebody waits: look for the stream all the time
  mutable std::mutex mutex_;          // guards what follows
  std::condition_variable changed_;
  std::string newest_, last_;
  std::string state_;
  std::thread thread_;  // last: it uses all of that
};

}  // namespace penstock::analysis
