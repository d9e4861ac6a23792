// Records between two processes of one node without a system call: a pair of single-producer, single-consumer rings.
//
// Each side owns a mailbox (its outgoing records, and how far it has read the other's) that it alone writes; the other
// side maps it read-only. Counters that come from the peer are checked, so a broken peer is an Error, never a bad access.
// One thread pushes and one thread pops at a time (they may differ). What was pushed can be popped after the peer died.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "memory/segment.hpp"

namespace penstock::memory {

struct alignas(64) Record {
  std::uint32_t kind = 0;
  std::uint32_t a = 0;
  std::uint64_t b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
  friend bool operator==(const Record&, const Record&) = default;
};
static_assert(sizeof(Record) == 64);

struct Mailbox {
  static constexpr std::uint64_t capacity = 1024;    // a power of two
  alignas(64) std::atomic<std::uint64_t> head;       // records pushed so far
  alignas(64) std::atomic<std::uint64_t> tail_seen;  // records of the other side's mailbox popped so far
  alignas(64) std::atomic<std::uint64_t> entries[capacity][8];
};

// What the thread sanitizer does not see by itself: two ends in one process map one mailbox at two addresses. Else nothing.
class MailboxOrder {
 public:
#ifdef __SANITIZE_THREAD__
  explicit MailboxOrder(int fd = -1);
  void written() { count_->fetch_add(1, std::memory_order_release); }
  void read() const { static_cast<void>(count_->load(std::memory_order_acquire)); }

 private:
  std::atomic<unsigned>* count_;
#else
  explicit MailboxOrder(int /*fd*/ = -1) {}
  void written() {}
  void read() const {}
#endif
};

class RingEnd {
 public:
  // Makes this side's mailbox. Throws Error(memory).
  RingEnd();

  int fd() const { return own_.fd(); }
  // Maps the peer's mailbox; the descriptor stays the caller's. Throws Error(protocol).
  void attach(int peer_fd);
  bool attached() const { return static_cast<bool>(peer_); }

  // False when the ring is full or not attached. Throws Error(protocol) when the peer's counters are impossible.
  bool push(const Record& record);
  // False when there is nothing to read. Throws Error(protocol).
  bool pop(Record& record);

 private:
  Mailbox& own() const { return *reinterpret_cast<Mailbox*>(own_.data()); }
  const Mailbox& peer() const { return *reinterpret_cast<const Mailbox*>(peer_.data()); }
  Segment own_;
  Mapping peer_;
  [[no_unique_address]] MailboxOrder own_order_, peer_order_;
  std::uint64_t head_ = 0;  // own counters are kept outside shared memory: nothing read back from it is trusted
  std::uint64_t tail_ = 0;
};

}  // namespace penstock::memory
