// An owner's part of a stream in the pool: takes stripes over from the writer's ranks into this server's store, by the direct
// data planes (shared memory on one node, else TCP), on threads of its own. Engine thread.
//
// From shared memory each byte is read once and written once: a part that fits the processor's cache is copied, and summed
// while it is there, and the stripes of one pull are shared out to all threads. While the rank they come from copies its next
// step, and its queue has room, they wait: 5 ms at most for each thread and pull.
//
// Stripes that are there already (a pull that is made again) are not fetched again. A pull waits for the store's memory before
// anything is fetched, in parts if it is much of that memory, and ends by its deadline: pool_full, timeout, step_gone or
// peer_lost (the writer's rank). What can never fit is refused: invalid_argument.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pool/server/server_core.hpp"
#include "transport/data_plane.hpp"

namespace penstock::pool {

class StripePuller : public std::enable_shared_from_this<StripePuller> {
 public:
  StripePuller(std::weak_ptr<ServerCore> core, std::shared_ptr<fabric::Progress> progress);
  ~StripePuller();

  Task<fb::PullReplyT> pull(fb::PullRequestT request, base::Deadline deadline);

 private:
  struct Work;
  struct Plane;
  std::shared_ptr<Plane> take_plane(const fb::PullRequestT& request);
  std::shared_ptr<Plane> make_plane(const fb::PullRequestT& request);
  void give_plane(const fb::PullRequestT& request, std::shared_ptr<Plane> plane);
  Task<void> fetch(std::shared_ptr<Work> work);
  Task<void> pull_part(std::shared_ptr<ServerCore> core, std::shared_ptr<Work> work, fb::PullReplyT& reply);

  std::weak_ptr<ServerCore> core_;
  std::shared_ptr<fabric::Progress> progress_;
  // Planes to each writer, by its token: one of mapped memory for all pulls, or idle ones, of which a pull takes one for
  // itself.
  struct Writer {
    std::shared_ptr<Plane> shared;
    std::vector<std::shared_ptr<Plane>> idle;
    base::Clock::time_point used;
  };
  std::map<std::string, Writer> writers_;
  const unsigned threads_;  // half of the cores, two to four
  std::unique_ptr<fabric::Workers> workers_;
};

}  // namespace penstock::pool
