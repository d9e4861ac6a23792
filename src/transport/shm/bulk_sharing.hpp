// Memory that the two sides of a channel on one node share: what each has given the other. This module's own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/carrier.hpp"
#include "transport/shm/bulk_copy.hpp"

namespace penstock::transport {

class BulkSharing {
 public:
  explicit BulkSharing(Carrier& carrier) : carrier_(carrier) {}

  // Gives the peer a buffer's memory, if it has not got it. Null when that fails: it cannot be shared after all. Any thread.
  std::shared_ptr<Leases> give(BulkBuffer::State& buffer, bool writable);

  // What the peer has given, or has taken back. Throws Error(protocol, memory, system).
  void on_segment(const BulkMessage& message, const memory::UniqueFd& fd);
  void on_leases(const BulkMessage& message, const memory::UniqueFd& fd);
  void on_forget(const BulkMessage& message);

  // The peer's memory that a descriptor names; nothing when it is not shared. Throws Error(invalid_argument). Any thread.
  std::optional<PeerMemory> find(const WireBulk& bulk, bool writable);
  // Between here and memory of the peer: short ones by this thread, others by one that copies. Engine thread.
  Task<void> copy(PeerMemory memory, std::vector<CopyJob::Piece> pieces, std::uint64_t bytes, base::Deadline deadline);

 private:
  struct Segment {
    memory::Mapping mapping;
    bool writable = false;
  };

  Carrier& carrier_;

  // What the peer has been given.
  std::mutex given_mutex_;  // held while a frame is sent: what is given is told of before it is used
  std::shared_ptr<Leases> leases_;
  std::map<std::uint32_t, bool> given_;  // segments; whether for writing

  // What the peer has given.
  std::mutex peer_mutex_;  // guards what follows
  std::map<std::uint32_t, std::shared_ptr<Segment>> segments_;
  std::shared_ptr<Leases> peer_leases_;

  std::shared_ptr<CopyThreads> copies_;  // the engine's own, since the first long copy
};

}  // namespace penstock::transport
