// The directory in etcd, by its v3 JSON gateway: survives machines, as long as most members live.
//
// HTTP blocks, so calls run on threads of this object, each watch on its own, heartbeats on another; results come back to the
// engine. When a member does not answer, the next one is asked, until the deadline. A conditional change whose answer was
// lost is made again; when that finds its own value under its own lease, it has succeeded, and when it cannot know,
// Error(peer_lost) says so: read it back. etcd's leases have whole seconds and a least time (usually 2 s): ttl is rounded up.
// The same revision may belong to several changes (entries of one lease that end together). No TLS, no user names: etcd is
// reached on the loopback or a network that is trusted.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "directory/directory.hpp"

namespace penstock::directory {

struct EtcdAddress {
  std::vector<std::string> members;  // "host:port"
  std::string root;                  // keys begin with it; begins with '/', default "/penstock"
};
// "etcd://host:port,host:port[/root]". Throws Error(invalid_argument).
EtcdAddress parse_etcd_address(std::string_view text);

// Loads the client when it is first called (etcd/part.hpp). Connects when the directory is first used. Throws Error:
// invalid_argument; unsupported when there is no client, or it belongs to another Penstock.
std::unique_ptr<Directory> open_etcd_directory(std::shared_ptr<fabric::Progress> progress, const EtcdAddress& address);

}  // namespace penstock::directory
