// Bytes are asked of the writers' block servers over TCP, and received in the calling thread.
#pragma once

#include "transport/planes.hpp"

namespace penstock::transport {

extern const Plane tcp_plane;

}  // namespace penstock::transport
