// The embedded directory's client: directory::Directory over a channel to a directory server (directory/server.hpp).
//
// Connects when it is first used, and again whenever the connection is lost, asking `locate` each time (a server that was
// restarted listens elsewhere). A conditional change whose answer was lost is made again; when that finds its own value under
// its own lease, it has succeeded, and when it cannot know, Error(peer_lost) says so: read it back. A heartbeat without an
// answer ends the connection, so that a server that hangs is noticed.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "directory/directory.hpp"
#include "fabric/endpoint.hpp"
#include "fabric/token.hpp"

namespace penstock::directory {

struct DirectoryLocation {
  fabric::Endpoint endpoint;
  fabric::Token token;
};
// Engine thread; may read a small file. Throws Error when nothing is known (it is asked again).
using LocateDirectory = std::function<DirectoryLocation()>;

// where: for describe and messages ("embedded at ..."). role: "write" or "read". fixed: `locate` says the same each time; then
// a token that is refused at the first connection is Error(authentication) at once, for no waiting mends it.
std::unique_ptr<Directory> open_embedded_directory(std::shared_ptr<fabric::Progress> progress, LocateDirectory locate,
                                                   std::string where, std::string role = "write", bool fixed = false);

}  // namespace penstock::directory
