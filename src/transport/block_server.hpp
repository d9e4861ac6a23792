// The writer rank's side of the data planes: gives readers its arena's segments (same node) or the bytes (links).
//
// Segments connections are told of every segment of the arena, at once and as they come. Data connections are served by
// the thread of the process's SocketLoop: the engine thread moves no bulk bytes. A reader that asks for nonsense gets an
// error reply; one that breaks the protocol or stops reading loses only its own connection.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fabric/connection.hpp"
#include "memory/arena.hpp"
#include "wire/handshake.hpp"

namespace penstock::transport {

class BlockServer {
 public:
  // offered: the name of a plane that is not automatic (planes.hpp).
  BlockServer(fabric::Progress& progress, std::shared_ptr<memory::Arena> arena, std::string_view offered = {});
  // Waits for the engine and worker threads to let go.
  ~BlockServer();

  // Takes a connection of purpose segments or data, as it comes from a Listener (on the engine thread).
  void adopt(std::shared_ptr<fabric::Connection> connection, const wire::Hello& hello);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
  const std::string offered_;
};

}  // namespace penstock::transport
