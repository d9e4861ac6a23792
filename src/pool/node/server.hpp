// A pool's server, complete: the store, its place in the membership, and the services it offers. The program penstock-server is
// a command line around it, which runs the embedded directory in a process of its own (docs/internals/pools.md).
#pragma once

#include <memory>
#include <string>

#include "directory/directory.hpp"
#include "pool/compute/compute_workers.hpp"
#include "pool/server/object_service.hpp"
#include "rpc/channel.hpp"

namespace penstock::pool {

class StreamService;

// What stands on a pool beside objects and streams, at its server.
struct Extension {
  std::shared_ptr<rpc::Service> service;
  std::shared_ptr<PutGuard> guard;
};

struct PoolServerOptions {
  ServerOptions server;
  // "embedded": one in this object, which ends with it and keeps nothing (for tests and for who embeds a whole pool);
  // "registered": the one that is registered; or as directory::open_directory takes it.
  std::string directory = "embedded";
  std::string registration_directory;  // where an embedded directory registers, and others look for it
  compute::ComputeOptions compute;
  std::function<Extension(std::shared_ptr<ServerCore>)> extend;
};

// Started by start, which returns once the pool's view names this server. Blocking calls, from an application thread.
class PoolServer {
 public:
  PoolServer(std::shared_ptr<fabric::Progress> progress, PoolServerOptions options, Admin admin = {});
  ~PoolServer();  // stops at once, if stop was not called

  // Throws Error: timeout (names what is missing), system, wrong_state.
  void start(Timeout timeout);
  // For a server that is told to end: hands its objects on to the other servers, if there are any, then stops. Throws
  // Error(timeout): it goes on then. An administrator's drain is ServerCore::begin_drain.
  void drain(Timeout timeout);
  // Writes what a tier should hold, and stops.
  void stop(Timeout timeout);

  ServerCore& core() { return *core_; }
  const fabric::Endpoint& endpoint() const;
  // Tokens to hand out: by role.
  fabric::Token token(std::string_view role) const;
  bool stopped() const { return stopped_; }

 private:
  fabric::Token find_secret(base::Deadline deadline);
  struct Embedded;
  std::shared_ptr<fabric::Progress> progress_;
  PoolServerOptions options_;
  Admin admin_;
  std::shared_ptr<compute::ComputeWorkers> compute_;
  std::unique_ptr<Embedded> embedded_;
  std::shared_ptr<directory::Directory> directory_;
  fabric::Token secret_;
  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<StreamService> streams_;
  std::shared_ptr<rpc::ServiceTable> services_;
  std::unique_ptr<rpc::Server> server_;
  bool stopped_ = false;
};

}  // namespace penstock::pool
