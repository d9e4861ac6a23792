#include "transport/transfer_plane.hpp"

#include <algorithm>

#include "transport/piece_chunks.hpp"
#include "transport/transfer_limits.hpp"
#include "wire/control.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

using base::Deadline;
using memory::SlotInfo;

memory::UniqueFd TransferPlane::connect_data(std::size_t rank, fabric::Reach reach, Deadline deadline) {
  const wire::Hello hello{
      .purpose = wire::Purpose::data, .rank = options_.rank, .stream = options_.stream, .plane = std::string(name())};
  try {
    return fabric::connect_blocking(fabric::endpoint_from_text(options_.writers[rank]), options_.token, hello, reach,
                                    deadline);
  } catch (const Error& error) {
    throw error.in("writer rank " + std::to_string(rank));
  }
}

void TransferPlane::fetch(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                          Deadline deadline) {
  if (!ordered) {
    fetch_part(step, slot, items, false, deadline);
    return;
  }
  // Ranks answer in any order: where order matters, one rank after the other.
  for (std::size_t first = 0; first < items.size();) {
    std::size_t last = first + 1;
    while (last < items.size() && items[last].piece->writer_rank == items[first].piece->writer_rank) ++last;
    fetch_part(step, slot, items.subspan(first, last - first), true, deadline);
    first = last;
  }
}

void TransferPlane::begin(std::size_t rank, std::uint64_t step, std::uint32_t slot, bool ordered) {
  auto& transfer = transfers_[rank];
  if (!transfer) transfer = std::make_shared<Transfer>();
  transfer->region = step;
  transfer->slot = slot;
  transfer->ordered = ordered;
  transfer->parts.clear();
  transfer->error.reset();
  transfer->done = false;
}

// The piece's plan and `out` live until the fetch has finished.
void TransferPlane::add(Transfer& transfer, const model::Piece& piece, std::byte* out) {
  if (piece.bytes() == 0) return;
  if (piece.points.size() <= request_points) {
    transfer.parts.push_back({piece, out});
    return;
  }
  for (PieceChunks chunks(piece, request_points * piece.elem_size); !chunks.done();)
    transfer.parts.push_back({chunks.next(), out});
}

void TransferPlane::fetch_part(std::uint64_t step, std::uint32_t slot, std::span<const Item> items, bool ordered,
                               Deadline deadline) {
  ranks_.clear();
  for (const Item& item : items) {
    if (item.piece->writer_rank < 0 || static_cast<std::size_t>(item.piece->writer_rank) >= transfers_.size())
      throw Error(Errc::protocol, "there is no writer rank " + std::to_string(item.piece->writer_rank));
    const auto rank = static_cast<std::size_t>(item.piece->writer_rank);
    if (std::find(ranks_.begin(), ranks_.end(), rank) == ranks_.end()) {
      connect(rank, deadline);
      begin(rank, step, slot, ordered);
      ranks_.push_back(rank);
    }
    add(*transfers_[rank], *item.piece, item.out);
    bytes_moved_ += item.piece->bytes();
  }
  try {
    run(ranks_, deadline);
  } catch (...) {
    for (const auto rank : ranks_) abandon(rank);
    throw;
  }
}

void TransferPlane::read_bytes(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment,
                               std::uint64_t offset, std::span<std::byte> out, Deadline deadline) {
  if (out.empty()) return;
  const model::Piece piece = model::byte_piece(writer_rank, segment, offset, out.size());
  const Item item{&piece, out.data()};
  fetch_part(step, slot, std::span(&item, 1), false, deadline);
}

DataPlane::Mapped TransferPlane::map(std::uint64_t step, std::uint32_t slot, int writer_rank, std::uint32_t segment,
                                     std::uint64_t offset, std::uint64_t bytes, Deadline deadline) {
  // Sizes come from decoded descriptions: no rank has more than a petabyte, and a wish for it is an error, not a crash.
  if (bytes > wire::max_read_bytes) throw Error(Errc::protocol, "a view of impossible size");
  try {
    std::shared_ptr<std::byte[]> memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
    const std::span<std::byte> span(memory.get(), bytes);
    read_bytes(step, slot, writer_rank, segment, offset, span, deadline);
    return {span, memory};
  } catch (const std::bad_alloc&) {
    throw Error(Errc::memory, "no memory for a view of " + std::to_string(bytes) + " bytes");
  }
}

SlotInfo TransferPlane::header(std::uint64_t step, std::uint32_t slot, int writer_rank, Deadline deadline) {
  // As the writer's memory has it: its first four words in its byte order, which the handshake's version implies.
  SlotInfo info;
  static_assert(sizeof info == offsetof(memory::SlotHeader, copying));
  read_bytes(step, slot, writer_rank, 0, 0, std::as_writable_bytes(std::span(&info, 1)), deadline);
  if (info.step != step)
    throw Error(Errc::step_gone, "writer rank " + std::to_string(writer_rank) + " does not hold step " +
                                     std::to_string(step) + " any more");
  return info;
}

void TransferPlane::read_payload(std::uint64_t step, std::uint32_t slot, int writer_rank, std::vector<std::byte>& out,
                                 Deadline deadline) {
  const SlotInfo info = header(step, slot, writer_rank, deadline);
  if (info.payload_bytes == 0) return;
  if (info.payload_bytes > wire::max_message_bytes || info.payload_segment >= memory::max_slot_segments)
    throw Error(Errc::protocol, "writer rank " + std::to_string(writer_rank) + " has a payload of impossible size");
  const std::size_t before = out.size();
  out.resize(before + info.payload_bytes);
  read_bytes(step, slot, writer_rank, static_cast<std::uint32_t>(info.payload_segment), info.payload_offset,
             std::span(out).subspan(before), deadline);
}

}  // namespace penstock::transport
