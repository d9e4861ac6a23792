// The insitu engine's sink: the direct engine's, which takes arrays that are lent where they lie, and lets a step end when
// nobody uses them any more. It calls the functions of this process's readers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "stream/direct/direct_sink.hpp"
#include "stream/insitu/local_writer.hpp"

namespace penstock::stream {

class InsituSink final : public DirectSink {
 public:
  // Collective.
  InsituSink(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options);

  bool takes_blocks() const override { return true; }
  std::optional<Taken> take(const Block& block) override;
  void commit(const Payload& payload, std::shared_ptr<const std::string> layout) override;
  void settle() override;
  void discard() override;

 private:
  void take_back();
  void wait_unused();

  const std::uint32_t timeout_ms_;  // step_timeout_ms
  const std::shared_ptr<LocalWriter> local_;
  std::uint64_t committed_ = 0;  // step
  bool lends_ = false;           // in the step that was begun last
};

}  // namespace penstock::stream
