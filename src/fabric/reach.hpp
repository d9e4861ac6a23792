// Whether a process is on this host: its abstract Unix socket can be connected to. That is also what sharing memory takes.
#pragma once

#include "fabric/endpoint.hpp"

namespace penstock::fabric {

// At once, without a handshake. False for an endpoint without a Unix name.
bool reachable_locally(const Endpoint& endpoint);

}  // namespace penstock::fabric
