// Threads that copy between a process's memory and memory that it shares with a peer. This module's own.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "transport/shm/bulk_memory.hpp"

namespace penstock::transport {

// One transfer. Pieces are copied in order; between them, and within long ones, it looks whether it is still wanted.
class CopyJob {
 public:
  struct Piece {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint64_t bytes = 0;
  };
  CopyJob(std::shared_ptr<fabric::Progress> progress, std::vector<Piece> pieces, base::Deadline deadline,
          std::shared_ptr<Leases> leases, Leases::Slot slot, std::shared_ptr<const void> owner);
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
  const std::shared_ptr<Leases> leases_;
  const Leases::Slot slot_;
  const std::shared_ptr<const void> owner_;  // of the mapping
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
