#include "pool/sim/network.hpp"

#include <sys/socket.h>

#include <cstdio>
#include <deque>
#include <system_error>

namespace penstock::pool::sim {
namespace {

using base::Clock;

std::pair<memory::UniqueFd, memory::UniqueFd> socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  return {memory::UniqueFd(fds[0]), memory::UniqueFd(fds[1])};
}

}  // namespace

// The relay of one connection; side 0 is the one that connected.
struct Network::Link : std::enable_shared_from_this<Network::Link> {
  struct Frame {
    Clock::time_point due;
    std::uint16_t kind;
    std::vector<std::byte> bytes;
    memory::UniqueFd fd;
  };
  Network& network;
  Node node[2];
  std::shared_ptr<fabric::Connection> end[2];
  std::deque<Frame> queue[2];  // by sending side
  fabric::Timer timer[2];
  bool ended[2] = {false, false};
  bool over = false;

  Link(Network& of, Node from, Node to) : network(of), node{from, to} {}

  void start(int side) {
    const auto weak = weak_from_this();
    end[side]->start(
        [weak, side](std::uint16_t kind, std::span<const std::byte> bytes, memory::UniqueFd fd) {
          if (const auto self = weak.lock()) self->take(side, kind, bytes, std::move(fd));
        },
        [weak, side](const Error&) {
          const auto self = weak.lock();
          if (!self) return;
          self->ended[side] = true;
          self->deliver(side);
        });
  }
  void take(int side, std::uint16_t kind, std::span<const std::byte> bytes, memory::UniqueFd fd) {
    if (over) return;
    auto due = std::max(Clock::now() + network.delay(), network.held_until(node[0], node[1]));
    if (!queue[side].empty()) due = std::max(due, queue[side].back().due);
    ++network.frames_;
    if (network.trace_)
      std::printf("%12lld us  %u -> %u  kind %u, %zu bytes, due %lld\n",
                  static_cast<long long>(Clock::now().time_since_epoch().count() / 1000), node[side], node[1 - side],
                  kind, bytes.size(), static_cast<long long>(due.time_since_epoch().count() / 1000));
    queue[side].push_back({due, kind, {bytes.begin(), bytes.end()}, std::move(fd)});
    if (queue[side].size() == 1) arm(side);
  }
  void arm(int side) {
    timer[side] = network.progress_->after(queue[side].front().due - Clock::now(), [weak = weak_from_this(), side] {
      if (const auto self = weak.lock()) self->deliver(side);
    });
  }
  void deliver(int side) {
    while (!over && !queue[side].empty() && queue[side].front().due <= Clock::now()) {
      const Frame frame = std::move(queue[side].front());
      queue[side].pop_front();
      end[1 - side]->send(frame.kind, "simulated", frame.bytes, frame.fd.get());
    }
    if (over) return;
    if (!queue[side].empty()) arm(side);
    else if (ended[side]) finish();
  }
  void finish() {
    if (std::exchange(over, true)) return;
    const auto self = shared_from_this();
    for (const int side : {0, 1}) {
      timer[side].cancel();
      queue[side].clear();
      end[side]->close();
    }
    std::erase(network.links_, self);
  }
};

Network::Network(std::shared_ptr<fabric::Progress> progress, std::uint64_t seed, std::uint32_t max_delay_us, bool trace)
    : progress_(std::move(progress)), random_(seed ^ 0x4e7), max_delay_us_(max_delay_us), trace_(trace) {}

Network::~Network() { close(); }

void Network::serve(Node node, Accept accept) { serving_[node] = std::move(accept); }

std::chrono::microseconds Network::delay() {
  const auto most = random_.chance(0.02) ? 20 * max_delay_us_ : max_delay_us_;
  return std::chrono::microseconds(1 + random_.below(most));
}

fabric::Task<void> Network::travel() { return fabric::pause_for(*progress_, delay()); }

fabric::Task<std::shared_ptr<rpc::Channel>> Network::connect(Node from, Node to, std::string role) {
  co_await travel();
  const auto accept = serving_.find(to);
  if (dead_.contains(from) || dead_.contains(to) || accept == serving_.end())
    throw Error(Errc::peer_lost, "node " + std::to_string(to) + " does not answer");
  auto link = std::make_shared<Link>(*this, from, to);
  links_.push_back(link);
  auto [caller, near] = socket_pair();
  auto [far, callee] = socket_pair();
  link->end[0] = fabric::Connection::adopt(*progress_, std::move(near), "relay");
  link->end[1] = fabric::Connection::adopt(*progress_, std::move(far), "relay");
  link->start(0);
  link->start(1);
  const auto name = [](Node node) { return "node " + std::to_string(node); };
  accept->second(fabric::Connection::adopt(*progress_, std::move(callee), name(from)), role);
  auto connection = fabric::Connection::adopt(*progress_, std::move(caller), name(to));
  co_return rpc::Channel::adopt(progress_, std::move(connection), nullptr, "");
}

template <class Which>
void Network::cut_where(Which which) {
  const auto links = links_;
  for (const auto& link : links)
    if (which(*link)) link->finish();
}

void Network::kill(Node node) {
  dead_.insert(node);
  cut_where([node](const Link& link) { return link.node[0] == node || link.node[1] == node; });
}

void Network::cut(Node a, Node b) {
  cut_where([=](const Link& link) {
    return (link.node[0] == a && link.node[1] == b) || (link.node[0] == b && link.node[1] == a);
  });
}

void Network::hold(Node a, Node b, std::chrono::milliseconds time) {
  auto& until = held_[{std::min(a, b), std::max(a, b)}];
  until = std::max(until, Clock::now() + time);
}

Clock::time_point Network::held_until(Node a, Node b) const {
  Clock::time_point until{};
  for (const auto& pair : {std::pair(std::min(a, b), std::max(a, b)), std::pair(everybody, a), std::pair(everybody, b)})
    if (const auto held = held_.find(pair); held != held_.end()) until = std::max(until, held->second);
  return until;
}

void Network::close() {
  cut_where([](const Link&) { return true; });
}

}  // namespace penstock::pool::sim
