// One thread that waits for the sockets over which this process moves bytes to others. This module's own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace penstock::transport {

class SocketLoop {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void on_events(std::uint32_t events) = 0;  // of epoll
  };

  // The process's, as long as somebody holds it.
  static std::shared_ptr<SocketLoop> shared();
  ~SocketLoop();
  // Any thread; runs on the loop's, in order.
  void post(std::function<void()> command);
  // The same, and waits until it has run. Not on the loop's thread.
  void call(const std::function<void()>& command);
  // The loop's thread. A handler that is added is kept until it is removed. It is always told that its socket is readable, and that
  // it is writable if it watches for that.
  void add(const std::shared_ptr<Handler>& handler, int socket);
  void watch(Handler& handler, int socket, bool reads, bool writes);
  void remove(Handler& handler, int socket);

 private:
  struct Impl;
  SocketLoop();
  std::shared_ptr<Impl> impl_;
};

}  // namespace penstock::transport
