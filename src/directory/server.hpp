// The embedded directory's server side: a service (directory/directory.fbs) over a DirectoryState, journaled to disk.
//
// A change is acknowledged once it is on disk; changes that arrive while the disk is busy share the next sync. Answers to reads
// and watches wait for the changes they show, so nobody sees what a crash could take back. When the disk is full, changes are
// refused with Error(system) until it has room, and reads go on. Peers whose role is "read" may not change anything, and do not
// see entries whose last name is "secret". Each
// channel may have max_watches long polls under way; everything else is bounded by DirectoryLimits.
#pragma once

#include <memory>
#include <string>

#include "directory/state.hpp"
#include "fabric/registration.hpp"
#include "rpc/channel.hpp"

namespace penstock::directory {

struct DirectoryServerOptions {
  std::string folder;  // for the journal; "": nothing is kept
  bool synced = true;  // false: what was acknowledged survives the process's death, but not the machine's
  DirectoryLimits limits;
  std::size_t max_watches = 1024;  // of one channel
};

// To be offered in a ServiceTable.
class DirectoryServer {
 public:
  // Recovers what the folder holds. Throws Error: wrong_state (another process has the folder), protocol (damaged), system.
  DirectoryServer(std::shared_ptr<Progress> progress, DirectoryServerOptions options);
  // Lets go of the folder; calls that come later are refused. Waits for the disk at most. Any thread.
  ~DirectoryServer();
  std::shared_ptr<rpc::Service> service() const;
  std::size_t leases() const;  // that have not ended; any thread

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// A server of its own: listens, lets in who knows the token as "directory/write", or the readers' token as "directory/read",
// and registers as "directory" in the registration directory. Its port and token are kept in the folder: one that is started
// again there has the same address, unless somebody else has taken the port.
inline constexpr std::string_view directory_registration = "directory";
inline constexpr std::string_view reader_registration = "directory.read";  // in an address: its token is the readers'
inline constexpr std::string_view secret_suffix = "/secret";
inline fabric::Token reader_token(const fabric::Token& token) { return token.derive("directory/read"); }

class DirectoryHost {
 public:
  // listen: as for rpc::Server. registration_directory: "" for none. Throws Error as the parts do.
  DirectoryHost(std::shared_ptr<Progress> progress, DirectoryServerOptions options, const std::string& listen,
                std::string registration_directory);
  ~DirectoryHost();
  const fabric::Registration& registration() const { return registration_; }
  std::string address() const { return fabric::to_address(registration_); }  // secret: holds the token
  std::size_t leases() const { return directory_.leases(); }

 private:
  rpc::ServerOptions use_last_address(const std::string& folder);
  void keep_address(const std::string& folder) const;
  void register_in(const std::string& folder);

  std::string registration_directory_;
  fabric::Registration registration_;
  DirectoryServer directory_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace penstock::directory
