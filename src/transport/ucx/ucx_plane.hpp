// The plane for networks that UCX knows (InfiniBand, RoCE, shared memory, TCP): links of active messages, whose bodies UCX moves
// by rendezvous, from one side's array straight into the other's where the network can. UCX knows no tokens: who reaches its
// port can send to it. So the plane is for networks that are trusted, and used only where somebody asks for it by name.
#pragma once

#include "transport/planes.hpp"

namespace penstock::transport {

extern const Plane ucx_plane;

}  // namespace penstock::transport
