// A reader over any source of steps: plans what a selection needs, has the data plane fetch it, decodes payloads.
//
// A step's lease is shared by the step and its views; when the last of them is gone the step is released, on whatever
// thread that happens.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/plan_cache.hpp"
#include "stream/api/statistics_file.hpp"
#include "stream/api/step_source.hpp"
#include "transport/data_plane.hpp"
#include "wire/control.hpp"

namespace penstock::stream {

// Contract: include/penstock/stream.hpp; each function here is the one of the same name there, for one rank. One thread at a
// time. Errors leave it usable for close and destruction.
class StepReader {
 public:
  StepReader(std::unique_ptr<StepSource> source, const StreamOptions& options, int rank);
  ~StepReader();

  const std::string& name() const { return source_->stream(); }
  Outcome begin_step(Timeout deadline);
  std::string why() const { return source_->why(outcome_); }  // the last outcome was not ready
  std::uint64_t step() const;
  std::uint64_t last_step() const { return last_step_; }  // that was begun
  void on_step(StepSource::Take take);
  void note_analysis_error() { ++counters_.analysis_errors; }
  void seek(std::uint64_t step);
  std::vector<std::uint64_t> steps();
  const std::vector<VariableInfo>& variables() const { return layout().variables(); }
  const VariableInfo* find(std::string_view name) const;
  const VariableInfo& variable(std::string_view name) const;
  std::vector<BlockInfo> blocks(std::uint32_t variable) const;
  std::vector<std::string> attribute_names();
  std::optional<Attribute> attribute(std::string_view name);
  std::optional<MinMax> min_max(std::uint32_t variable, std::optional<std::uint64_t> block);
  std::vector<std::string> read_strings(std::uint32_t variable);
  Dims shape_of(std::uint32_t variable, const Selection& selection) const;
  void get(std::uint32_t variable, const Selection& selection, void* out, Order order,
           std::span<const std::int64_t> strides);
  void wait(Timeout deadline);
  Views view(std::uint32_t variable, const Selection& selection);
  void end_step();

  void close();
  bool closed() const { return closed_; }
  StreamStatistics statistics() const;

 private:
  struct Pending {
    std::shared_ptr<const model::Plan> plan;
    std::byte* out;
  };
  struct RankPayload {
    std::uint32_t rank;
    wire::Payload payload;
  };
  struct CachedParts {
    std::uint32_t variable = 0;
    Selection selection = Selection::all();
    std::vector<model::ViewPart> parts;
  };
  const StepSource::Step& current() const;
  const model::Epoch& layout() const;
  const model::VariableLayout& put_variable(std::uint32_t id) const;
  [[noreturn]] void refuse_absent(std::string_view name) const;
  void describe(const std::shared_ptr<const EpochBlobs>& blobs);
  void enqueue(const std::shared_ptr<const model::Plan>& plan, void* out);
  const std::vector<RankPayload>& payloads();
  const std::vector<model::ViewPart>& cached_parts(std::uint32_t variable, const Selection& selection);
  base::Deadline deadline_of(Timeout timeout) const;

  const StreamOptions options_;
  std::unique_ptr<StepSource> source_;

  std::optional<StepSource::Step> step_;  // being read
  std::uint64_t last_step_ = 0;           // the last one that was read; with epoch_
  // By variable: the last step with it, of epochs before epoch_.
  std::map<std::string, std::uint64_t, std::less<>> last_with_;
  Outcome outcome_ = Outcome::not_ready;
  std::shared_ptr<const EpochBlobs> blobs_;
  std::vector<std::shared_ptr<const model::RankLayout>> rank_layouts_;
  std::vector<std::uint32_t> payload_ranks_;
  std::shared_ptr<const model::Epoch> epoch_;
  std::optional<std::vector<RankPayload>> payloads_;  // of the step being read, once asked for
  model::PlanCache plans_;
  std::vector<CachedParts> parts_;
  std::vector<Pending> pending_;
  std::vector<transport::DataPlane::Item> items_;
  bool closed_ = false;
  StreamStatistics counters_;
  StatisticsFile statistics_file_;
};

}  // namespace penstock::stream
