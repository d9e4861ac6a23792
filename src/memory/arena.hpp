// The memory in which one writer rank keeps its steps: slots, each a growing list of shared segments.
//
// A slot is filled (begin, allocate..., set_payload, publish), read by others, and recycled. Memory is kept from step to
// step: once a slot has held a step of a size, the next one of that size costs no allocation, page fault or system call.
// Segment 0 of a slot opens with a SlotHeader that says which step the slot holds; who copies from a slot compares it
// before and after (a seqlock), so memory that was taken back is noticed, never silently wrong.
//
// Threads: one thread fills slots (begin, allocate, lend, take_back, set_payload, publish, note_copying); prepare, recycle, read, subscribe,
// unsubscribe and the counters may be called from any thread. A subscriber is called with the arena's lock held: it must not
// call back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "memory/lent.hpp"
#include "memory/segment.hpp"

namespace penstock::memory {

inline constexpr std::uint32_t max_slot_segments = 64;
// The number that stands for the application's own arrays (lend): no shared segment has it.
inline constexpr std::uint32_t lent_segment = max_slot_segments - 1;
inline constexpr std::uint64_t block_alignment = 64;
inline constexpr std::uint64_t slot_header_bytes = 128;  // block memory of segment 0 begins here

// Values of SlotHeader::step that are no step's number.
inline constexpr std::uint64_t slot_filling = ~std::uint64_t{0};       // being filled, or never published
inline constexpr std::uint64_t slot_replaced = ~std::uint64_t{0} - 1;  // newer segments hold this slot: wait for them

// As it lies in shared memory. Written by the slot's owner only.
struct SlotHeader {
  std::atomic<std::uint64_t> step;
  std::atomic<std::uint64_t> payload_segment;
  std::atomic<std::uint64_t> payload_offset;
  std::atomic<std::uint64_t> payload_bytes;
  // Whether the arena's owner is copying, into whichever slot: readers should yield to this copy.
  std::atomic<std::uint64_t> copying;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(SlotHeader) <= slot_header_bytes);

// A copy of it.
struct SlotInfo {
  std::uint64_t step = slot_filling;
  std::uint64_t payload_segment = 0;
  std::uint64_t payload_offset = 0;
  std::uint64_t payload_bytes = 0;
};
// Consistent only if the step read again afterwards is the same.
SlotInfo load(const SlotHeader& header);

// Memory for one block.
struct Place {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;  // from the segment's start, a multiple of block_alignment
  std::byte* data = nullptr;
};

// What peers need to know to map a segment. Generations of a slot ascend: a segment of a newer generation makes all of
// its older ones obsolete. bytes == 0 (fd == -1): the slot's segments older than this generation are gone.
struct SegmentInfo {
  std::uint32_t slot = 0;
  std::uint32_t segment = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  int fd = -1;  // borrowed for the duration of the call
};

class Arena {
 public:
  using Subscriber = std::function<void(const SegmentInfo&)>;

