// A link of two processes that a thread of the library serves: each side may read and write the other's memory. This module's
// own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "memory/unique_fd.hpp"
#include "transport/source.hpp"
#include "transport/transfer.hpp"

namespace penstock::transport {

class ServedLink {
 public:
  virtual ~ServedLink() = default;
  // Any thread.
  virtual void start() = 0;
  virtual void submit(TransferPtr transfer) = 0;  // after the end it fails
  virtual void close() = 0;                       // tells nobody
  // The SocketLoop's thread. What was submitted fails with this error.
  virtual void end(const Error& error) = 0;
};

// One side of a link, before it is started.
struct LinkSide {
  memory::UniqueFd socket;         // of an authenticated connection to the peer
  std::shared_ptr<Source> source;  // null where the peer may ask for nothing
  std::string peer_name;
  std::function<void(const Error&)> on_end;  // once, on the SocketLoop's thread, unless close() came first
  bool accepted = false;                     // the peer connected: it speaks first
};

}  // namespace penstock::transport
