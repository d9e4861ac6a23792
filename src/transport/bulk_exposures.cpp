#include "transport/bulk_exposures.hpp"

#include <string>

#include "base/log.hpp"

namespace penstock::transport {

namespace {

// A peer that copies is done with it in this time, or something is wrong with it.
constexpr Timeout withdrawal_time{2'000};

[[noreturn]] void gone(std::uint64_t id) {
  throw Error(Errc::invalid_argument, "bulk memory " + std::to_string(id) + " is not exposed any more");
}

class ExposedRegion final : public Region {
 public:
  ExposedRegion(std::shared_ptr<Exposure::State> exposure, Access needed)
      : exposure_(std::move(exposure)), needed_(needed) {}
  std::byte* segment(std::uint32_t number, wire::Reach reach) override {
    if (number != 0) gone(exposure_->descriptor.id);
    check_bulk(exposure_->descriptor, needed_, reach.first, reach.last - reach.first);
    return exposure_->memory.data();
  }
  std::mutex* mutex() override { return &exposure_->mutex; }
  Errc state() const override { return exposure_->withdrawn ? Errc::invalid_argument : Errc::ok; }
  bool hold() override {
    const std::lock_guard lock(exposure_->mutex);
    if (exposure_->withdrawn) gone(exposure_->descriptor.id);
    ++exposure_->held;
    return true;
  }
  void release() override {
    const std::lock_guard lock(exposure_->mutex);
    --exposure_->held;
    exposure_->let_go.notify_all();
  }

 private:
  const std::shared_ptr<Exposure::State> exposure_;
  const Access needed_;
};

}  // namespace

void check_bulk(const WireBulk& bulk, Access needed, std::uint64_t offset, std::uint64_t bytes) {
  if ((bulk.access & static_cast<std::uint32_t>(needed)) != static_cast<std::uint32_t>(needed))
    throw Error(Errc::invalid_argument, "bulk memory that is not exposed for this");
  if (offset > bulk.bytes || bytes > bulk.bytes - offset)
    throw Error(Errc::invalid_argument, std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                                            " of bulk memory of " + std::to_string(bulk.bytes));
}

Exposure::Exposure(Exposure&& other) noexcept = default;

Exposure& Exposure::operator=(Exposure&& other) noexcept {
  if (this == &other) return *this;
  Exposure old(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

Exposure::~Exposure() {
  if (!state_) return;
  if (const auto owner = state_->owner.lock()) {
    owner->withdraw(std::move(state_));
  } else {
    std::lock_guard lock(state_->mutex);
    state_->withdrawn = true;
  }
}

BulkDescriptor Exposure::descriptor() const {
  if (!state_) return {};
  const WireBulk& d = state_->descriptor;
  return BulkDescriptor(d.id, d.bytes, d.offset, d.segment, static_cast<std::uint8_t>(d.access));
}

Exposure BulkSpace::exposure_of(std::shared_ptr<Exposure::State> state) {
  Exposure exposure;
  exposure.state_ = std::move(state);
  return exposure;
}

std::shared_ptr<Exposure::State> Exposures::add(std::span<std::byte> memory, Access access,
                                                std::shared_ptr<BulkBuffer::State> buffer,
                                                std::shared_ptr<Leases> leases, std::shared_ptr<const void> keep) {
  look_at_late();
  auto state = std::make_shared<Exposure::State>();
  state->owner = weak_from_this();
  state->memory = memory;
  state->keep = std::move(keep);
  if (buffer) {
    state->lease = leases->open();
    if (state->lease.slot != Leases::no_slot) state->buffer = std::move(buffer);
  }
  WireBulk& d = state->descriptor;
  d.bytes = memory.size();
  d.access = static_cast<std::uint32_t>(access);
  if (state->buffer) {
    d.segment = state->buffer->segment->number();
    d.offset = static_cast<std::uint64_t>(memory.data() - state->buffer->segment->span().data());
  }
  std::lock_guard lock(mutex_);
  if (leases) leases_ = leases;
  d.id = next_++ << 32 | std::uint64_t{state->lease.generation} << 16 | state->lease.slot;
  all_.emplace(d.id, state);
  return state;
}

std::shared_ptr<Exposure::State> Exposures::find(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(id);
  if (found == all_.end()) gone(id);
  return found->second;
}

std::shared_ptr<Exposure::State> Exposures::find(std::uint64_t id, Access needed, std::uint64_t offset,
                                                 std::uint64_t bytes) const {
  auto state = find(id);
  check_bulk(state->descriptor, needed, offset, bytes);
  return state;
}

void Exposures::set_cut(std::function<void()> cut) {
  const std::lock_guard lock(mutex_);
  cut_ = std::move(cut);
}

std::unique_ptr<Region> Exposures::open(const wire::DataRequest& request, bool for_writing) {
  return std::make_unique<ExposedRegion>(find(request.region), for_writing ? Access::write : Access::read);
}

void Exposures::withdraw(std::shared_ptr<Exposure::State> state) {
  {
    std::lock_guard lock(mutex_);
    all_.erase(state->descriptor.id);
    if (state->keep && state->buffer) late_.push_back({state, base::Clock::now()});
  }
  {
    std::lock_guard lock(state->mutex);
    state->withdrawn = true;
  }
  if (!state->keep) return wait_unused(*state);
  state.reset();  // whoever serves a request of the peer's holds it, and with it the memory's owner
  look_at_late();
}

void Exposures::end() {
  ended_ = true;
  std::vector<Late> late;  // let go of without the lock
  std::lock_guard lock(mutex_);
  late.swap(late_);
}

void Exposures::look_at_late() {
  std::vector<Late> free;  // let go of without the lock
  bool stuck = false;
  {
    std::lock_guard lock(mutex_);
    const auto is_free = [&](const Late& late) {
      if (!leases_->close(late.exposure->lease, base::Deadline(Timeout(0)), [this] { return ended(); })) {
        stuck |= base::Clock::now() - late.since > withdrawal_time;
        return false;
      }
      free.push_back(late);
      return true;
    };
    std::erase_if(late_, is_free);
  }
  if (stuck && on_stuck && !ended()) on_stuck();
}

void Exposures::wait_unused(Exposure::State& state) {
  std::shared_ptr<Leases> leases;
  std::function<void()> cut;
  {
    std::lock_guard lock(mutex_);
    leases = leases_;
    cut = cut_;
  }
  bool held = false;
  {
    std::unique_lock lock(state.mutex);
    held = !state.let_go.wait_for(lock, withdrawal_time, [&] { return state.held == 0; });
  }
  if (held) {
    base::log(base::Level::warn, "peer did not finish its transfer; closing link",
              {{"bytes", std::to_string(state.memory.size())}});
    cut();
  }
  if (!state.buffer) return;
  if (leases->close(state.lease, base::Deadline(withdrawal_time), [this] { return ended(); })) return;
  // The peer has died, or pretends to copy for ever. What it may still write into is not used again.
  if ((state.descriptor.access & static_cast<std::uint32_t>(Access::write)) != 0) state.buffer->tainted = true;
  if (ended()) return;
  base::log(base::Level::warn, "a peer does not let go of bulk memory",
            {{"bytes", std::to_string(state.memory.size())}});
  if (on_stuck) on_stuck();
}

}  // namespace penstock::transport
