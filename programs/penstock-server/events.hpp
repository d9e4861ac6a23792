// What the main thread waits for: SIGTERM, SIGINT, and other threads.
#pragma once

#include <chrono>
#include <optional>

#include "memory/unique_fd.hpp"

namespace penstock::server {

class Events {
 public:
  // Before any thread is started, so that all of them have the signals blocked. Ignores SIGHUP (the terminal is gone; a server
  // goes on) and SIGPIPE. Throws Error(system).
  Events();
  void wake();
  // Waits until a signal came (its number) or wake was called (0); empty: nothing came in time. Without a time: for ever.
  std::optional<int> wait(std::optional<std::chrono::milliseconds> timeout = {});

 private:
  memory::UniqueFd wake_, signals_;
};

}  // namespace penstock::server
