// The direct engine's reader: plans what a selection needs, and has the data plane fetch it from the writers' memory.
//
// A step's lease is an object shared by the step and its views; when the last of them is gone the step is released, on
// whatever thread that happens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/data_plane.hpp"
#include "model/plan_cache.hpp"
#include "stream/reader_node.hpp"
#include "stream/statistics_file.hpp"

namespace penstock::stream {

class DirectReader final : public ReaderEngine {
 public:
  DirectReader(const EngineContext& context, const std::string& name, std::shared_ptr<Cohort> cohort,
               const StreamOptions& options);
  ~DirectReader() override;

  const std::string& name() const override { return node_->stream(); }
  Outcome begin_step(Timeout deadline) override;
  std::string why() const override { return node_->why(outcome_); }
  std::uint64_t step() const override;
  const std::vector<VariableInfo>& variables() const override { return layout().variables(); }
  const VariableInfo* find(std::string_view name) const override;
  const VariableInfo& variable(std::string_view name) const override { return layout().variable(name).info; }
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
  class Lease;
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

  const Lease& current() const;
  const model::Epoch& layout() const;
  void describe(const std::shared_ptr<const EpochBlobs>& blobs);
  const std::vector<RankPayload>& payloads();
  const std::vector<model::ViewPart>& cached_parts(std::uint32_t variable, const Selection& selection);
  base::Deadline deadline_of(Timeout timeout) const;
  std::unique_ptr<fabric::DataPlane> make_plane() const;

  const StreamOptions options_;
  std::shared_ptr<Cohort> cohort_;
  std::shared_ptr<ReaderNode> node_;
  std::unique_ptr<fabric::DataPlane> plane_;
  std::shared_ptr<fabric::Progress> progress_;

  std::shared_ptr<Lease> lease_;  // of the step being read
  Outcome outcome_ = Outcome::not_ready;
  std::shared_ptr<const EpochBlobs> blobs_;
  std::vector<std::shared_ptr<const model::RankLayout>> rank_layouts_;
  std::vector<std::uint32_t> payload_ranks_;
  std::shared_ptr<const model::Epoch> epoch_;
  std::optional<std::vector<RankPayload>> payloads_;  // of the step being read, once asked for
  model::PlanCache plans_;
  std::vector<CachedParts> parts_;
  std::vector<Pending> pending_;
  std::vector<fabric::DataPlane::Item> items_;
  bool closed_ = false;
  StreamStatistics counters_;
  StatisticsFile statistics_file_;
};

}  // namespace penstock::stream