  // limit_bytes bounds the segments of all slots together.
  Arena(std::uint32_t slots, std::uint64_t limit_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::uint32_t slots() const { return static_cast<std::uint32_t>(slots_.size()); }

  // Makes the memory of a slot that has none, so that begin with as many bytes finds it there; begin waits for what is
  // being made for its own slot, no more. False: the slot is in use or has memory, or the limit leaves no room beside what
  // there is. Throws Error(memory).
  bool prepare(std::uint32_t slot, std::uint64_t reserve_bytes);
  // Starts filling a slot; what it held is lost. Room for reserve_bytes of blocks (each rounded up to block_alignment)
  // is made in one segment. Throws Error(step_too_large) when that exceeds the limit, and leaves the slot idle.
  void begin(std::uint32_t slot, std::uint64_t step, std::uint64_t reserve_bytes);
  // Throws Error(step_too_large) when the arena would exceed its limit even after idle slots gave their memory back.
  // The slot stays as it is: the caller may wait for another slot to be recycled and try again.
  Place allocate(std::uint32_t slot, std::uint64_t bytes);
  std::optional<Place> try_allocate(std::uint32_t slot, std::uint64_t bytes);
  // An array of the application becomes part of the slot's step where it lies, until take_back or the slot's next begin. The
  // place has no memory to fill. Peers that map segments do not see it; read() does.
  Place lend(std::uint32_t slot, const std::byte* data, std::uint64_t bytes);
  // Once it returns nobody reads lent arrays of the slot any more; reads of them throw Error(step_gone).
  void take_back(std::uint32_t slot);
  LentMemory& lent(std::uint32_t slot) const { return slot_at(slot).lent; }
  void set_payload(std::uint32_t slot, const Place& place, std::uint64_t bytes);
  // From here on readers find the step. The step's number is the one given to begin, or another.
  void publish(std::uint32_t slot, std::uint64_t step);
  // Of the thread that fills slots: for peers that look at any slot's header meanwhile.
  void note_copying(bool copying);
  // The slot is idle: nobody reads it any more. Its memory is kept until begin reuses it or another slot needs it.
  void recycle(std::uint32_t slot);
  bool idle(std::uint32_t slot) const;

  // Bytes allocated in the slot by its present (or last) step, headers and alignment included.
  std::uint64_t used_bytes(std::uint32_t slot) const;
  std::uint64_t total_bytes() const { return total_bytes_.load(std::memory_order_relaxed); }

  // Calls the subscriber at once for every segment there is, then for each new one, in the thread that makes it,
  // before that memory is handed out.
  std::uint64_t subscribe(Subscriber subscriber);
  // The subscriber is not called any more once this returns.
  void unsubscribe(std::uint64_t id);

  struct ReadView {
    std::span<const std::byte> bytes;
    std::shared_ptr<const Segment>
        owner;  // keeps the memory mapped; what it holds is the step's while holds() says so. Null: lent
  };
  // For serving peers. Throws Error(step_gone) when the slot does not hold the step (any more), Error(protocol) when the
  // range is not inside the segment.
  ReadView read(std::uint32_t slot, std::uint64_t step, std::uint32_t segment, std::uint64_t offset,
                std::uint64_t bytes) const;
  bool holds(std::uint32_t slot, std::uint64_t step) const;

 private:
  struct Slot {
    // Changed by the filling thread with mutex_ held; it may read them without.
    std::vector<std::shared_ptr<Segment>> segments;
    std::uint64_t generation = 0;
    bool idle = true;        // guarded by mutex_
    bool preparing = false;  // guarded by mutex_; its bytes count in the total
    LentMemory lent;
    // The filling thread's own.
    std::vector<std::uint64_t> used;  // bytes of each segment that are taken
    std::size_t current = 0;          // the segment being filled
    std::uint64_t filling = 0;        // the step's number, for messages
    std::atomic<std::uint64_t> used_total{0};
    std::atomic<std::uint64_t> step{slot_filling};  // as in the header
  };
  using Segments = std::vector<std::shared_ptr<Segment>>;

  Slot& slot_at(std::uint32_t slot) const;
  static SlotHeader& header_of(const Slot& slot);
  static std::shared_ptr<Segment> first_segment(std::uint64_t bytes, unsigned threads);
  std::uint64_t least_first_bytes() const;
  bool none_preparing() const;
  static std::optional<Place> bump(Slot& slot, std::uint64_t bytes);
  bool add_segment(std::uint32_t number, std::uint64_t wanted_bytes, std::uint64_t needed_bytes);
  bool take_room(std::uint64_t bytes);
  Segments drop_segments(Slot& slot);
  void make_first_segment(std::uint32_t number, std::uint64_t needed_bytes);
  [[noreturn]] void too_large(std::uint32_t slot, std::uint64_t bytes) const;
  void tell(const SegmentInfo& info) const;

  const std::uint64_t limit_bytes_;
  std::atomic<std::uint64_t> total_bytes_{0};
  std::vector<std::unique_ptr<Slot>> slots_;
  // Guards the slots' segment lists and the subscribers. Taken by the filling thread only to change them.
  mutable std::mutex mutex_;
  std::uint64_t next_subscriber_ = 1;
  std::vector<std::pair<std::uint64_t, Subscriber>> subscribers_;
  std::condition_variable prepared_;  // with mutex_
};

}  // namespace penstock::memory
