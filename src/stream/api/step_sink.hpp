// Where a writer's steps go: the seam between what defines, checks, copies and describes (step_builder) and the engines. The
// direct engine's sink is an arena and a node of the writers' network.
//
// A sink is used by one thread at a time. Between begin and commit or discard a step is open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "memory/arena.hpp"
#include "model/layout.hpp"
#include "penstock/stream_values.hpp"
#include "stream/protocol/awaited.hpp"

namespace penstock::stream {

class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual const std::string& stream() const = 0;
  // All ranks of this cohort have the same, and no other cohort has it.
  virtual std::uint64_t cohort_number() const = 0;
  virtual std::string address() const = 0;  // where readers find it; empty: by the stream's name alone

  // dropped: by the stream's policy, on every rank; it is not open. not_yet: not before the deadline; the next call tries again.
  // After an error the step is void.
  enum class Begun : std::uint8_t { open, dropped, not_yet };
  virtual Begun begin(base::Deadline deadline) = 0;
  virtual std::uint64_t step() const = 0;  // the last one that was begun
  virtual Awaited awaited() const = 0;     // who was, after not_yet; and who is, after finish in vain

  // A block of the open step, as it is put.
  struct Block {
    const model::VariableDefinition& variable;
    const Box& box;
    std::uint32_t number = 0;         // among the step's blocks, as in the layout
    std::uint64_t bytes = 0;          // of its elements
    const std::byte* data = nullptr;  // the first element, in the host's memory; null: memory is wanted, to be filled
    std::span<const std::int64_t> strides = {};  // bytes between neighbours; none: packed in the variable's order
    bool lent = false;                           // data stays there, unchanged, until commit returns
  };
  struct Taken {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;
    std::vector<std::uint64_t> strides = {};  // as in model::BlockDefinition
    std::byte* memory = nullptr;              // to be filled before commit; null: the sink has the elements of `data`
  };
  virtual bool takes_blocks() const { return false; }
  // Where it takes blocks: what becomes of one that is not empty. Nothing: the block gets memory by allocate(), and its elements
  // are copied there. After an error the step is void.
  virtual std::optional<Taken> take(const Block&) { return std::nullopt; }
  // Memory of the open step for a block or its payload. Null: the step has no room for that.
  virtual std::optional<memory::Place> allocate(std::uint64_t bytes) = 0;
  // The application copies much from now on, or has done so: others give way.
  virtual void note_copying(bool) {}

  struct Payload {
    memory::Place place;
    std::uint64_t bytes = 0;  // 0: none
  };
  // The open step is complete. layout: null where it is the one of the step committed before.
  virtual void commit(const Payload& payload, std::shared_ptr<const std::string> layout) = 0;
  // After commit, when a failure does not void the step any more: whatever the application has to stand still for. What it throws
  // comes out of the step's end.
  virtual void settle() {}
  virtual void discard() = 0;  // The open step is void. Does nothing where none is open.

  // Begins to close, and waits until readers need no step of it any more. False: not by the deadline; it may be called again, and
  // close() ends it. No step is begun after it.
  virtual bool finish(base::Deadline) { return true; }
  // Throws Error(timeout) naming who holds steps; closed all the same.
  virtual void close(base::Deadline deadline) = 0;
  // Readers and the other ranks are told that the writer is lost, and how: "ended without closing the stream".
  virtual void lose(const std::string& how) = 0;
  virtual void add_statistics(StreamStatistics& statistics) const = 0;
};

}  // namespace penstock::stream
