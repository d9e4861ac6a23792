// The writers' segments are mapped, and the caller copies straight from them. Needs all writers on this node.
#pragma once

#include "transport/planes.hpp"

namespace penstock::transport {

extern const Plane shm_plane;

}  // namespace penstock::transport
