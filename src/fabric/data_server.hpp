// Answers reads of an arena's slots over TCP: one worker thread, any number of connections, no thread per reader.
//
// Bytes go from the arena to the socket without a copy where they are contiguous, through a small buffer where they are
// not. adopt may be called from any thread; the destructor joins the worker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "memory/arena.hpp"
#include "memory/unique_fd.hpp"

namespace penstock::fabric {

class DataServer {
 public:
  explicit DataServer(std::shared_ptr<memory::Arena> arena);
  ~DataServer();

  // Takes an authenticated socket.
  void adopt(memory::UniqueFd socket, std::string peer_name);
  std::uint64_t bytes_served() const;
  std::size_t connections() const;

 private:
  class Session;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::fabric
