#include "transport/planes.hpp"

#include "base/text.hpp"
#include "penstock/error.hpp"
#include "transport/shm/shm_plane.hpp"
#include "transport/tcp/tcp_plane.hpp"
#include "transport/ucx/ucx_plane.hpp"

namespace penstock::transport {
namespace {

constexpr const Plane* table[] = {&shm_plane, &tcp_plane, &ucx_plane};

// "shm ADDRESS", "tcp ADDRESS": parts of a line, between tabs.
std::string address_in(const std::string& said, std::string_view plane) {
  for (const auto part : said.empty() ? std::vector<std::string_view>() : base::split(said, '\t')) {
    const auto blank = part.find(' ');
    if (blank == std::string_view::npos)
      throw Error(Errc::protocol, "not the addresses of a process: no blank in a part");
    if (part.substr(0, blank) == plane) return std::string(part.substr(blank + 1));
  }
  return {};
}

}  // namespace

std::span<const Plane* const> planes() { return table; }

const Plane& plane_named(std::string_view name) {
  std::string names;
  for (const auto* plane : table) {
    if (plane->name == name) {
      if (plane->require != nullptr) plane->require();
      return *plane;
    }
    names.append(names.empty() ? "" : ", ").append(plane->name);
  }
  throw Error(Errc::unsupported, "there is no data plane '" + std::string(name) + "'; there are " + names);
}

const Plane& offered_plane(std::string_view named, std::string_view offered) {
  for (const auto* plane : table)
    if (plane->name == named && !plane->automatic && named != offered)
      throw Error(Errc::unsupported, "the data plane " + std::string(named) + " is not offered here");
  return plane_named(named);
}

std::string addresses_of(const fabric::Endpoint& here, std::string_view only) {
  std::string line;
  for (const auto* plane : table) {
    if (only.empty() ? !plane->automatic : plane->name != only) continue;
    if (const auto address = plane->address(here); !address.empty())
      line.append(line.empty() ? "" : "\t").append(plane->name).append(" ").append(address);
  }
  return line;
}

PlaneChoice choose_plane(std::span<const std::string> said, std::string_view only) {
  PlaneChoice choice;
  for (const auto* plane : table) {
    if (only.empty() ? !plane->automatic : plane->name != only) continue;
    choice.addresses.clear();
    for (const auto& one : said) {
      auto address = address_in(one, plane->name);
      choice.has_address = !address.empty();
      if (!choice.has_address || !plane->reaches(address)) break;
      choice.addresses.push_back(std::move(address));
    }
    choice.unreached = choice.addresses.size();
    if (choice.unreached != said.size()) continue;
    choice.plane = plane;
    return choice;
  }
  return choice;
}

}  // namespace penstock::transport
