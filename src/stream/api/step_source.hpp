// Where a reader's steps come from, and how their bytes are reached: the seam between what plans, copies and decodes
// (step_reader) and the engines. The direct engine's source is a node of the writer's network, the pool's asks servers.
//
// A source is used by one thread at a time, except that a step's lease may be dropped on any thread, after the source is
// gone too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "model/layout.hpp"
#include "penstock/stream_values.hpp"
#include "stream/protocol/ledger.hpp"
#include "transport/data_plane.hpp"

namespace penstock::stream {

class StepSource {
 public:
  struct Step {
    std::uint64_t step = 0;
    std::uint32_t slot = 0;
    std::shared_ptr<const EpochBlobs> epoch;
    std::shared_ptr<const void> lease;  // the step is released with its last owner
  };

  virtual ~StepSource() = default;
  virtual const std::string& stream() const = 0;
  // All ranks of this cohort have the same, and no other cohort has it.
  virtual std::uint64_t cohort_number() const = 0;
  virtual transport::DataPlane& plane() = 0;

  // ready, end_of_stream, writer_lost, or not_ready after the deadline.
  virtual Outcome wait_step(Step& step, base::Deadline deadline) = 0;
  virtual std::string why(Outcome outcome) const = 0;
  // The last step is not read any more; views may keep its lease.
  virtual void step_ended() {}
  // By rank, what the epoch of the steps from now on describes; what plane() is asked for is in its terms.
  virtual void described(std::span<const std::shared_ptr<const model::RankLayout>>) {}

  // The next step is the first kept one with at least this number. Throws Error(unsupported) where steps are not kept.
  virtual void seek(std::uint64_t step);
  // The steps that can be read now, in order.
  virtual std::vector<std::uint64_t> steps();

  // From now on the engine calls `take` in the thread of the writer's end, of each step: it begins the next step by the
  // deadline, hands it to the reader's function and ends it. What it throws comes out of the writer's end. Throws
  // Error(unsupported) where readers have threads or processes of their own.
  using Take = std::function<Outcome(base::Deadline)>;
  virtual void on_step(Take take);

  // Before close: functions given to on_step run no more, and none is running but the caller's own.
  virtual void stop_calls() {}
  // Leases that live on keep what they need.
  virtual void close() = 0;
  virtual void add_statistics(StreamStatistics& statistics) const = 0;
};

}  // namespace penstock::stream
