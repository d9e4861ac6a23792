#include "transport/piece_chunks.hpp"

#include <algorithm>

namespace penstock::transport {

PieceChunks::PieceChunks(const model::Piece& piece, std::uint64_t limit_bytes) : piece_(piece) {
  if (!piece.points.empty()) {
    total_ = piece.points.size();
    limit_ = std::max<std::uint64_t>(1, limit_bytes / piece.elem_size);
    return;
  }
  const model::StridedCopy& copy = piece.copy;
  total_ = copy.elements();
  if (total_ == 0) return;
  limit_ = std::max<std::uint64_t>(1, limit_bytes / copy.elem_size);
  split_ = copy.ndims;
  while (split_ > 0 && inner_ * copy.count[split_ - 1] <= limit_) inner_ *= copy.count[--split_];
  // Now dimensions split_.. fit whole; the one before them is cut.
  if (split_ > 0) --split_;
  else inner_ = copy.ndims > 0 ? total_ / copy.count[0] : 1;
}

model::Piece PieceChunks::next() { return piece_.points.empty() ? next_box() : next_points(); }

model::Piece PieceChunks::next_points() {
  model::Piece part = piece_;
  const std::uint64_t count = std::min(limit_, total_ - at_);
  part.points = piece_.points.subspan(at_, count);
  at_ += count;
  return part;
}

model::Piece PieceChunks::next_box() {
  const model::StridedCopy& copy = piece_.copy;
  model::Piece part = piece_;
  if (copy.ndims == 0) {
    at_ = total_;
    return part;
  }
  // at_ is a whole number of indices of dimension split_.
  std::uint64_t index = at_ / inner_;
  const std::uint64_t first = index % copy.count[split_];
  const std::uint64_t count = std::min(std::max<std::uint64_t>(1, limit_ / inner_), copy.count[split_] - first);
  model::StridedCopy& out = part.copy;
  for (std::size_t d = split_ + 1; d-- > 0;) {
    const auto step = static_cast<std::int64_t>(index % copy.count[d]);
    index /= copy.count[d];
    out.src_offset += step * copy.src_strides[d];
    out.dst_offset += step * copy.dst_strides[d];
  }
  // The normal form has no dimensions of size 1.
  const std::size_t from = count == 1 ? split_ + 1 : split_;
  out.ndims = static_cast<std::uint32_t>(copy.ndims - from);
  for (std::size_t d = 0; d < out.ndims; ++d) {
    out.count[d] = copy.count[from + d];
    out.src_strides[d] = copy.src_strides[from + d];
    out.dst_strides[d] = copy.dst_strides[from + d];
  }
  if (count != 1) out.count[0] = count;
  at_ += count * inner_;
  return part;
}

}  // namespace penstock::transport
