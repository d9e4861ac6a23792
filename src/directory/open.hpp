// Where the directory is, and a client for it. Values:
//
//   embedded                                       registered as "directory" in the registration directory (directory/server.hpp)
//   tcp://host:port/directory?token=hex            an embedded one, by its address
//   tcp://host:port/directory.read?token=hex       the same, for who may change nothing there and see no secrets
//   etcd://host:port,host:port[/root]              etcd (directory/etcd/directory.hpp)
#pragma once

#include <memory>
#include <string>

#include "directory/directory.hpp"

namespace penstock::directory {

// configured, else $PENSTOCK_DIRECTORY_SERVICE, else "embedded".
std::string resolve_directory_service(const std::string& configured);

// where: as resolved. registration_directory: where streams register, as fabric::resolve_directory takes it; when that is a
// service, "embedded" means it. Nothing is connected yet; a directory that
// is not there is found out by the first call. Throws Error: invalid_argument (names what is wrong, not the token), unsupported.
std::unique_ptr<Directory> open_directory(std::shared_ptr<fabric::Progress> progress, const std::string& where,
                                          const std::string& registration_directory);

// The second form above, from the first or the registered one. Throws Error: not_found, unsupported (etcd).
std::string reader_address(const std::string& where, const std::string& registration_directory);

}  // namespace penstock::directory
