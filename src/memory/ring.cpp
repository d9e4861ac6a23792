#include "memory/ring.hpp"

#include <sys/stat.h>

#include <cstring>
#include <iterator>
#include <string>

#include "base/fault.hpp"
#include "penstock/error.hpp"

namespace penstock::memory {

namespace {

using base::FaultPhase;

constexpr std::uint64_t mask = Mailbox::capacity - 1;
static_assert((Mailbox::capacity & mask) == 0);

[[noreturn]] void bad_counter(const char* which) {
  throw Error(Errc::protocol, std::string("a peer's ring has an impossible ") + which + " counter");
}

}  // namespace

#ifdef __SANITIZE_THREAD__
MailboxOrder::MailboxOrder(int fd) {
  static std::atomic<unsigned> counts[4096];
  struct stat file {};
  ::fstat(fd, &file);
  count_ = &counts[file.st_ino % std::size(counts)];
}
#endif

// A fresh memory file is zero: an empty mailbox.
RingEnd::RingEnd() : own_(Segment::create(sizeof(Mailbox))), own_order_(own_.fd()) {}

void RingEnd::attach(int peer_fd) {
  peer_ = map_segment(peer_fd, own_.size());
  peer_order_ = MailboxOrder(peer_fd);
}

bool RingEnd::push(const Record& record) {
  if (!peer_) return false;
  const std::uint64_t read = peer().tail_seen.load(std::memory_order_acquire);
  if (head_ - read > Mailbox::capacity) bad_counter("read");
  if (head_ - read == Mailbox::capacity) return false;
  const bool watched = base::fault_hook.load(std::memory_order_relaxed) != nullptr;
  const std::string kind = watched ? std::to_string(record.kind) : std::string();
  const bool garbage = base::fault_point("ring-push", kind, FaultPhase::before);
  std::uint64_t words[8];
  std::memcpy(words, &record, sizeof words);
  if (garbage) std::memset(words, 0xa5, sizeof words);
  for (int i = 0; i < 8; ++i) own().entries[head_ & mask][i].store(words[i], std::memory_order_relaxed);
  base::fault_point("ring-push", kind, FaultPhase::half);
  own_order_.written();
  own().head.store(++head_, std::memory_order_release);
  base::fault_point("ring-push", kind, FaultPhase::after);
  return true;
}

bool RingEnd::pop(Record& record) {
  if (!peer_) return false;
  const std::uint64_t written = peer().head.load(std::memory_order_acquire);
  if (written - tail_ > Mailbox::capacity) bad_counter("write");
  if (written == tail_) return false;
  peer_order_.read();
  base::fault_point("ring-pop", FaultPhase::before);
  std::uint64_t words[8];
  for (int i = 0; i < 8; ++i) words[i] = peer().entries[tail_ & mask][i].load(std::memory_order_relaxed);
  std::memcpy(&record, words, sizeof words);
  own().tail_seen.store(++tail_, std::memory_order_release);
  base::fault_point("ring-pop", FaultPhase::after);
  return true;
}

}  // namespace penstock::memory
