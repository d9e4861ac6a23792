// Memory that can be shared with peers on this node, and who uses what is exposed of it. This module's own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "memory/mapping.hpp"
#include "memory/unique_fd.hpp"
#include "transport/bulk.hpp"

namespace penstock::transport {

// One memory file. number: of the process, never 0, never reused.
class BulkSegment {
 public:
  BulkSegment(std::uint32_t number, std::uint64_t bytes);
  // Tells those who asked (on_gone) that the segment is no more.
  ~BulkSegment();
  BulkSegment(const BulkSegment&) = delete;
  BulkSegment& operator=(const BulkSegment&) = delete;

  std::uint32_t number() const { return number_; }
  std::span<std::byte> span() const { return {mapping_.data(), mapping_.size()}; }
  // To give to a peer. Throws Error(system).
  int descriptor(bool writable);
  // Kept as long as the one who asks lives: a segment may see many channels come and go.
  void on_gone(std::weak_ptr<const void> asker, std::function<void(std::uint32_t number)> callback);

 private:
  const std::uint32_t number_;
  memory::UniqueFd fd_;
  memory::Mapping mapping_;
  std::mutex mutex_;  // guards what follows
  memory::UniqueFd read_only_;
  struct Listener {
    std::weak_ptr<const void> asker;
    std::function<void(std::uint32_t)> callback;
  };
  std::vector<Listener> gone_;
};

// A buffer owns a segment, and gives it back to be used again.
struct BulkBuffer::State {
  explicit State(std::shared_ptr<BulkSegment> owned, std::uint64_t wanted);
  ~State();
  const std::shared_ptr<BulkSegment> segment;
  const std::uint64_t bytes;
  bool keep = true;                  // its memory for others, when nobody uses it any more
  std::atomic<bool> tainted{false};  // a peer that is not to be trusted any more may still write it: not used again
};

// The buffer that holds this memory, if there is one.
std::shared_ptr<BulkBuffer::State> find_buffer(std::span<const std::byte> memory);

// Words in memory that both sides of a channel map, one for each exposure: its generation (0: withdrawn), and how many
// transfers of the peer use it. The exposing side trusts them for no more than how long it waits.
class Leases {
 public:
  static constexpr std::uint32_t slots = 16'384;
  static constexpr std::uint32_t no_slot = 0xffff;
  static constexpr std::uint64_t bytes = slots * sizeof(std::uint32_t);

  // The exposing side's.
  Leases();
  // The peer's. Throws Error(protocol).
  Leases(const memory::UniqueFd& fd, std::uint64_t expected_bytes);
  int fd() const { return fd_.get(); }

  // Exposing side. Any thread.
  struct Slot {
    std::uint32_t slot = no_slot;
    std::uint32_t generation = 0;
  };
  Slot open();  // no_slot when all are in use
  // Withdraws, waits for users up to the deadline or until `ended` (asked every millisecond); false when some are left:
  // then the slot is not used again.
  bool close(Slot slot, base::Deadline deadline, const std::function<bool()>& ended);

  // Moving side. False when it is withdrawn.
  bool enter(Slot slot);
  void leave(Slot slot);

 private:
  std::atomic<std::uint32_t>& word(std::uint32_t slot) const;
  memory::UniqueFd fd_;
  memory::Mapping mapping_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::uint32_t> free_;
  std::uint32_t fresh_ = 0;
  std::uint32_t next_generation_ = 1;
};

}  // namespace penstock::transport
