// A data plane over links: one for each writer rank, which carries the transfer of the fetch under way. This module's own.
#pragma once

#include <span>
#include <vector>

#include "fabric/connect.hpp"
#include "memory/unique_fd.hpp"
#include "transport/data_plane.hpp"
#include "transport/transfer.hpp"

namespace penstock::transport {

class TransferPlane : public DataPlane {
 public:
  void fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
             base::Deadline deadline) final;
  Mapped map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment, std::uint64_t offset,
             std::uint64_t bytes, base::Deadline deadline) final;
  memory::SlotInfo header(std::uint64_t step, std::uint32_t slot, int writer_rank, base::Deadline deadline) final;
  void read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                    base::Deadline deadline) final;

 protected:
  explicit TransferPlane(DataPlaneOptions options)
      : options_(std::move(options)), transfers_(options_.writers.size()) {}

  // To the rank's address, if there is no link to it. Throws Error.
  virtual void connect(std::size_t rank, base::Deadline deadline) = 0;
  // Submits the transfers of these ranks, and returns when all are done. Throws Error, also that of a transfer.
  virtual void run(std::span<const std::size_t> ranks, base::Deadline deadline) = 0;
  // The rank's transfer has not finished: it must never reach memory that the caller has got back.
  virtual void abandon(std::size_t rank) = 0;

  memory::UniqueFd connect_data(std::size_t rank, fabric::Reach reach, base::Deadline deadline);

  const DataPlaneOptions options_;
  std::vector<TransferPtr> transfers_;  // by rank; null until first used

 private:
  void begin(std::size_t rank, std::uint64_t step, std::uint32_t slot, bool ordered);
  static void add(Transfer& transfer, const model::Piece& piece, std::byte* out);
  void fetch_part(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                  base::Deadline deadline);
  void read_bytes(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment, std::uint64_t offset,
                  std::span<std::byte> out, base::Deadline deadline);

  std::vector<std::size_t> ranks_;  // of the fetch under way
};

}  // namespace penstock::transport
