// The direct engine's source of steps: this rank's node in the writer's network, and the plane to the writers' memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "stream/api/step_source.hpp"
#include "stream/direct/reader_node.hpp"

namespace penstock::stream {

class DirectSource : public StepSource {
 public:
  // How the writer's memory is reached by a reader that was admitted.
  using MakePlane =
      std::function<std::unique_ptr<transport::DataPlane>(const std::string& stream, const Admission& admission)>;
  // Collective.
  DirectSource(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options,
               const MakePlane& make_plane);

  const std::string& stream() const final { return node_->stream(); }
  std::uint64_t cohort_number() const final;
  transport::DataPlane& plane() final { return *plane_; }
  Outcome wait_step(Step& step, base::Deadline deadline) override;
  void step_ended() override { node_->step_ended(); }
  std::string why(Outcome outcome) const final { return node_->why(outcome); }
  void close() override { node_->close(); }
  void add_statistics(StreamStatistics& statistics) const final { node_->add_statistics(statistics); }

 protected:
  const Admission& admission() const { return node_->admission(); }
  // Releases the last step though views of it live, which see what becomes of its memory. False: it was released.
  bool revoke_lease();

 private:
  class Lease;

  std::shared_ptr<ReaderNode> node_;
  std::unique_ptr<transport::DataPlane> plane_;
  std::weak_ptr<Lease> lease_;  // of the last step
};

// The plane to the ranks of a writer that admitted this reader: shared memory when all of them are on this host, unless
// options say otherwise. Throws Error: unsupported, writer_lost.
std::unique_ptr<transport::DataPlane> make_direct_plane(std::shared_ptr<fabric::Progress> progress,
                                                        const std::string& stream, const Admission& admission,
                                                        std::uint32_t rank, const StreamOptions& options);

}  // namespace penstock::stream
