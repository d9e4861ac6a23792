#include "stream/insitu/insitu_sink.hpp"

#include <algorithm>
#include <exception>

#include "model/layout.hpp"
#include "stream/api/patience.hpp"
#include "stream/insitu/insitu_engine.hpp"

namespace penstock::stream {

namespace {

// Without what the engine does not take: code may ask for it where configuration has chosen the engine. A step that is kept
// for late joiners would keep its lent arrays.
StreamOptions in_effect(StreamOptions options) {
  options.data_plane = DataPlane::automatic;
  options.reserve_steps = 0;
  options.keep_first_step = false;
  return options;
}

}  // namespace

static_assert(memory::max_slot_segments == model::max_segments, "descriptions may name the segment of lent arrays");

InsituSink::InsituSink(const EngineContext& context, const std::string& name, Cohort& cohort,
                       const StreamOptions& options)
    : DirectSink(context, name, cohort, in_effect(options), {.lends = true}),
      timeout_ms_(options.step_timeout_ms),
      local_(std::make_shared<LocalWriter>(arena())) {
  note_local_writer(node().token(), node().rank(), local_);
}

// Strides that peers may be told of: forward, and none of zero.
std::optional<StepSink::Taken> InsituSink::take(const Block& block) {
  if (!block.lent || block.data == nullptr) return std::nullopt;
  Taken taken;
  std::uint64_t extent = block.bytes;
  if (!block.strides.empty()) {
    taken.strides.resize(block.strides.size());
    for (std::size_t d = 0; d < block.strides.size(); ++d) {
      if (block.box.count[d] > 1 && block.strides[d] <= 0) return std::nullopt;
      if (block.box.count[d] > 1) taken.strides[d] = static_cast<std::uint64_t>(block.strides[d]);
    }
    const auto bytes = model::extent_bytes(block.box.count, taken.strides, size_of(block.variable.dtype));
    if (!bytes) return std::nullopt;
    extent = *bytes;
  }
  const auto place = arena()->lend(slot(), block.data, extent);
  lends_ = true;
  taken.segment = place.segment;
  taken.offset = place.offset;
  return taken;
}

void InsituSink::commit(const Payload& payload, std::shared_ptr<const std::string> layout) {
  committed_ = step();
  DirectSink::commit(payload, std::move(layout));
}

// The functions of this process's readers, one after the other, each with all of its steps; then whoever else reads.
void InsituSink::settle() {
  struct TakeBack {
    InsituSink& sink;
    ~TakeBack() { sink.take_back(); }
  } back{*this};
  std::exception_ptr first;
  if (local_->has_analyses()) {
    const auto over = [this] { return node().wait_over(slot(), base::Deadline(Timeout(0))); };
    for (const auto& analysis : local_->analyses()) {
      try {
        analysis->run(committed_, over, base::Deadline(chosen_or_usual(timeout_ms_)));
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
  }
  if (lends_) wait_unused();
  if (first) std::rethrow_exception(first);
}

void InsituSink::wait_unused() {
  const auto attempt = [this](base::Deadline deadline) { return node().wait_over(slot(), deadline); };
  if (attempt_patiently(stream(), committed_, timeout_ms_, attempt, [this] { return node().awaited(); })) return;
  throw Error(Errc::timeout, "stream " + stream() + ": step " + std::to_string(committed_) +
                                 " has arrays that were lent, and readers use it after step_timeout_ms=" +
                                 std::to_string(chosen_or_usual(timeout_ms_).count()) +
                                 "; awaited: " + node().awaited().who +
                                 " (a view that is kept counts as use). Readers get no more of the arrays; views of "
                                 "them that they keep show what the "
                                 "simulation writes there");
}

void InsituSink::take_back() {
  if (std::exchange(lends_, false)) arena()->take_back(slot());
}

void InsituSink::discard() {
  take_back();
  DirectSink::discard();
}

std::unique_ptr<StepSink> create_insitu(const EngineContext& context, const std::string& name, Cohort& cohort,
                                        const StreamOptions& options) {
  auto sink = std::make_unique<InsituSink>(context, name, cohort, options);
  sink->prefault(*context.progress);
  return sink;
}

}  // namespace penstock::stream
