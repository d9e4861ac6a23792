#include "transport/shm/bulk_memory.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <list>
#include <map>

#include "memory/segment.hpp"

namespace penstock::transport {

namespace {

constexpr std::uint64_t kept_bytes = std::uint64_t{256} << 20;  // of buffers that nobody uses

// The process's buffers by address, and those that wait to be used again. Threads: any.
class Buffers {
 public:
  std::shared_ptr<BulkSegment> take(std::uint64_t bytes) {
    const std::uint64_t size = memory::whole_pages(bytes);
    {
      std::lock_guard lock(mutex_);
      for (auto at = kept_.begin(); at != kept_.end(); ++at) {
        if ((*at)->span().size() != size) continue;
        auto segment = *at;
        kept_.erase(at);
        kept_size_ -= size;
        return segment;
      }
    }
    return std::make_shared<BulkSegment>(next_.fetch_add(1), size);
  }
  void give_back(std::shared_ptr<BulkSegment> segment) {
    std::list<std::shared_ptr<BulkSegment>> dropped;  // destroyed outside of the lock
    std::lock_guard lock(mutex_);
    kept_size_ += segment->span().size();
    kept_.push_front(std::move(segment));
    while (kept_size_ > kept_bytes) {
      kept_size_ -= kept_.back()->span().size();
      dropped.splice(dropped.begin(), kept_, std::prev(kept_.end()));
    }
  }
  void add(const std::shared_ptr<BulkBuffer::State>& state) {
    std::lock_guard lock(mutex_);
    used_[state->segment->span().data()] = state;
  }
  void remove(const std::byte* address) {
    std::lock_guard lock(mutex_);
    used_.erase(address);
  }
  std::shared_ptr<BulkBuffer::State> find(std::span<const std::byte> memory) {
    std::lock_guard lock(mutex_);
    auto at = used_.upper_bound(memory.data());
    if (at == used_.begin()) return nullptr;
    auto state = (--at)->second.lock();
    if (!state) return nullptr;
    const auto whole = state->segment->span();
    const bool inside = memory.data() >= whole.data() && memory.size() <= whole.size() &&
                        static_cast<std::size_t>(memory.data() - whole.data()) <= whole.size() - memory.size();
    return inside ? state : nullptr;
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::map<const std::byte*, std::weak_ptr<BulkBuffer::State>> used_;
  std::list<std::shared_ptr<BulkSegment>> kept_;
  std::uint64_t kept_size_ = 0;
  std::atomic<std::uint32_t> next_{1};
};

Buffers& buffers() {
  static Buffers* const all = new Buffers;  // never destroyed: buffers may outlive static objects
  return *all;
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------ buffers

BulkSegment::BulkSegment(std::uint32_t number, std::uint64_t bytes)
    : number_(number), mapping_(memory::create_shared(fd_, bytes)) {}

BulkSegment::~BulkSegment() {
  for (const auto& listener : gone_) {
    if (!listener.asker.expired()) listener.callback(number_);
  }
}

int BulkSegment::descriptor(bool writable) {
  if (writable) return fd_.get();
  std::lock_guard lock(mutex_);
  if (!read_only_) read_only_ = memory::read_only_descriptor(fd_.get());
  return read_only_.get();
}

void BulkSegment::on_gone(std::weak_ptr<const void> asker, std::function<void(std::uint32_t)> callback) {
  std::lock_guard lock(mutex_);
  std::erase_if(gone_, [](const Listener& listener) { return listener.asker.expired(); });
  gone_.push_back({std::move(asker), std::move(callback)});
}

BulkBuffer::State::State(std::shared_ptr<BulkSegment> owned, std::uint64_t wanted)
    : segment(std::move(owned)), bytes(wanted) {}

BulkBuffer::State::~State() {
  buffers().remove(segment->span().data());
  if (keep && !tainted) buffers().give_back(segment);
}

BulkBuffer BulkBuffer::allocate(std::uint64_t bytes, bool keep) {
  BulkBuffer buffer;
  buffer.state_ = std::make_shared<State>(buffers().take(bytes), bytes);
  buffer.state_->keep = keep;
  buffers().add(buffer.state_);
  return buffer;
}

std::span<std::byte> BulkBuffer::span() const {
  return state_ ? state_->segment->span().first(state_->bytes) : std::span<std::byte>();
}

std::shared_ptr<BulkBuffer::State> find_buffer(std::span<const std::byte> memory) { return buffers().find(memory); }

// ------------------------------------------------------------------------------------------------------------- leases

Leases::Leases() : mapping_(memory::create_shared(fd_, bytes)) {}

Leases::Leases(const memory::UniqueFd& fd, std::uint64_t expected_bytes) {
  if (expected_bytes != bytes) throw Error(Errc::protocol, "leases of another size");
  mapping_ = memory::map_shared(fd.get(), expected_bytes, true);
}

std::atomic<std::uint32_t>& Leases::word(std::uint32_t slot) const {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return reinterpret_cast<std::atomic<std::uint32_t>*>(mapping_.data())[slot];
}

Leases::Slot Leases::open() {
  std::lock_guard lock(mutex_);
  Slot out;
  if (!free_.empty()) {
    out.slot = free_.back();
    free_.pop_back();
  } else if (fresh_ < slots) {
    out.slot = fresh_++;
  } else {
    return out;
  }
  out.generation = next_generation_;
  next_generation_ = next_generation_ == 0xffff ? 1 : next_generation_ + 1;
  word(out.slot).store(out.generation << 16, std::memory_order_release);
  return out;
}

bool Leases::close(Slot slot, base::Deadline deadline, const std::function<bool()>& ended) {
  constexpr timespec slice{0, 1'000'000};
  auto& users = word(slot.slot);
  std::uint32_t now = users.fetch_and(0xffff, std::memory_order_acq_rel) & 0xffff;
  while (now != 0 && !deadline.passed() && !ended()) {
    futex(users, FUTEX_WAIT, now, &slice);
    now = users.load(std::memory_order_acquire) & 0xffff;
  }
  if (now != 0) return false;
  std::lock_guard lock(mutex_);
  free_.push_back(slot.slot);
  return true;
}

bool Leases::enter(Slot slot) {
  if (slot.slot >= slots) return false;
  auto& users = word(slot.slot);
  std::uint32_t now = users.load(std::memory_order_acquire);
  do {
    if (now >> 16 != slot.generation || (now & 0xffff) == 0xffff) return false;
  } while (!users.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel));
  return true;
}

void Leases::leave(Slot slot) {
  auto& users = word(slot.slot);
  if (users.fetch_sub(1, std::memory_order_acq_rel) == 1) futex(users, FUTEX_WAKE, 1, nullptr);
}

}  // namespace penstock::transport
