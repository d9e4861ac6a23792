#include "transport/linked_plane.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "fabric/socket.hpp"
#include "penstock/interrupt.hpp"

namespace penstock::transport {

LinkedPlane::LinkedPlane(const Plane& plane, DataPlaneOptions options)
    : TransferPlane(std::move(options)), plane_(plane), links_(options_.writers.size()) {}

LinkedPlane::~LinkedPlane() {
  for (auto& rank : links_)
    if (rank.link) rank.link->close();
}

void LinkedPlane::connect(std::size_t rank, base::Deadline deadline) {
  auto& to = links_[rank];
  if (to.link && !*to.ended) return;
  auto socket = connect_data(rank, fabric::Reach::automatic, deadline);
  to.ended = std::make_shared<std::atomic<bool>>(false);
  to.link = plane_.link({std::move(socket), nullptr, "", [ended = to.ended](const Error&) { *ended = true; }});
  to.link->start();
}

void LinkedPlane::run(std::span<const std::size_t> ranks, base::Deadline deadline) {
  struct Waiting {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::vector<std::size_t> left;
    // What has gone wrong. Not an Error: exceptions share their text between threads behind the sanitizer's back.
    Errc code = Errc::ok;
    std::string why;
  };
  // Its own for each fetch: the transfers of one that was given up may end later.
  const auto waiting = std::make_shared<Waiting>();
  waiting->left.assign(ranks.begin(), ranks.end());
  for (const auto rank : ranks) {
    transfers_[rank]->on_done = [waiting, rank](const Error* why) {
      const std::lock_guard lock(waiting->mutex);
      std::erase(waiting->left, rank);
      if (why != nullptr && waiting->code == Errc::ok) {
        waiting->code = why->code();
        waiting->why = "writer rank " + std::to_string(rank) + ": " + why->what();
      }
      waiting->changed.notify_one();
    };
    links_[rank].link->submit(transfers_[rank]);
  }
  std::unique_lock lock(waiting->mutex);
  while (!waiting->left.empty() && waiting->code == Errc::ok) {
    const auto slice = std::min(deadline.remaining(), std::chrono::duration_cast<Timeout>(fabric::interruption_period));
    if (waiting->changed.wait_for(lock, slice) != std::cv_status::timeout || waiting->left.empty()) continue;
    if (deadline.passed())
      throw Error(Errc::timeout, "waited for bytes of writer rank " + std::to_string(waiting->left.front()));
    if (interrupted()) throw Error(Errc::timeout, "interrupted");
  }
  if (waiting->code != Errc::ok) throw Error(waiting->code, waiting->why);
  for (const auto rank : ranks) transfers_[rank].reset();  // the loop's thread may hold them a little longer
}

void LinkedPlane::abandon(std::size_t rank) {
  transfers_[rank]->drop();
  transfers_[rank].reset();
}

}  // namespace penstock::transport
