// The planes over which a process reads the memory of others, and the choice of one. A plane is a folder, and a line of the
// table in planes.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/endpoint.hpp"
#include "transport/data_plane.hpp"

namespace penstock::transport {

class ServedLink;
struct LinkSide;

struct Plane {
  std::string_view name;
  // How others reach the memory of a process that listens there: text that only the plane reads, without tabs
  // and line ends. Empty: not on this plane.
  std::string (*address)(const fabric::Endpoint& here);
  // Whether that memory can be reached from this process, as far as can be seen at once. Throws Error(protocol).
  bool (*reaches)(const std::string& address);
  // Of options, `writers` are addresses on this plane. Throws Error(protocol).
  std::unique_ptr<DataPlane> (*make)(std::shared_ptr<fabric::Progress> progress, DataPlaneOptions options);
  // A link over a connection whose two sides have agreed on this plane. Null: the plane has none, memory is mapped.
  std::shared_ptr<ServedLink> (*link)(LinkSide side) = nullptr;
  // Throws Error(unsupported), with what to do, where this build or this machine does not have what the plane needs. Null: it
  // is always there.
  void (*require)() = nullptr;
  // Whether it is offered to those who do not ask for it by name.
  bool automatic = true;
};
std::span<const Plane* const> planes();  // best first

// The plane of that name, which is there. Throws Error(unsupported).
const Plane& plane_named(std::string_view name);

// The plane that a peer has named, if it is offered: every automatic one, and the one that is `offered` by name. Throws
// Error(unsupported).
const Plane& offered_plane(std::string_view named, std::string_view offered);

// What a process tells those who are to read its memory: one line of text with its address on each automatic plane, or on one
// that is named.
std::string addresses_of(const fabric::Endpoint& here, std::string_view only = {});

struct PlaneChoice {
  const Plane* plane = nullptr;        // null: none reaches all of them
  std::vector<std::string> addresses;  // theirs on that plane
  // When there is none, of the last plane that was tried: the first that it does not reach, and whether that has an address.
  std::size_t unreached = 0;
  bool has_address = false;
};
// The best automatic plane on which all those can be reached who said this (addresses_of), or `only`. Throws Error(protocol).
PlaneChoice choose_plane(std::span<const std::string> said, std::string_view only = {});

}  // namespace penstock::transport
