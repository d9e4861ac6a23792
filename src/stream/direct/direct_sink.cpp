#include "stream/direct/direct_sink.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "stream/api/open.hpp"
#include "stream/api/patience.hpp"
#include "stream/direct/direct_engine.hpp"

namespace penstock::stream {

DirectSink::DirectSink(const EngineContext& context, const std::string& name, Cohort& cohort,
                       const StreamOptions& options, WriterUse use)
    : name_(name),
      options_(options),
      arena_(std::make_shared<memory::Arena>(
          ledger_settings(options, static_cast<std::uint32_t>(cohort.size())).slots(), options.queue_bytes)),
      node_(context, name, cohort, options, arena_, use) {}

DirectSink::~DirectSink() = default;

// With step_bytes given, every slot's memory is made from now on, as far as queue_bytes allows, while the application computes
// its first step. A step that comes earlier waits for the memory of its own slot.
void DirectSink::prefault(fabric::Progress& progress) {
  if (options_.step_bytes == 0) return;
  prefaulting_ = std::make_unique<fabric::Workers>(progress, 1, "stream-memory");
  for (std::uint32_t slot = 0; slot < arena_->slots(); ++slot)
    prefaulting_->submit([arena = arena_, slot, bytes = options_.step_bytes, stream = name_] {
      try {
        arena->prepare(slot, bytes);
      } catch (const Error& e) {  // begin will say so if it is still so then
        base::log(base::Level::warn, "memory for a step could not be made ahead",
                  {{"stream", stream}, {"why", e.what()}});
      }
    });
}

StepSink::Begun DirectSink::begin(base::Deadline deadline) {
  if (!open_) {
    const auto grant = node_.wait_grant(deadline);
    if (!grant) return Begun::not_yet;
    grant_ = *grant;
    if (grant_.dropped) return Begun::dropped;
    open_ = true;
  }
  try {
    if (reserve_slot(deadline)) return Begun::open;
    // Out of bytes though not out of steps. Policy drops the step; without one the same step is tried again, for the
    // other ranks write it.
    if (options_.when_full == WhenFull::block) return Begun::not_yet;
    discard();
    return Begun::dropped;
  } catch (...) {
    try {
      discard();  // the other ranks must not wait for this one's record
    } catch (const std::exception& e) {
      base::log(base::Level::debug, "a step could not be voided",
                {{"stream", name_}, {"step", grant_.step}, {"why", e.what()}});
    }
    throw;
  }
}

std::uint64_t DirectSink::cohort_number() const { return number_made_of(node_.token(), "number of the cohort"); }

Awaited DirectSink::awaited() const {
  auto awaited = node_.awaited();
  if (open_)
    awaited.who =
        "memory of earlier steps (queue_bytes=" + base::format_size(options_.queue_bytes) + "): " + awaited.who;
  return awaited;
}

// Makes room for a step as large as the last one. False when bytes are short until the deadline.
bool DirectSink::reserve_slot(base::Deadline deadline) {
  const auto reserve = std::max(options_.step_bytes, last_bytes_);
  for (;;) {
    const auto seen = node_.recycled();
    try {
      arena_->begin(grant_.slot, grant_.step, reserve);
      return true;
    } catch (const Error& e) {
      if (e.code() != Errc::step_too_large) throw;
      if (reserve > 0 && reserve + memory::slot_header_bytes > options_.queue_bytes) {
        arena_->begin(grant_.slot, grant_.step, 0);  // it may be smaller than the last
        return true;
      }
    }
    if (options_.when_full != WhenFull::block || !node_.wait_recycled(seen, deadline)) return false;
  }
}

std::optional<memory::Place> DirectSink::allocate(std::uint64_t bytes) {
  std::optional<memory::Place> place;
  const auto attempt = [&](base::Deadline deadline) {
    for (;;) {
      const auto seen = node_.recycled();
      place = arena_->try_allocate(grant_.slot, bytes);
      const bool hopeless = arena_->used_bytes(grant_.slot) + bytes > options_.queue_bytes;
      if (place || hopeless || options_.when_full != WhenFull::block) return true;
      if (!node_.wait_recycled(seen, deadline)) return false;
    }
  };
  attempt_patiently(name_, step(), options_.step_timeout_ms, attempt, [this] { return awaited(); });
  return place;
}

void DirectSink::commit(const Payload& payload, std::shared_ptr<const std::string> layout) {
  if (payload.bytes > 0) arena_->set_payload(grant_.slot, payload.place, payload.bytes);
  last_bytes_ = arena_->used_bytes(grant_.slot);
  arena_->publish(grant_.slot, grant_.step);
  node_.record(grant_, false, std::move(layout));
  open_ = false;
}

void DirectSink::discard() {
  if (!std::exchange(open_, false)) return;
  node_.record(grant_, true, nullptr);
  ++voided_;
}

void DirectSink::close(base::Deadline deadline) {
  prefaulting_.reset();
  node_.close(deadline);
}

void DirectSink::lose(const std::string& how) {
  prefaulting_.reset();
  node_.lose("its rank " + std::to_string(node_.rank()) + " " + how);
}

void DirectSink::add_statistics(StreamStatistics& statistics) const {
  statistics.steps_voided = voided_;
  statistics.memory_bytes = arena_->total_bytes();
  node_.add_statistics(statistics);
}

std::unique_ptr<StepSink> create_direct(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options) {
  auto sink = std::make_unique<DirectSink>(context, name, cohort, options);
  sink->prefault(*context.progress);
  return sink;
}

}  // namespace penstock::stream
