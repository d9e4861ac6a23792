// Threads that copy between a process's memory and memory that it shares with a peer. This module's own.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "transport/shm/bulk_memory.hpp"

namespace penstock::transport {

// Memory of the peer that is mapped here, and what says that it is still exposed.
struct PeerMemory {
  std::byte* data = nullptr;
  std::shared_ptr<const void> owner;  // of the mapping
  std::shared_ptr<Leases> leases;
  Leases::Slot lease;
};

// One transfer. Pieces are copied in order; between them, and within long ones, it looks whether it is still wanted.
class CopyJob {
 public:
  struct Piece {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint64_t bytes = 0;
  };
  // memory: the peer's, in which one side of every piece lies.
  CopyJob(std::shared_ptr<fabric::Progress> progress, std::vector<Piece> pieces, base::Deadline deadline,
          PeerMemory memory);
  fabric::Future<void> done() { return done_.future(); }
  // In this thread; throws what went wrong. For short ones, instead of submitting.
  void run_inline();
  void run();
  // Returns once the job touches nothing any more.
  void drop();

 private:
  enum State : int { queued, running, ended };
  void copy();

  const std::shared_ptr<fabric::Progress> progress_;  // outlives the promise
  const std::vector<Piece> pieces_;
  const base::Deadline deadline_;
  const PeerMemory memory_;
  fabric::Promise<void> done_;
  std::atomic<int> state_{queued};
  std::atomic<bool> dropped_{false};
};

class CopyThreads {
 public:
  // The process's, as long as somebody holds them.
  static std::shared_ptr<CopyThreads> shared();
  ~CopyThreads();
  void submit(std::shared_ptr<CopyJob> job);

 private:
  struct Impl;
  CopyThreads();
  std::shared_ptr<Impl> impl_;
};

}  // namespace penstock::transport
