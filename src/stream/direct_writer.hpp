// The direct engine's writer: one copy (or none) into this rank's arena, one record a step.
//
// A step's layout (variables, boxes, places in the slot) is compared with the last one's while blocks are put; only a
// different one is described again. What varies each step (attributes, strings, ranges) is written into the slot.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fabric/task.hpp"
#include "memory/arena.hpp"
#include "stream/put_attributes.hpp"
#include "stream/statistics_file.hpp"
#include "stream/writer_node.hpp"

namespace penstock::stream {

class DirectWriter final : public WriterEngine {
 public:
  DirectWriter(const EngineContext& context, const std::string& name, std::shared_ptr<Cohort> cohort,
               const StreamOptions& options, WriterUse use = {});
  ~DirectWriter() override;
  WriterNode& node() { return *node_; }
  // Once, when nobody waits for the stream to open any more: the memory is mapped by readers, too, as it is made.
  void prefault(fabric::Progress& progress);

  const std::string& name() const override { return name_; }
  std::string address() const override { return node_->address(); }
  std::uint32_t define(std::string_view name, DType dtype, const Dims& shape, const VariableOptions& options) override;
  void put_attribute(std::string_view name, Attribute value, AttributeOf of) override;

  bool begin_step(Timeout deadline) override;
  std::string awaited() const override;
  std::uint64_t step() const override { return grant_.step; }
  bool dropped() const override { return dropped_; }
  void set_shape(std::uint32_t variable, const Dims& shape) override;
  void put(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides) override;
  std::span<std::byte> put_span(std::uint32_t variable, const Box& box) override;
  void lend(std::uint32_t variable, const Box& box, const void* data) override;
  void put_whole(std::uint32_t variable, const void* data) override;
  void put_string(std::uint32_t variable, std::string_view value) override;
  void end_step() override;
  void abandon_step() override;

  void close(Timeout deadline) override;
  void lose() override;
  bool closed() const override { return closed_; }
  StreamStatistics statistics() const override;

 private:
  enum class State { idle, writing, failed };
  struct Lent {
    const void* data;
    std::byte* place;
    std::uint64_t bytes;
  };
  struct Ranged {  // its range is computed in end_step, when the block is complete
    std::uint32_t block;
    const std::byte* data;
    std::uint64_t elements;
  };

  model::VariableDefinition& variable(std::uint32_t id);
  void require_writing() const;
  void require_payload_room(const std::string& what, std::uint64_t attributes, std::uint64_t strings) const;
  std::uint64_t checked_bytes(const model::VariableDefinition& v, const Box& box) const;
  std::byte* add_block(std::uint32_t id, const Box& box, std::uint64_t bytes);
  std::byte* discard_block(std::uint64_t bytes);
  memory::Place allocate(std::uint64_t bytes);
  bool reserve_slot(base::Deadline deadline);
  memory::Arena* goes_first(std::uint64_t bytes) const;
  void note_block(model::BlockDefinition block);
  void write_payload();
  void commit_step();
  void void_step();
  void undo_step();
  void give_up() noexcept;
  std::shared_ptr<const std::string> described();

  const std::string name_;
  const StreamOptions options_;
  std::shared_ptr<memory::Arena> arena_;
  std::unique_ptr<WriterNode> node_;
  const bool solo_;
  std::unique_ptr<fabric::Workers> prefaulting_;  // null: step_bytes is not given, or the stream was closed

  model::RankLayout layout_;  // what was last described, edited in place
  std::size_t blocks_put_ = 0;
  bool layout_changed_ = true;
  bool had_payload_ = false;
  std::unordered_map<std::string, std::uint32_t> ids_;
  wire::Payload payload_;
  PutAttributes attributes_{payload_.attributes};
  std::uint64_t string_bytes_ = 0;  // of payload_, encoded; rather more than less
  std::vector<std::byte> payload_bytes_;
  bool payload_changed_ = false;
  std::vector<std::pair<std::uint32_t, Dims>> shapes_before_;  // what the open step replaced
  std::vector<Lent> lent_;
  std::vector<Ranged> ranged_;

  State state_ = State::idle;
  WriterProtocol::Grant grant_;
  bool open_ = false;  // grant_ is neither recorded nor void yet; between steps too, while memory for it is short
  bool dropped_ = false;
  bool waited_ = false;   // this step, for room
  bool devices_ = false;  // as of this step's begin, arrays may lie on a device
  std::uint64_t last_bytes_ = 0;
  bool closed_ = false;
  // What put_span hands out in a dropped step: another buffer for each call, all of them there until the next step.
  struct alignas(memory::block_alignment) Line {
    std::byte bytes[memory::block_alignment];
  };
  struct Discard {
    std::unique_ptr<Line[]> lines;
    std::uint64_t count = 0;
  };
  std::vector<Discard> discards_;
  std::size_t discards_used_ = 0;

  StreamStatistics counters_;
  StatisticsFile statistics_file_;
};

}  // namespace penstock::stream
