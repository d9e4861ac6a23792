#include "memory/arena.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "penstock/error.hpp"

namespace penstock::memory {

namespace {

constexpr std::uint64_t least_first_segment = std::uint64_t{1} << 20;
// Memory is made by one thread while the application computes (prepare), and by several where it waits for it.
constexpr unsigned aside_threads = 1;
constexpr unsigned waited_threads = 4;
constexpr std::uint64_t most_block_bytes = std::uint64_t{1} << 46;  // sums of two stay far from overflow

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

SlotInfo load(const SlotHeader& header) {
  SlotInfo info;
  info.step = header.step.load(std::memory_order_acquire);
  info.payload_segment = header.payload_segment.load(std::memory_order_relaxed);
  info.payload_offset = header.payload_offset.load(std::memory_order_relaxed);
  info.payload_bytes = header.payload_bytes.load(std::memory_order_relaxed);
  return info;
}

Arena::Arena(std::uint32_t slots, std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {
  for (std::uint32_t i = 0; i < slots; ++i) slots_.push_back(std::make_unique<Slot>());
}

Arena::~Arena() = default;

void Arena::too_large(std::uint32_t slot, std::uint64_t bytes) const {
  throw Error(Errc::step_too_large, "another " + base::format_size(bytes) + " for step " +
                                        std::to_string(slots_[slot]->filling) + " would exceed this rank's " +
                                        base::format_size(limit_bytes_) + " for steps (queue_bytes)");
}

Arena::Slot& Arena::slot_at(std::uint32_t slot) const {
  if (slot >= slots_.size()) throw Error(Errc::protocol, "there is no slot " + std::to_string(slot));
  return *slots_[slot];
}

SlotHeader& Arena::header_of(const Slot& slot) { return *reinterpret_cast<SlotHeader*>(slot.segments[0]->data()); }

bool Arena::prepare(std::uint32_t number, std::uint64_t reserve_bytes) {
  Slot& slot = slot_at(number);
  std::uint64_t size = whole_pages(slot_header_bytes + std::min(reserve_bytes, most_block_bytes));
  {
    std::lock_guard lock(mutex_);
    const std::uint64_t left = limit_bytes_ - total_bytes_.load(std::memory_order_relaxed);
    if (!slot.idle || slot.preparing || !slot.segments.empty() || size > left) return false;
    size = std::max(size, std::min(whole_pages(least_first_bytes()), left / whole_pages(1) * whole_pages(1)));
    slot.preparing = true;
    total_bytes_.fetch_add(size, std::memory_order_relaxed);
  }
  std::shared_ptr<Segment> segment;
  std::exception_ptr error;
  try {
    segment = first_segment(size, aside_threads);
  } catch (...) {
    error = std::current_exception();
  }
  {
    std::lock_guard lock(mutex_);
    slot.preparing = false;
    if (segment) {
      slot.segments.push_back(std::move(segment));
      tell({number, 0, slot.generation, slot.segments[0]->size(), slot.segments[0]->fd()});
    } else {
      total_bytes_.fetch_sub(size, std::memory_order_relaxed);
    }
  }
  prepared_.notify_all();
  if (error) std::rethrow_exception(error);
  return true;
}

std::uint64_t Arena::least_first_bytes() const { return std::min(least_first_segment, limit_bytes_ / slots_.size()); }

// Called with mutex_ held.
bool Arena::none_preparing() const {
  return std::ranges::none_of(slots_, [](const auto& slot) { return slot->preparing; });
}

void Arena::begin(std::uint32_t number, std::uint64_t step, std::uint64_t reserve_bytes) {
  Slot& slot = slot_at(number);
  {
    std::unique_lock lock(mutex_);
    slot.idle = false;
    prepared_.wait(lock, [&] { return !slot.preparing; });
  }
  slot.filling = step;
  slot.step.store(slot_filling, std::memory_order_relaxed);
  slot.lent.take_back();
  if (!slot.segments.empty()) {
    header_of(slot).step.store(slot_filling, std::memory_order_relaxed);
    // Readers that see any of the new step's bytes must also see that the old step is gone.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  const std::uint64_t needed = slot_header_bytes + std::min(reserve_bytes, most_block_bytes);
  if (slot.segments.size() != 1 || slot.segments[0]->size() < needed) make_first_segment(number, needed);
  slot.used.assign(slot.segments.size(), 0);
  slot.used[0] = slot_header_bytes;
  slot.current = 0;
  slot.used_total.store(slot_header_bytes, std::memory_order_relaxed);
  SlotHeader& header = header_of(slot);
  header.payload_segment.store(0, std::memory_order_relaxed);
  header.payload_offset.store(0, std::memory_order_relaxed);
  header.payload_bytes.store(0, std::memory_order_relaxed);
}

// Replaces the slot's segments by one: at least `needed_bytes`, and if there is room what the last step spread over
// several.
void Arena::make_first_segment(std::uint32_t number, std::uint64_t needed_bytes) {
  Slot& slot = *slots_[number];
  const std::uint64_t last = slot.segments.size() > 1 ? slot.used_total.load(std::memory_order_relaxed) : 0;
  Segments released;
  {
    std::lock_guard lock(mutex_);
    released = drop_segments(slot);
  }
  const bool had_segments = !released.empty();
  released.clear();
  bool added = false;
  try {
    added = add_segment(number, std::max({needed_bytes, last, least_first_bytes()}), needed_bytes);
  } catch (...) {
    recycle(number);
    throw;
  }
  if (added) return;
  {
    std::lock_guard lock(mutex_);
    slot.idle = true;
    if (had_segments) tell({number, 0, slot.generation, 0, -1});
  }
  too_large(number, needed_bytes);
}

std::optional<Place> Arena::bump(Slot& slot, std::uint64_t bytes) {
  for (; slot.current < slot.segments.size(); ++slot.current) {
    const Segment& segment = *slot.segments[slot.current];
    std::uint64_t& used = slot.used[slot.current];
    if (used > segment.size() || bytes > segment.size() - used) continue;
    const Place place{static_cast<std::uint32_t>(slot.current), used, segment.data() + used};
    const std::uint64_t taken = round_up(bytes, block_alignment);
    used += taken;
    slot.used_total.fetch_add(taken, std::memory_order_relaxed);
    return place;
  }
  slot.current = slot.segments.empty() ? 0 : slot.segments.size() - 1;
  return std::nullopt;
}

std::optional<Place> Arena::try_allocate(std::uint32_t number, std::uint64_t bytes) {
  Slot& slot = slot_at(number);
  if (bytes > most_block_bytes) return std::nullopt;
  if (auto place = bump(slot, bytes)) return place;
  if (slot.segments.size() >= lent_segment) return std::nullopt;
  // As much again as there is: a step of any size is reached in few segments.
  std::uint64_t before = 0;
  for (const auto& segment : slot.segments) before += segment->size();
  if (!add_segment(number, std::max(bytes, before), bytes)) return std::nullopt;
  slot.used.push_back(0);
  slot.current = slot.segments.size() - 1;
  return bump(slot, bytes);
}

Place Arena::allocate(std::uint32_t slot, std::uint64_t bytes) {
  auto place = try_allocate(slot, bytes);
  if (!place) too_large(slot, bytes);
  return *place;
}

Place Arena::lend(std::uint32_t slot, const std::byte* data, std::uint64_t bytes) {
  return {lent_segment, slot_at(slot).lent.add(data, bytes), nullptr};
}

void Arena::take_back(std::uint32_t slot) { slot_at(slot).lent.take_back(); }

void Arena::set_payload(std::uint32_t slot, const Place& place, std::uint64_t bytes) {
  SlotHeader& header = header_of(slot_at(slot));
  header.payload_segment.store(place.segment, std::memory_order_relaxed);
  header.payload_offset.store(place.offset, std::memory_order_relaxed);
  header.payload_bytes.store(bytes, std::memory_order_relaxed);
}

void Arena::publish(std::uint32_t number, std::uint64_t step) {
  Slot& slot = slot_at(number);
  header_of(slot).step.store(step, std::memory_order_release);
  slot.step.store(step, std::memory_order_release);
}

void Arena::note_copying(bool copying) {
  const std::lock_guard lock(mutex_);  // others may be preparing slots
  for (const auto& slot : slots_)
    if (!slot->segments.empty()) header_of(*slot).copying.store(copying ? 1 : 0, std::memory_order_relaxed);
}

void Arena::recycle(std::uint32_t slot) {
  Slot& which = slot_at(slot);
  std::lock_guard lock(mutex_);
  which.idle = true;
}

bool Arena::idle(std::uint32_t slot) const {
  const Slot& which = slot_at(slot);
  std::lock_guard lock(mutex_);
  return which.idle;
}

std::uint64_t Arena::used_bytes(std::uint32_t slot) const {
  return slot_at(slot).used_total.load(std::memory_order_relaxed);
}

// Adds the bytes to the total, taking memory from idle slots where the limit demands it. False when even that is not
// enough; idle slots keep their memory then.
bool Arena::take_room(std::uint64_t bytes) {
  std::vector<Segments> released;  // unmapped after the lock is given back
  std::unique_lock lock(mutex_);
  const auto room = [&] {
    std::uint64_t reclaimable = 0;
    for (const auto& slot : slots_) {
      if (!slot->idle) continue;
      for (const auto& segment : slot->segments) reclaimable += segment->size();
    }
    const std::uint64_t total = total_bytes_.load(std::memory_order_relaxed);
    return bytes <= limit_bytes_ && total - reclaimable <= limit_bytes_ - bytes;
  };
  // What is being prepared for an idle slot can be taken once it is there.
  if (!room()) prepared_.wait(lock, [&] { return none_preparing(); });
  if (!room()) return false;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (total_bytes_.load(std::memory_order_relaxed) <= limit_bytes_ - bytes) break;
    Slot& slot = *slots_[i];
    if (!slot.idle || slot.segments.empty()) continue;
    released.push_back(drop_segments(slot));
    tell({i, 0, slot.generation, 0, -1});
  }
  total_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

// Called with mutex_ held.
Arena::Segments Arena::drop_segments(Slot& slot) {
  if (slot.segments.empty()) return {};
  slot.step.store(slot_filling, std::memory_order_relaxed);
  // For readers that still map the old memory: look at the newer one.
  header_of(slot).step.store(slot_replaced, std::memory_order_release);
  std::uint64_t bytes = 0;
  for (const auto& segment : slot.segments) bytes += segment->size();
  total_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  ++slot.generation;
  slot.used.clear();
  slot.current = 0;
  return std::exchange(slot.segments, {});
}

std::shared_ptr<Segment> Arena::first_segment(std::uint64_t bytes, unsigned threads) {
  auto segment = std::make_shared<Segment>(Segment::create(bytes, threads));
  auto* header = new (segment->data()) SlotHeader;
  header->payload_bytes.store(0, std::memory_order_relaxed);
  header->step.store(slot_filling, std::memory_order_release);
  return segment;
}

bool Arena::add_segment(std::uint32_t number, std::uint64_t wanted_bytes, std::uint64_t needed_bytes) {
  Slot& slot = *slots_[number];
  std::uint64_t size = whole_pages(wanted_bytes);
  if (!take_room(size)) {
    size = whole_pages(needed_bytes);
    if (!take_room(size)) return false;
  }
  std::shared_ptr<Segment> segment;
  try {
    segment = slot.segments.empty() ? first_segment(size, waited_threads)
                                    : std::make_shared<Segment>(Segment::create(size, waited_threads));
  } catch (...) {
    total_bytes_.fetch_sub(size, std::memory_order_relaxed);
    throw;
  }
  std::lock_guard lock(mutex_);
  slot.segments.push_back(std::move(segment));
  const auto index = static_cast<std::uint32_t>(slot.segments.size() - 1);
  tell({number, index, slot.generation, slot.segments[index]->size(), slot.segments[index]->fd()});
  return true;
}

void Arena::tell(const SegmentInfo& info) const {
  for (const auto& [id, subscriber] : subscribers_) subscriber(info);
}

std::uint64_t Arena::subscribe(Subscriber subscriber) {
  std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = *slots_[i];
    for (std::uint32_t j = 0; j < slot.segments.size(); ++j)
      subscriber({i, j, slot.generation, slot.segments[j]->size(), slot.segments[j]->fd()});
  }
  subscribers_.emplace_back(next_subscriber_, std::move(subscriber));
  return next_subscriber_++;
}

void Arena::unsubscribe(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  std::erase_if(subscribers_, [id](const auto& entry) { return entry.first == id; });
}

Arena::ReadView Arena::read(std::uint32_t number, std::uint64_t step, std::uint32_t segment, std::uint64_t offset,
                            std::uint64_t bytes) const {
  const Slot& slot = slot_at(number);
  std::lock_guard lock(mutex_);
  if (step >= slot_replaced || slot.step.load(std::memory_order_acquire) != step)
    throw Error(Errc::step_gone, "slot " + std::to_string(number) + " does not hold step " + std::to_string(step));
  if (segment == lent_segment) return {{slot.lent.find(offset, bytes), bytes}, nullptr};
  if (segment >= slot.segments.size())
    throw Error(Errc::protocol, "slot " + std::to_string(number) + " has no segment " + std::to_string(segment));
  const auto& memory = slot.segments[segment];
  if (offset > memory->size() || bytes > memory->size() - offset)
    throw Error(Errc::protocol, "bytes " + std::to_string(offset) + " + " + std::to_string(bytes) +
                                    " are outside the " + std::to_string(memory->size()) + " bytes of segment " +
                                    std::to_string(segment));
  return {{memory->data() + offset, bytes}, memory};
}

bool Arena::holds(std::uint32_t slot, std::uint64_t step) const {
  return slot_at(slot).step.load(std::memory_order_acquire) == step;
}

}  // namespace penstock::memory
