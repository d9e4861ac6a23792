// One thread that waits for the sockets of all bulk connections of the process. This module's own.
#pragma once

#include <functional>
#include <memory>

#include "rpc/bulk_link.hpp"

namespace penstock::rpc {

class BulkLoop {
 public:
  // The process's, as long as somebody holds it.
  static std::shared_ptr<BulkLoop> shared();
  ~BulkLoop();
  // Any thread; runs on the loop's, in order.
  void post(std::function<void()> command);
  // The loop's thread. A link that is added is kept until it is removed.
  void add(const std::shared_ptr<BulkLink>& link, int socket);
  void watch(BulkLink& link, int socket, bool writes);
  void remove(BulkLink& link, int socket);

 private:
  struct Impl;
  BulkLoop();
  static void deliver(BulkLink& link, std::uint32_t events);
  std::shared_ptr<Impl> impl_;
};

}  // namespace penstock::rpc
