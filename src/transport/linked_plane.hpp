// A data plane over links that the SocketLoop's thread serves. This module's own.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "transport/planes.hpp"
#include "transport/served_link.hpp"
#include "transport/transfer_plane.hpp"

namespace penstock::transport {

class LinkedPlane final : public TransferPlane {
 public:
  // plane: one that has links; outlives this.
  LinkedPlane(const Plane& plane, DataPlaneOptions options);
  ~LinkedPlane() override;
  std::string_view name() const override { return plane_.name; }

 private:
  struct RankLink {
    std::shared_ptr<ServedLink> link;          // null until first used
    std::shared_ptr<std::atomic<bool>> ended;  // set by the loop's thread
  };
  void connect(std::size_t rank, base::Deadline deadline) override;
  void run(std::span<const std::size_t> ranks, base::Deadline deadline) override;
  void abandon(std::size_t rank) override;

  const Plane& plane_;
  std::vector<RankLink> links_;  // by rank
};

}  // namespace penstock::transport
