// The processes of a simulated pool: servers and clients, made of the library's own parts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pool/client/client_impl.hpp"
#include "pool/server/object_service.hpp"
#include "pool/sim/directory.hpp"
#include "pool/sim/network.hpp"
#include "pool/sim/world.hpp"

namespace penstock::pool::sim {

inline const std::string pool_name = "stage";

// Where nodes find each other.
struct Surroundings {
  std::shared_ptr<fabric::Progress> progress;
  Network* network = nullptr;
  DirectoryHost* directory = nullptr;
  Random* random = nullptr;
  Bug bug = Bug::none;
};

fabric::Endpoint endpoint_of(Node node);
Node node_at(const fabric::Endpoint& endpoint);
Members::Connect connect_from(const Surroundings& around, Node from);

class SimServer {
 public:
  SimServer(const Surroundings& around, Node node, std::uint64_t id, const Plan& plan);
  fabric::Task<void> start();
  fabric::Task<void> drain();
  bool drained_by_command = false;  // not by a signal to end
  // Nobody sees anything of it any more. What is left of it here ends within simulated seconds.
  void kill();

  const Node node;
  const std::uint64_t id;
  std::shared_ptr<DirectoryHandle> directory;
  std::shared_ptr<ServerCore> core;
  bool started = false, leaving = false, gone = false;
  bool away = false, back = false;  // away: until a settled view names it again

 private:
  fabric::Task<void> drain_by_command(base::Deadline deadline);

  Surroundings around_;
  std::shared_ptr<rpc::ServiceTable> services_ = std::make_shared<rpc::ServiceTable>();
  std::vector<std::shared_ptr<rpc::Channel>> served_;
};

struct SimClient {
  SimClient(const Surroundings& around, Node node);
  void close();
  const Node node;
  std::shared_ptr<DirectoryHandle> directory;
  std::shared_ptr<Members> members;
  std::shared_ptr<Pool::Impl> pool;
};

}  // namespace penstock::pool::sim
