// An owner's part of a stream in the pool: takes stripes over from the writer's ranks into this server's store, by the direct
// data planes (shared memory on one node, else TCP), on threads of its own. Engine thread.
//
// Stripes that are there already (a pull that is made again) are not fetched again. A pull waits for the store's memory before
// anything is fetched, and ends by its deadline: pool_full, timeout, step_gone or peer_lost (the writer's rank).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/data_plane.hpp"
#include "pool/server_core.hpp"

namespace penstock::pool {

class StripePuller : public std::enable_shared_from_this<StripePuller> {
 public:
  StripePuller(std::weak_ptr<ServerCore> core, std::shared_ptr<fabric::Progress> progress, unsigned threads = 2);
  ~StripePuller();

  Task<fb::PullReplyT> pull(fb::PullRequestT request, base::Deadline deadline);
  std::uint64_t bytes_pulled() const { return bytes_pulled_; }

 private:
  struct Planes;
  struct Work;
  std::shared_ptr<fabric::DataPlane> take_plane(const fb::PullRequestT& request);
  void give_plane(const fb::PullRequestT& request, std::shared_ptr<fabric::DataPlane> plane);

  std::weak_ptr<ServerCore> core_;
  std::shared_ptr<fabric::Progress> progress_;
  // Idle planes of each writer, by its token: one for each pull that was under way at once.
  struct Idle {
    std::vector<std::shared_ptr<fabric::DataPlane>> planes;
    base::Clock::time_point used;
  };
  std::map<std::string, Idle> idle_;
  std::uint64_t bytes_pulled_ = 0;
  std::unique_ptr<fabric::Workers> workers_;
};

}  // namespace penstock::pool
