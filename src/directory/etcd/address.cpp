#include "base/text.hpp"
#include "base/uri.hpp"
#include "directory/etcd/directory.hpp"
#include "directory/state.hpp"
#include "penstock/error.hpp"

namespace penstock::directory {

EtcdAddress parse_etcd_address(std::string_view text) {
  constexpr std::string_view scheme = "etcd://";
  if (!text.starts_with(scheme))
    throw Error(Errc::invalid_argument, "an etcd address is etcd://host:port[,host:port][/root]");
  text.remove_prefix(scheme.size());
  EtcdAddress address;
  const auto slash = text.find('/');
  address.root = slash == std::string_view::npos ? "" : std::string(text.substr(slash));
  while (address.root.ends_with('/')) address.root.pop_back();
  if (address.root.empty()) address.root = "/penstock";
  check_path(address.root);
  for (const auto member : base::split(text.substr(0, slash), ',')) {
    std::string host;
    std::uint16_t port = 0;
    base::parse_endpoint(member, host, port);
    address.members.push_back(base::format_endpoint(host, port));
  }
  return address;
}

}  // namespace penstock::directory
