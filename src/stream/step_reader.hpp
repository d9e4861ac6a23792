// A reader over any source of steps: plans what a selection needs, has the data plane fetch it, decodes payloads.
//
// A step's lease is shared by the step and its views; when the last of them is gone the step is released, on whatever
// thread that happens. Blocks that the source keeps cut in several are planned as what they became (placed_), and
// numbered, listed and viewed as their writer put them (epoch_).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/plan_cache.hpp"
#include "stream/engine.hpp"
#include "stream/statistics_file.hpp"
#include "stream/step_source.hpp"
#include "transport/data_plane.hpp"
#include "wire/control.hpp"

namespace penstock::stream {

class StepReader final : public ReaderEngine {
 public:
  StepReader(std::unique_ptr<StepSource> source, const StreamOptions& options, int rank);
  ~StepReader() override;

  const std::string& name() const override { return source_->stream(); }
  Outcome begin_step(Timeout deadline) override;
  std::string why() const override { return source_->why(outcome_); }
  std::uint64_t step() const override;
  void seek(std::uint64_t step) override;
  std::vector<std::uint64_t> steps() override;
  const std::vector<VariableInfo>& variables() const override { return layout().variables(); }
  const VariableInfo* find(std::string_view name) const override;
  const VariableInfo& variable(std::string_view name) const override;
  std::vector<BlockInfo> blocks(std::uint32_t variable) const override;
  std::vector<std::string> attribute_names() override;
  std::optional<Attribute> attribute(std::string_view name) override;
  std::optional<MinMax> min_max(std::uint32_t variable, std::optional<std::uint64_t> block) override;
  std::vector<std::string> read_strings(std::uint32_t variable) override;
  Dims shape_of(std::uint32_t variable, const Selection& selection) const override;
  void get(std::uint32_t variable, const Selection& selection, void* out, Order order,
           std::span<const std::int64_t> strides) override;
  void wait(Timeout deadline) override;
  Views view(std::uint32_t variable, const Selection& selection) override;
  void end_step() override;

  void close() override;
  StreamStatistics statistics() const override;

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
  // Numbers, among the variable's placed blocks, of what one described block became.
  struct Chunks {
    std::uint32_t first = 0, last = 0;
    bool cut() const { return last - first != 1; }
  };

  const StepSource::Step& current() const;
  const model::Epoch& layout() const;
  const model::VariableLayout& put_variable(std::uint32_t id) const;
  [[noreturn]] void refuse_absent(std::string_view name) const;
  void describe(const std::shared_ptr<const EpochBlobs>& blobs);
  void place(std::uint64_t number);
  void number_chunks();
  Chunks chunks_of(std::uint32_t variable, std::uint64_t block) const;
  void get_cut(std::uint32_t variable, std::uint64_t block, std::byte* out, Order order,
               std::span<const std::int64_t> strides);
  void enqueue(const std::shared_ptr<const model::Plan>& plan, void* out);
  transport::DataPlane::Mapped view_part(std::uint32_t variable, const model::ViewPart& part);
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
  std::vector<PlacedLayout> rank_places_;
  std::vector<std::uint32_t> payload_ranks_;
  std::shared_ptr<const model::Epoch> epoch_;            // as described
  std::shared_ptr<const model::Epoch> placed_;           // as it lies; the same object where nothing differs
  std::vector<std::vector<std::uint32_t>> chunk_first_;  // by variable, by block number; empty when placed_ is epoch_
  std::optional<std::vector<RankPayload>> payloads_;     // of the step being read, once asked for
  model::PlanCache plans_;
  std::vector<CachedParts> parts_;
  std::vector<Pending> pending_;
  std::vector<transport::DataPlane::Item> items_;
  bool closed_ = false;
  StreamStatistics counters_;
  StatisticsFile statistics_file_;
};

}  // namespace penstock::stream
