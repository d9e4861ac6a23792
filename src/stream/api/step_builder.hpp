// What every writer does, whatever becomes of its steps: definitions and their checks, one copy (or none) of each block into
// memory that the sink gives, the description of the step.
//
// A step's layout (variables, boxes, places in the slot) is compared with the last one's while blocks are put; only a
// different one is described again. What varies each step (attributes, strings, ranges) is written into the slot.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/layout.hpp"
#include "stream/api/patience.hpp"
#include "stream/api/put_attributes.hpp"
#include "stream/api/statistics_file.hpp"
#include "stream/api/step_sink.hpp"
#include "wire/control.hpp"

namespace penstock::stream {

// Contract: include/penstock/stream.hpp; each function here is the one of the same name there, for one rank. One thread at a
// time. Errors leave it usable for close and destruction.
class StepBuilder {
 public:
  StepBuilder(std::unique_ptr<StepSink> sink, const Cohort& cohort, const StreamOptions& options);
  ~StepBuilder();

  const std::string& name() const { return sink_->stream(); }
  std::string address() const { return sink_->address(); }
  std::uint32_t define(std::string_view name, DType dtype, const Dims& shape, const VariableOptions& options);
  void put_attribute(std::string_view name, Attribute value, AttributeOf of);
  // As it is now. Throws not_found.
  const model::VariableDefinition& definition(std::uint32_t id) const;

  bool begin_step(Timeout deadline);  // false: not within the deadline
  // After that, in a wait of several such calls for which no timeout is chosen: whether to go on.
  bool keeps_waiting();
  std::string awaited() const { return sink_->awaited().who; }  // who was, after begin_step in vain
  std::uint64_t step() const { return sink_->step(); }
  bool dropped() const { return dropped_; }
  void set_shape(std::uint32_t variable, const Dims& shape);
  void put(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides);
  std::span<std::byte> put_span(std::uint32_t variable, const Box& box);
  void lend(std::uint32_t variable, const Box& box, const void* data, std::span<const std::int64_t> strides);
  void put_whole(std::uint32_t variable, const void* data);
  void put_string(std::uint32_t variable, std::string_view value);
  void end_step();
  void abandon_step();

  void close(Timeout deadline);
  void lose();  // readers are told that the writer is lost
  bool closed() const { return closed_; }
  StreamStatistics statistics() const;

 private:
  enum class State { idle, writing, ending, failed };  // ending: the step is committed
  struct Array {                                       // of the application's
    const void* data;
    Dims count;
    std::array<std::int64_t, max_dims> strides;  // bytes between neighbours
    std::uint64_t bytes;                         // of its elements
    bool packed;                                 // in the variable's order: strides do not matter
  };
  struct Lent {
    std::uint32_t variable;
    Array array;
    std::byte* place;
  };
  struct Ranged {  // its range is computed in end_step, when the block is complete
    std::uint32_t block;
    const std::byte* data;  // packed
    std::uint64_t elements;
  };

  model::VariableDefinition& variable(std::uint32_t id);
  void require_writing() const;
  void require_payload_room(const std::string& what, std::uint64_t attributes, std::uint64_t strings) const;
  std::uint64_t checked_bytes(const model::VariableDefinition& v, const Box& box) const;
  Array checked_array(const model::VariableDefinition& v, const Box& box, const void* data,
                      std::span<const std::int64_t> strides) const;
  void copy_array(std::byte* place, const Array& array, const model::VariableDefinition& v, bool look);
  bool may_lie_on_device(std::uint64_t bytes) const;
  bool can_be_taken(const model::VariableDefinition& v, const Array& array) const;
  std::optional<StepSink::Taken> offer(const StepSink::Block& block);
  std::byte* allocate_block(std::uint32_t id, const Box& box, std::uint64_t bytes);
  std::byte* add_block(std::uint32_t id, const Box& box, std::uint64_t bytes, const Array* array, bool lent);
  std::byte* discard_block(std::uint64_t bytes);
  memory::Place allocate(std::uint64_t bytes);
  StepSink* goes_first(std::uint64_t bytes) const;
  void note_block(model::BlockDefinition block);
  StepSink::Payload write_payload();
  void commit_step();
  void void_step();
  void undo_step();
  void give_up() noexcept;
  StepSink::Begun begin_sink(Timeout timeout);
  StepSink::Begun try_sink(base::Deadline deadline);
  void note_failure() noexcept;
  std::shared_ptr<const std::string> described();

  const StreamOptions options_;
  const bool solo_;
  const std::unique_ptr<StepSink> sink_;

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
  std::optional<Patience> waiting_;     // since the last step was begun
  std::optional<std::uint64_t> begun_;  // the last step that was
  bool dropped_ = false;
  bool waited_ = false;   // this step, for room
  bool devices_ = false;  // as of this step's begin, arrays may lie on a device
  bool closed_ = false;
  std::string failure_;  // of the last step, which it voided
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
