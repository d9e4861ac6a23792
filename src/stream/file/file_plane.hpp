// A file reader's data plane: the files of the step being read, by pread. (Memory mapped from a file that is cut off would end the
// process.) Segment 0 of a rank is its file; segment 1 its compressed blocks, one after the other as they would be without
// compression, which HDF5 decompresses whole when the first byte of one is asked for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stream/file/step_header.hpp"
#include "transport/data_plane.hpp"

namespace penstock::stream {

inline constexpr std::uint32_t compressed_segment = 1;

// The step being read, and what of it is open. The reader's thread only.
struct HeldFiles {
  std::string folder;
  std::uint64_t step = 0, incarnation = 0;
  struct Rank {
    std::optional<storage::File> file;
    StepHeader header;
    std::map<std::uint32_t, std::vector<std::byte>> blocks;  // decompressed, by number
  };
  std::vector<Rank> ranks;
  std::size_t open_files = 0;  // of ranks other than 0

  // Opened when asked for, which may close those of other ranks but 0. Throws Error(protocol) for a file that is not this step's.
  Rank& rank(std::uint32_t number);
};

class FilePlane final : public transport::DataPlane {
 public:
  using Layouts = std::vector<std::shared_ptr<const model::RankLayout>>;

  void read(std::shared_ptr<HeldFiles> step) { held_ = std::move(step); }
  void describe(std::span<const std::shared_ptr<const model::RankLayout>> layouts) {
    layouts_.assign(layouts.begin(), layouts.end());
  }

  std::string_view name() const override { return "file"; }
  void fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
             base::Deadline deadline) override;
  Mapped map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment, std::uint64_t offset,
             std::uint64_t bytes, base::Deadline deadline) override;
  memory::SlotInfo header(std::uint64_t step, std::uint32_t slot, int writer_rank, base::Deadline deadline) override;
  void read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                    base::Deadline deadline) override;

 private:
  HeldFiles::Rank& rank_of(int writer_rank);
  void read_piece(const model::Piece& piece, std::byte* out, std::uint64_t limit_bytes, base::Deadline deadline);
  void read_bytes(int writer_rank, std::uint64_t offset, std::span<std::byte> out);
  // The decompressed block around this offset, and where in the segment it begins.
  std::pair<std::uint64_t, std::span<const std::byte>> block_at(int writer_rank, std::uint64_t offset);

  std::shared_ptr<HeldFiles> held_;
  Layouts layouts_;
  std::vector<std::byte> stage_;
};

}  // namespace penstock::stream
