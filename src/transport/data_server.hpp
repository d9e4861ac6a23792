// Answers reads of an arena's slots over links, on the thread of the process's SocketLoop.
//
// Any thread but the loop's. The destructor waits until the connections have ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "memory/arena.hpp"
#include "memory/unique_fd.hpp"
#include "transport/planes.hpp"

namespace penstock::transport {

class DataServer {
 public:
  explicit DataServer(std::shared_ptr<memory::Arena> arena);
  ~DataServer();

  // Takes an authenticated socket, of a plane that has links.
  void adopt(const Plane& plane, memory::UniqueFd socket, const std::string& peer_name);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace penstock::transport
