// A reader's data plane over a space: what is wanted of a block is got as a box of its array, or as bytes of its rank's record.
// Fetched memory is the reader's own: nothing is leased. Used by one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "space/client/space_impl.hpp"
#include "space/engine/step_records.hpp"
#include "stream/api/step_source.hpp"

namespace penstock::space {

struct RankRecord {
  Key key;
  StepMark mark;
};

class SpacePlane final : public transport::DataPlane {
 public:
  using ArrayPointer = Space::Impl::ArrayPointer;
  // Of this writer's stream; or of one array, which is then the only variable.
  SpacePlane(Clients& clients, std::string stream, std::uint64_t incarnation)
      : clients_(clients), stream_(std::move(stream)), incarnation_(incarnation) {}
  SpacePlane(Clients& clients, const ArrayPointer& array) : clients_(clients) { bind(array); }
  void bind(const ArrayPointer& array) { arrays_ = {{array->name, array}}; }

  // What is fetched from now on is of this step.
  void read(std::uint64_t step, std::vector<RankRecord> ranks) {
    step_ = step;
    ranks_ = std::move(ranks);
  }
  void describe(std::span<const std::shared_ptr<const model::RankLayout>> layouts);

  std::string_view name() const override { return "space"; }
  void fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
             base::Deadline deadline) override;
  Mapped map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment, std::uint64_t offset,
             std::uint64_t bytes, base::Deadline deadline) override;
  memory::SlotInfo header(std::uint64_t step, std::uint32_t slot, int writer_rank, base::Deadline deadline) override;
  void read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                    base::Deadline deadline) override;

 private:
  struct Place {  // of a block with elements
    std::uint64_t offset;
    std::uint64_t in_record;  // where it is no box of an array: after layout and payload
    std::uint32_t block;
  };
  struct Rank {
    std::shared_ptr<const model::RankLayout> layout;
    std::vector<Place> places;  // by offset
  };
  struct Loaded {
    std::shared_ptr<std::byte[]> memory;
    std::uint64_t first = 0;  // the offset of its first byte
  };
  Loaded load(int writer_rank, std::uint64_t first, std::uint64_t end, bool is_box, base::Deadline deadline);
  const RankRecord& record(int writer_rank) const;
  ArrayPointer array_of(const std::string& variable, base::Deadline deadline);
  void get(const Key& key, std::uint64_t offset, std::span<std::byte> out, base::Deadline deadline);
  // Throws the error that is being handled, not_found with the step's number.
  [[noreturn]] void throw_named(const Error& error) const;

  Clients& clients_;
  const std::string stream_;
  const std::uint64_t incarnation_ = 0;
  std::uint64_t step_ = 0;
  std::vector<RankRecord> ranks_;
  std::vector<Rank> described_;
  std::map<std::string, ArrayPointer, std::less<>> arrays_;  // by variable
};

}  // namespace penstock::space
