// A network that exists in one process, for tests: nodes, links, a clock that jumps from event to event, and a seed.
//
// Between two nodes a link is one first-in first-out channel each way (a connection), or two: a connection and a ring.
// Each message takes a random time. As with the engine's links, a node that receives something from a connection first
// looks at everything that was pushed into the ring before that was sent; what is in the ring may overtake what is on
// the connection. Nodes crash, stall and exit, links are cut, all between events. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "stream/protocol/link.hpp"
#include "wire/control.hpp"

namespace penstock::stream::sim {

using NodeId = std::uint32_t;
using Time = std::uint64_t;
inline constexpr Time never = std::numeric_limits<Time>::max();

// splitmix64: small, fast to seed, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : next() % n; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }

 private:
  std::uint64_t state_;
};

// A process. Called by the fabric; may call send, wake, drop and exit.
class Node {
 public:
  virtual ~Node() = default;
  virtual void on_message(LinkId link, const wire::Message& message) = 0;
  virtual void on_link_lost(LinkId link, const std::string& why) = 0;
  virtual void on_wake(std::uint64_t what) = 0;
};

struct FabricSettings {
  std::uint64_t seed = 1;
  Time max_delay = 10;
  bool encode = false;              // every message goes through its bytes
  bool crash_loses_unsent = false;  // a crash loses what the process had not yet given to the operating system
};

class Fabric {
 public:
  explicit Fabric(FabricSettings settings) : settings_(settings), random_(settings.seed ^ 0xfab) {}

  NodeId add(Node& node);
  // a calls the link by one name, b by another.
  void connect(NodeId a, LinkId name_at_a, NodeId b, LinkId name_at_b, bool ring);
  void send(NodeId from, LinkId link, const wire::Message& message);
  void wake(NodeId node, Time delay, std::uint64_t what);

  // The node closes one of its links: the peer hears of it after all that was sent before.
  void drop(NodeId node, LinkId link);
  // Ends a process; its links end after all that was sent before (less what a crash loses).
  void exit(NodeId node) { end(node, false); }
  void crash(NodeId node) { end(node, settings_.crash_loses_unsent); }
  // Both sides lose the link; what was on its way may be lost.
  void cut(NodeId node, LinkId link);
  // The node looks into its rings only when something comes on their connections.
  void forget_rings(NodeId node) { nodes_[node].looks = false; }
  // Nothing reaches the node until `until`; `never` until resumed.
  void stall(NodeId node, Time until);
  void resume_all();

  // One event. False when there is none left.
  bool step();

  Time now() const { return now_; }
  bool alive(NodeId node) const { return nodes_[node].alive; }
  bool linked(NodeId node, LinkId link) const;
  std::uint64_t events() const { return events_; }
  std::uint64_t messages() const { return messages_; }
  std::uint64_t messages(wire::Kind kind) const { return by_kind_[static_cast<std::size_t>(kind)]; }
  std::size_t longest_ring() const { return longest_ring_; }

 private:
  struct Item {
    Time due = 0;
    std::uint64_t seq = 0;
    wire::Message message;
  };
  struct Channel {
    std::deque<Item> queue;
    Time last_due = 0;
  };
  struct Link {
    NodeId node[2];
    LinkId name[2];
    bool open[2] = {true, true};
    bool has_ring = false;
    bool is_cut = false;         // the connection; a ring is memory
    Channel socket[2], ring[2];  // by sending side
  };
  struct Port {
    LinkId name;
    std::uint32_t link;
    std::uint8_t side;
  };
  struct NodeState {
    Node* node;
    bool alive = true;
    bool looks = true;  // into its rings
    Time stalled_until = 0;
    std::vector<Port> ports;
  };
  enum class What : std::uint8_t { socket, ring, lost, wake };
  struct Event {
    Time time;
    std::uint64_t seq;
    std::uint64_t value;  // of a wake
    NodeId node;          // whom it reaches
    std::uint32_t link;
    What what;
    std::uint8_t side;  // that sent
    bool operator>(const Event& other) const { return time != other.time ? time > other.time : seq > other.seq; }
  };

  const Port* port(NodeId node, LinkId link) const;
  void end(NodeId node, bool loses);
  void close_side(std::uint32_t link, std::uint8_t side);
  void push(Event event);
  void deliver(Link& link, std::uint8_t from, Channel& channel);
  void drain_ring(Link& link, std::uint8_t from, std::uint64_t before);
  void lose_tail(Channel& channel);

  FabricSettings settings_;
  Random random_;
  Time now_ = 0;
  std::uint64_t seq_ = 0, events_ = 0, messages_ = 0;
  std::uint64_t by_kind_[wire::kind_count] = {};
  std::size_t longest_ring_ = 0;
  std::vector<NodeState> nodes_;
  std::vector<Link> links_;
  std::vector<Event> heap_;
  std::vector<Event> held_;  // for nodes that are stalled until resumed
  std::vector<std::byte> scratch_;
};

// What the engine puts into a ring where there is one (peer_link.cpp).
bool travels_in_ring(wire::Kind kind);

}  // namespace penstock::stream::sim
