#include "transport/tcp/tcp_plane.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "fabric/connect.hpp"
#include "fabric/socket.hpp"
#include "penstock/interrupt.hpp"
#include "transport/tcp/link.hpp"
#include "transport/tcp/looped_link.hpp"
#include "transport/transfer_plane.hpp"

namespace penstock::transport {

namespace {

using base::Deadline;

// The thread that reads drives its links itself.
class TcpPlane final : public TransferPlane {
 public:
  explicit TcpPlane(DataPlaneOptions options) : TransferPlane(std::move(options)), links_(options_.writers.size()) {}

  std::string_view name() const override { return "tcp"; }

 private:
  struct RankLink {
    std::unique_ptr<Link> link;  // null until first used
    bool readable = false;
  };
  void connect(std::size_t rank, Deadline deadline) override;
  void run(std::span<const std::size_t> ranks, Deadline deadline) override;
  void abandon(std::size_t rank) override;
  void advance(std::size_t rank);
  void wait(Deadline deadline);

  std::vector<RankLink> links_;
  std::vector<std::size_t> active_;  // ranks of the fetch under way that have not finished
  std::vector<pollfd> entries_;
};

void TcpPlane::connect(std::size_t rank, Deadline deadline) {
  if (!links_[rank].link)
    links_[rank].link = std::make_unique<Link>(connect_data(rank, fabric::Reach::tcp_only, deadline), nullptr,
                                               options_.in_flight_bytes);
}

void TcpPlane::run(std::span<const std::size_t> ranks, Deadline deadline) {
  active_.assign(ranks.begin(), ranks.end());
  for (const std::size_t rank : active_) links_[rank].link->submit(transfers_[rank]);
  for (;;) {
    for (const std::size_t rank : active_) advance(rank);
    std::erase_if(active_, [this](std::size_t rank) { return transfers_[rank]->done; });
    if (active_.empty()) return;
    wait(deadline);
  }
}

void TcpPlane::advance(std::size_t rank) {
  try {
    try {
      links_[rank].link->advance(std::exchange(links_[rank].readable, false));
    } catch (const Error&) {
      links_[rank].link.reset();  // the next fetch connects anew
      if (!transfers_[rank]->done) throw;
    }
    if (transfers_[rank]->done && transfers_[rank]->error) throw Error(*transfers_[rank]->error);
  } catch (const Error& error) {
    throw error.in("writer rank " + std::to_string(rank));
  }
}

void TcpPlane::wait(Deadline deadline) {
  entries_.clear();
  for (const std::size_t rank : active_) {
    const int write = links_[rank].link->wants_write() ? POLLOUT : 0;
    entries_.push_back({links_[rank].link->socket(), static_cast<short>(POLLIN | write), 0});
  }
  for (;;) {
    const auto slice = std::min(deadline.remaining(), std::chrono::duration_cast<Timeout>(fabric::interruption_period));
    const int count = ::poll(entries_.data(), entries_.size(), static_cast<int>(slice.count()));
    if (count > 0) {
      for (std::size_t i = 0; i < active_.size(); ++i)
        links_[active_[i]].readable = (entries_[i].revents & ~POLLOUT) != 0;
      return;
    }
    if (count < 0 && errno != EINTR) throw Error(Errc::system, "poll failed: " + fabric::errno_text(errno));
    if (deadline.passed())
      throw Error(Errc::timeout, "waited for bytes of writer rank " + std::to_string(active_.front()));
    if (interrupted()) throw Error(Errc::timeout, "interrupted");
  }
}

void TcpPlane::abandon(std::size_t rank) {
  if (transfers_[rank]->done) return;
  links_[rank] = {};
  transfers_[rank].reset();
}

}  // namespace

const Plane tcp_plane{
    .name = "tcp",
    .address = [](const fabric::Endpoint& here) -> std::string {
      if (here.tcp_hosts.empty()) return "";
      return fabric::to_text({.tcp_hosts = here.tcp_hosts, .tcp_port = here.tcp_port});
    },
    .reaches = [](const std::string& address) { return !fabric::endpoint_from_text(address).tcp_hosts.empty(); },
    .make = [](std::shared_ptr<fabric::Progress>, DataPlaneOptions options) -> std::unique_ptr<DataPlane> {
      return std::make_unique<TcpPlane>(std::move(options));
    },
    .link = [](LinkSide side) -> std::shared_ptr<ServedLink> {
      return std::make_shared<LoopedLink>(SocketLoop::shared(), std::move(side));
    }};

}  // namespace penstock::transport
