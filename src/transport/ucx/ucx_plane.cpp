#include "transport/ucx/ucx_plane.hpp"

#include "fabric/reach.hpp"
#include "transport/linked_plane.hpp"
#include "transport/ucx/part.hpp"

namespace penstock::transport {

namespace {

const UcxPart& part() {
  static const auto& loaded = static_cast<const UcxPart&>(  // tried again after an error
      base::load_part({"data_plane=ucx", "libpenstock_ucx.so", "penstock_ucx_part",
                       "install UCX (Debian: libucx-dev) and build Penstock again", &penstock_ucx_part}));
  return loaded;
}

}  // namespace

// Links begin as connections of the fabric, which know tokens.
const Plane ucx_plane{
    .name = "ucx",
    .address = [](const fabric::Endpoint& here) { return fabric::to_text(here); },
    .reaches =
        [](const std::string& address) {
          const auto endpoint = fabric::endpoint_from_text(address);
          return !endpoint.tcp_hosts.empty() || fabric::reachable_locally(endpoint);
        },
    .make = [](std::shared_ptr<fabric::Progress>, DataPlaneOptions options) -> std::unique_ptr<DataPlane> {
      part();
      return std::make_unique<LinkedPlane>(ucx_plane, std::move(options));
    },
    .link = [](LinkSide side) { return part().link(std::move(side)); },
    .require = [] { part(); },
    .automatic = false};

}  // namespace penstock::transport
