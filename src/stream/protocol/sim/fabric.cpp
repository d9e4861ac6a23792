#include "stream/protocol/sim/fabric.hpp"

#include <algorithm>

namespace penstock::stream::sim {

using wire::Kind;
using wire::Message;

bool travels_in_ring(Kind kind) {
  switch (kind) {
    case Kind::announce:
    case Kind::dropped:
    case Kind::goodbye:
    case Kind::want:
    case Kind::release: return true;
    default: return false;
  }
}

// ------------------------------------------------------------------------------------------------------------- links

NodeId Fabric::add(Node& node) {
  nodes_.push_back({.node = &node, .alive = true, .looks = true, .stalled_until = 0, .ports = {}});
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Fabric::connect(NodeId a, LinkId name_at_a, NodeId b, LinkId name_at_b, bool ring) {
  const auto index = static_cast<std::uint32_t>(links_.size());
  Link link;
  link.node[0] = a, link.node[1] = b;
  link.name[0] = name_at_a, link.name[1] = name_at_b;
  link.has_ring = ring;
  links_.push_back(std::move(link));
  nodes_[a].ports.push_back({name_at_a, index, 0});
  nodes_[b].ports.push_back({name_at_b, index, 1});
}

const Fabric::Port* Fabric::port(NodeId node, LinkId link) const {
  for (const auto& p : nodes_[node].ports)
    if (p.name == link) return &p;
  return nullptr;
}

bool Fabric::linked(NodeId node, LinkId link) const {
  const auto* p = port(node, link);
  return p && links_[p->link].open[p->side];
}

void Fabric::send(NodeId from, LinkId name, const Message& message) {
  const auto* p = port(from, name);
  if (!p || !nodes_[from].alive) return;
  auto& link = links_[p->link];
  const bool in_ring = link.has_ring && travels_in_ring(message.kind);
  if (!link.open[p->side] || (link.is_cut && !in_ring)) return;
  ++messages_;
  ++by_kind_[static_cast<std::size_t>(message.kind)];
  auto& channel = in_ring ? link.ring[p->side] : link.socket[p->side];
  const Time due = std::max(channel.last_due, now_ + random_.between(1, settings_.max_delay));
  channel.last_due = due;
  const auto seq = ++seq_;
  if (settings_.encode) {
    scratch_.clear();
    wire::encode(message, scratch_);
    channel.queue.push_back({due, seq, wire::decode_message(scratch_)});
  } else {
    channel.queue.push_back({due, seq, message});
  }
  if (in_ring) longest_ring_ = std::max(longest_ring_, channel.queue.size());
  push({due, seq, 0, link.node[1 - p->side], p->link, in_ring ? What::ring : What::socket, p->side});
}

void Fabric::wake(NodeId node, Time delay, std::uint64_t what) {
  push({now_ + delay, ++seq_, what, node, 0, What::wake, 0});
}

// ------------------------------------------------------------------------------------------------------------- faults

// The other side hears that the link is gone after all that this side has sent.
void Fabric::close_side(std::uint32_t index, std::uint8_t side) {
  auto& link = links_[index];
  if (!link.open[side]) return;
  link.open[side] = false;
  const Time due =
      std::max({link.socket[side].last_due, link.ring[side].last_due, now_ + random_.between(1, settings_.max_delay)});
  push({due, ++seq_, 0, link.node[1 - side], index, What::lost, side});
}

void Fabric::drop(NodeId node, LinkId name) {
  if (const auto* p = port(node, name)) close_side(p->link, p->side);
}

void Fabric::lose_tail(Channel& channel) {
  for (auto lost = random_.below(channel.queue.size() + 1); lost > 0; --lost) channel.queue.pop_back();
}

void Fabric::end(NodeId node, bool loses) {
  auto& state = nodes_[node];
  if (!state.alive) return;
  state.alive = false;
  for (const auto& p : state.ports) {
    if (loses) lose_tail(links_[p.link].socket[p.side]);  // a ring is shared memory: what was pushed stays
    close_side(p.link, p.side);
  }
}

void Fabric::cut(NodeId node, LinkId name) {
  const auto* p = port(node, name);
  if (!p) return;
  auto& link = links_[p->link];
  link.is_cut = true;
  for (std::uint8_t side = 0; side < 2; ++side) {
    if (!link.open[side]) continue;
    lose_tail(link.socket[side]);
    push({now_ + random_.between(1, settings_.max_delay), ++seq_, 0, link.node[side], p->link, What::lost,
          static_cast<std::uint8_t>(1 - side)});
  }
}

void Fabric::stall(NodeId node, Time until) { nodes_[node].stalled_until = until; }

void Fabric::resume_all() {
  for (auto& n : nodes_)
    if (n.stalled_until == never) n.stalled_until = 0;
  for (auto& e : held_) {
    e.time = now_ + 1;
    push(e);
  }
  held_.clear();
}

// ------------------------------------------------------------------------------------------------------------ events

void Fabric::push(Event event) {
  heap_.push_back(event);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void Fabric::deliver(Link& link, std::uint8_t from, Channel& channel) {
  const auto to = static_cast<std::uint8_t>(1 - from);
  const auto item = std::move(channel.queue.front());
  channel.queue.pop_front();
  if (!link.open[to] || !nodes_[link.node[to]].alive) return;
  nodes_[link.node[to]].node->on_message(link.name[to], item.message);
}

void Fabric::drain_ring(Link& link, std::uint8_t from, std::uint64_t before) {
  auto& ring = link.ring[from];
  while (!ring.queue.empty() && ring.queue.front().seq < before) deliver(link, from, ring);
}

bool Fabric::step() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  auto event = heap_.back();
  heap_.pop_back();
  auto& node = nodes_[event.node];
  now_ = std::max(now_, event.time);
  if (!node.alive) return true;
  if (node.stalled_until > now_) {  // in the order of arrival: the queue sorts equal times by number
    if (node.stalled_until == never) {
      held_.push_back(event);
      return true;
    }
    event.time = node.stalled_until;
    event.seq = ++seq_;
    push(event);
    return true;
  }
  ++events_;
  if (event.what == What::wake) {
    node.node->on_wake(event.value);
    return true;
  }
  auto& link = links_[event.link];
  const auto to = static_cast<std::uint8_t>(1 - event.side);
  switch (event.what) {
    case What::wake: break;
    case What::ring:
      if (node.looks && !link.ring[event.side].queue.empty() && link.ring[event.side].queue.front().due <= now_)
        deliver(link, event.side, link.ring[event.side]);
      return true;
    case What::socket: {
      auto& socket = link.socket[event.side];
      if (socket.queue.empty()) return true;
      // Sometimes the node looks again and finds what was pushed later.
      drain_ring(link, event.side, random_.chance(0.3) ? never : socket.queue.front().seq);
      if (!socket.queue.empty()) deliver(link, event.side, socket);
      return true;
    }
    case What::lost:
      if (!link.open[to]) return true;
      drain_ring(link, event.side, never);
      while (!link.socket[event.side].queue.empty() && link.open[to])
        deliver(link, event.side, link.socket[event.side]);
      if (!link.open[to] || !node.alive) return true;
      link.open[to] = false;
      node.node->on_link_lost(link.name[to], "connection closed");
      return true;
  }
  return true;
}

}  // namespace penstock::stream::sim
