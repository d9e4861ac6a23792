// Listens on an abstract Unix socket and on TCP, and hands over only the peers that prove that they know the token.
//
// Bounds on peers that have not proved it: at most 128 of this process's user and of root over the Unix socket, and 128 of
// all others (guest_table.hpp says who is displaced when there are more); ten seconds for the handshake; frames of 4 KiB
// and no descriptors. A peer that is displaced, or for which the process has no descriptor left, is refused with
// `overloaded`, and connects again (connect.hpp). Peers that have proved the token are not bounded here.
// Refusals are logged at most once a second. on_peer runs on the engine thread; it is not called any more once the Listener
// is destroyed (any thread; waits for the engine thread).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "fabric/connection.hpp"
#include "fabric/endpoint.hpp"
#include "fabric/token.hpp"
#include "wire/handshake.hpp"

namespace penstock::fabric {

class Listener {
 public:
  // The connection is authenticated and not started.
  using OnPeer = std::function<void(std::shared_ptr<Connection>, const wire::Hello&)>;

  // address: an IPv4 or IPv6 address for TCP; "": every interface. port: taken when it is free; 0: any. Throws Error(system,
  // invalid_argument).
  Listener(Progress& progress, const Token& token, std::string stream, const std::string& address, OnPeer on_peer);
  // For many names, each with its own token; name: for messages. token_of is called on the engine thread.
  Listener(Progress& progress, TokenOf token_of, std::string name, const std::string& address, OnPeer on_peer,
           std::uint16_t port = 0);
  ~Listener();

  const Endpoint& endpoint() const;

 private:
  struct Impl;
  void listen(const std::string& address, std::uint16_t port);
  std::shared_ptr<Impl> impl_;
};

}  // namespace penstock::fabric
