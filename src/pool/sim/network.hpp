// A network in one process: real channels whose frames pass through relays that delay them, hold them up, or cut them
// off. All choices come from the seed. Nodes are numbered; one that is dead accepts and sends nothing more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "fabric/connection.hpp"
#include "rpc/channel.hpp"
#include "stream/protocol/sim/fabric.hpp"

namespace penstock::pool::sim {

using Random = stream::sim::Random;
using Node = std::uint32_t;

class Network {
 public:
  // Takes the accepting side of a connection by a peer of that role.
  using Accept = std::function<void(std::shared_ptr<fabric::Connection>, const std::string& role)>;

  Network(std::shared_ptr<fabric::Progress> progress, std::uint64_t seed, std::uint32_t max_delay_us, bool trace);
  ~Network();

  void serve(Node node, Accept accept);
  // Throws Error(peer_lost) when nobody serves there.
  fabric::Task<std::shared_ptr<rpc::Channel>> connect(Node from, Node to, std::string role);
  fabric::Task<void> travel();  // as long as a message takes

  void kill(Node node);
  bool alive(Node node) const { return !dead_.contains(node); }
  // What is under way between the two is lost, and both see their connections end.
  void cut(Node a, Node b);
  // Nothing passes between the two for so long; then all that was sent arrives.
  void hold(Node a, Node b, std::chrono::milliseconds time);
  void isolate(Node node, std::chrono::milliseconds time) { hold(node, everybody, time); }
  void close();

  std::uint64_t frames() const { return frames_; }

 private:
  struct Link;
  static constexpr Node everybody = 0;  // nodes count from 1
  base::Clock::time_point held_until(Node a, Node b) const;
  std::chrono::microseconds delay();
  template <class Which>
  void cut_where(Which which);

  std::shared_ptr<fabric::Progress> progress_;
  Random random_;
  std::uint32_t max_delay_us_;
  bool trace_;
  std::uint64_t frames_ = 0;
  std::map<Node, Accept> serving_;
  std::set<Node> dead_;
  std::map<std::pair<Node, Node>, base::Clock::time_point> held_;  // the lower node first
  std::vector<std::shared_ptr<Link>> links_;
};

}  // namespace penstock::pool::sim
