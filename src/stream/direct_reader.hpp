// The direct engine's source of steps: this rank's node in the writer's network, and the plane to the writers' memory.
#pragma once

#include <memory>
#include <string>

#include "stream/reader_node.hpp"
#include "stream/step_source.hpp"

namespace penstock::stream {

class DirectSource final : public StepSource {
 public:
  // Collective.
  DirectSource(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options);

  const std::string& stream() const override { return node_->stream(); }
  std::uint64_t cohort_number() const override;
  transport::DataPlane& plane() override { return *plane_; }
  Outcome wait_step(Step& step, base::Deadline deadline) override;
  void step_ended() override { node_->step_ended(); }
  std::string why(Outcome outcome) const override { return node_->why(outcome); }
  void close() override { node_->close(); }
  void add_statistics(StreamStatistics& statistics) const override { node_->add_statistics(statistics); }

 private:
  class Lease;

  std::shared_ptr<ReaderNode> node_;
  std::unique_ptr<transport::DataPlane> plane_;
};

// The plane to the ranks of a writer that admitted this reader: shared memory when all of them are on this host, unless
// options say otherwise. Throws Error: unsupported, writer_lost.
std::unique_ptr<transport::DataPlane> make_direct_plane(std::shared_ptr<fabric::Progress> progress,
                                                        const std::string& stream, const Admission& admission,
                                                        std::uint32_t rank, const StreamOptions& options);

}  // namespace penstock::stream
