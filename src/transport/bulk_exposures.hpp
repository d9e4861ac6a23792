// What one side of a channel exposes. This module's own; any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "transport/bulk_messages.hpp"
#include "transport/shm/bulk_memory.hpp"
#include "transport/source.hpp"

namespace penstock::transport {

class Exposures;

struct Exposure::State {
  std::weak_ptr<Exposures> owner;
  WireBulk descriptor;
  std::span<std::byte> memory;
  std::shared_ptr<const void> keep;           // the memory's owner, if its withdrawal is to wait for nobody
  std::shared_ptr<BulkBuffer::State> buffer;  // when it is shared
  Leases::Slot lease;
  // Held while the memory is touched for a peer; those who hold it look at `withdrawn` first.
  std::mutex mutex;
  bool withdrawn = false;
  unsigned held = 0;  // by the network, for a peer: goes on without the mutex
  std::condition_variable let_go;
};

class Exposures : public Source, public std::enable_shared_from_this<Exposures> {
 public:
  // buffer and leases: when the peer may map it. on_stuck: called when a peer does not let go of what is withdrawn.
  std::shared_ptr<Exposure::State> add(std::span<std::byte> memory, Access access,
                                       std::shared_ptr<BulkBuffer::State> buffer, std::shared_ptr<Leases> leases,
                                       std::shared_ptr<const void> keep = nullptr);
  // With rights and bounds checked. Throws Error(invalid_argument).
  std::shared_ptr<Exposure::State> find(std::uint64_t id, Access needed, std::uint64_t offset,
                                        std::uint64_t bytes) const;
  // What a peer asks for by its identifier, in segment 0.
  std::unique_ptr<Region> open(const wire::DataRequest& request, bool for_writing) override;
  void withdraw(std::shared_ptr<Exposure::State> state);
  void end();
  bool ended() const { return ended_; }

  // Set before the first exposure.
  std::function<void()> on_stuck;
  // Ends the link, and returns when the network holds nothing any more. Set with the link.
  void set_cut(std::function<void()> cut);

 private:
  // Withdrawn, and still read by the peer in shared memory when that was looked at last.
  struct Late {
    std::shared_ptr<Exposure::State> exposure;
    base::Clock::time_point since;
  };
  std::shared_ptr<Exposure::State> find(std::uint64_t id) const;
  void wait_unused(Exposure::State& state);
  void look_at_late();

  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, std::shared_ptr<Exposure::State>> all_;
  std::uint64_t next_ = 1;
  std::vector<Late> late_;
  std::shared_ptr<Leases> leases_;
  std::function<void()> cut_;
  std::atomic<bool> ended_{false};
};

// Throws Error(invalid_argument) unless `needed` is allowed and the range lies within.
void check_bulk(const WireBulk& bulk, Access needed, std::uint64_t offset, std::uint64_t bytes);

}  // namespace penstock::transport
