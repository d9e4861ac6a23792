// The direct engine's sink: steps stay in this rank's arena, a record of each goes to the other ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "fabric/task.hpp"
#include "stream/api/engine.hpp"
#include "stream/direct/writer_node.hpp"

namespace penstock::stream {

class DirectSink : public StepSink {
 public:
  // Collective.
  DirectSink(const EngineContext& context, const std::string& name, Cohort& cohort, const StreamOptions& options,
             WriterUse use = {});
  ~DirectSink() override;
  // Once, when nobody waits for the stream to open any more: the memory is mapped by readers, too, as it is made.
  void prefault(fabric::Progress& progress);

  const std::string& stream() const final { return name_; }
  std::uint64_t cohort_number() const final;
  std::string address() const override { return node_.address(); }
  Begun begin(base::Deadline deadline) final;
  std::uint64_t step() const override { return grant_.step; }
  Awaited awaited() const override;
  std::optional<memory::Place> allocate(std::uint64_t bytes) final;
  void note_copying(bool copying) final { arena_->note_copying(copying); }
  void commit(const Payload& payload, std::shared_ptr<const std::string> layout) override;
  void discard() override;
  bool finish(base::Deadline deadline) final { return node_.finish(deadline); }
  void close(base::Deadline deadline) override;
  void lose(const std::string& how) override;
  void add_statistics(StreamStatistics& statistics) const final;

 protected:
  WriterNode& node() { return node_; }
  const WriterNode& node() const { return node_; }
  const std::shared_ptr<memory::Arena>& arena() const { return arena_; }
  std::uint32_t slot() const { return grant_.slot; }  // of the last step that was begun

 private:
  bool reserve_slot(base::Deadline deadline);

  const std::string name_;
  const StreamOptions options_;
  const std::shared_ptr<memory::Arena> arena_;
  WriterNode node_;
  std::unique_ptr<fabric::Workers> prefaulting_;  // null: step_bytes is not given, or the stream was closed
  WriterProtocol::Grant grant_;
  bool open_ = false;  // grant_ is neither recorded nor void yet; between steps too, while memory for it is short
  std::uint64_t last_bytes_ = 0, voided_ = 0;
};

}  // namespace penstock::stream
