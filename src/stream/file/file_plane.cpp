#include "stream/file/file_plane.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "penstock/interrupt.hpp"
#include "stream/file/folder.hpp"
#include "stream/file/hdf5_part.hpp"
#include "transport/piece_chunks.hpp"

namespace penstock::stream {
namespace {

constexpr std::size_t most_open_files = 64;      // of one step
constexpr std::uint64_t stage_bytes = 16 << 20;  // read at once, what is not asked for included

}  // namespace

HeldFiles::Rank& HeldFiles::rank(std::uint32_t number) {
  auto& of = ranks.at(number);
  if (of.file) return of;
  if (number > 0 && open_files++ == most_open_files) {
    for (auto& other : std::span(ranks).subspan(1)) other.file.reset();
    open_files = 1;
  }
  storage::File file(file_path(folder, step, number), O_RDONLY);
  of.header = read_header(file).header;
  if (of.header.rank != number || of.header.step != step || of.header.incarnation != incarnation)
    throw Error(Errc::protocol, file.path() + " is another step's: it was replaced or renamed");
  of.file = std::move(file);
  return of;
}

HeldFiles::Rank& FilePlane::rank_of(int writer_rank) { return held_->rank(static_cast<std::uint32_t>(writer_rank)); }

void FilePlane::read_bytes(int writer_rank, std::uint64_t offset, std::span<std::byte> out) {
  const auto& file = *rank_of(writer_rank).file;
  if (file.read_at(offset, out) != out.size())
    throw Error(Errc::protocol, file.path() + " ends before the step's bytes do: it was cut off");
  bytes_moved_ += out.size();
}

std::pair<std::uint64_t, std::span<const std::byte>> FilePlane::block_at(int writer_rank, std::uint64_t offset) {
  auto& rank = rank_of(writer_rank);
  const auto& blocks = layouts_.at(static_cast<std::size_t>(writer_rank))->blocks;
  for (std::uint32_t number = 0; number < blocks.size(); ++number) {
    const auto& b = blocks[number];
    if (b.segment != compressed_segment || offset < b.offset || offset - b.offset >= b.bytes) continue;
    auto& bytes = rank.blocks[number];
    if (bytes.empty()) {
      // Deflate makes a thousandth of what it is given at best: no damaged description costs more memory than that.
      if (b.bytes / 2048 > rank.file->size())
        throw Error(Errc::protocol, rank.file->path() + " is too small for what it says to hold");
      std::vector<std::byte> all(b.bytes);
      hdf5_part().read_compressed(rank.file->path(), number, all);
      bytes = std::move(all);
      bytes_moved_ += b.bytes;
    }
    return {b.offset, bytes};
  }
  throw Error(Errc::protocol, rank.file->path() + " has no such block");
}

void FilePlane::read_piece(const model::Piece& piece, std::byte* out, std::uint64_t limit_bytes,
                           base::Deadline deadline) {
  if (piece.bytes() == 0) return;
  if (piece.segment == compressed_segment) {
    const auto [start, bytes] =
        block_at(piece.writer_rank, static_cast<std::uint64_t>(model::source_extent(piece).first));
    if (model::source_extent(piece).last > static_cast<__int128>(start) + static_cast<__int128>(bytes.size()))
      throw Error(Errc::protocol, rank_of(piece.writer_rank).file->path() + " has a block of another size");
    model::execute(piece, bytes.data() - start, out);
    return;
  }
  if (piece.points.empty() && piece.copy.src_contiguous() && model::packed_is_contiguous_at_destination(piece)) {
    read_bytes(piece.writer_rank, static_cast<std::uint64_t>(piece.copy.src_offset),
               {out + piece.copy.dst_offset, piece.bytes()});
    return;
  }
  for (transport::PieceChunks parts(piece, limit_bytes); !parts.done();) {
    if (deadline.passed() || interrupted())
      throw Error(Errc::timeout, "waited for " + rank_of(piece.writer_rank).file->path());
    const auto part = parts.next();
    const auto extent = model::source_extent(part);
    if (extent.last - extent.first > static_cast<__int128>(stage_bytes) && part.bytes() > part.elem_size) {
      read_piece(part, out, part.bytes() / 2, deadline);
      continue;
    }
    const auto first = static_cast<std::uint64_t>(extent.first);
    stage_.resize(static_cast<std::size_t>(extent.last - extent.first));
    read_bytes(piece.writer_rank, first, stage_);
    model::execute(part, stage_.data() - first, out);
  }
}

void FilePlane::fetch(std::uint64_t, std::uint32_t, std::span<const Item> items, bool, base::Deadline deadline) {
  for (const auto& item : items) read_piece(*item.piece, item.out, stage_bytes / 4, deadline);
}

transport::DataPlane::Mapped FilePlane::map(std::uint64_t, std::uint32_t, int writer_rank, std::uint32_t segment,
                                            std::uint64_t offset, std::uint64_t bytes, base::Deadline deadline) {
  const auto& file = *rank_of(writer_rank).file;
  if (segment != compressed_segment && bytes > file.size())
    throw Error(Errc::protocol, file.path() + " ends before the step's bytes do: it was cut off");
  auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  const auto piece = model::byte_piece(writer_rank, segment, offset, bytes);
  read_piece(piece, memory.get(), stage_bytes, deadline);
  return {{memory.get(), bytes}, memory, 0};
}

memory::SlotInfo FilePlane::header(std::uint64_t step, std::uint32_t, int writer_rank, base::Deadline) {
  const auto& header = rank_of(writer_rank).header;
  return {step, 0, header.payload.offset, header.payload.bytes};
}

void FilePlane::read_payload(std::uint64_t, std::uint32_t, int writer_rank, std::vector<std::byte>& out,
                             base::Deadline) {
  const auto& rank = rank_of(writer_rank);
  const auto text = read_range(*rank.file, rank.header.payload);
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
  bytes_moved_ += bytes.size();
}

}  // namespace penstock::stream
