// Connects to a Listener and authenticates, on the engine or blocking.
//
// automatic tries the Unix name first (it fails at once on another node), then each TCP address. A listener that has no
// place for the handshake (`overloaded`) is tried again until the deadline. Errors: timeout, peer_lost (nobody answers;
// the message names each address tried), authentication, unsupported (a peer of another version), protocol.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "fabric/connection.hpp"
#include "fabric/endpoint.hpp"
#include "fabric/token.hpp"
#include "wire/handshake.hpp"

namespace penstock::fabric {

// done is called exactly once, on the engine thread, with a connection that is not started, or with an error.
void connect_async(Progress& progress, const Endpoint& endpoint, const Token& token, wire::Hello hello, Reach reach,
                   base::Deadline deadline,
                   std::function<void(std::shared_ptr<Connection>, std::optional<Error>)> done);

// The socket (blocking mode) after the handshake; at most up to the deadline in this thread. A thread that is interrupted
// (penstock/interrupt.hpp) gets Error(timeout).
UniqueFd connect_blocking(const Endpoint& endpoint, const Token& token, wire::Hello hello, Reach reach,
                          base::Deadline deadline);

// Whether the stream's writer answers there: somebody listens at the Unix name, which nobody else can have, or proves
// over TCP that it knows the token. Nothing is logged at the other end.
bool answers(const Endpoint& endpoint, const Token& token, const std::string& stream, base::Deadline deadline);

}  // namespace penstock::fabric
