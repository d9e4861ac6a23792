#include "transport/asked_piece.hpp"

namespace penstock::transport {

wire::DataPiece wanted_of(const model::Piece& piece, std::vector<std::uint64_t>& points) {
  wire::DataPiece wanted;
  wanted.segment = piece.segment;
  if (!piece.points.empty()) {
    wanted.elem_size = piece.elem_size;
    wanted.is_points = true;
    wanted.first_point = static_cast<std::uint32_t>(points.size());
    wanted.point_count = static_cast<std::uint32_t>(piece.points.size());
    for (const model::PointMove& move : piece.points) points.push_back(move.src);
  } else {
    wanted.elem_size = piece.copy.elem_size;
    wanted.offset = static_cast<std::uint64_t>(piece.copy.src_offset);
    wanted.ndims = piece.copy.ndims;
    wanted.count = piece.copy.count;
    wanted.strides = piece.copy.src_strides;
  }
  return wanted;
}

model::Piece source_of(const wire::DataPiece& wanted, std::span<const std::uint64_t> points,
                       std::vector<model::PointMove>& moves) {
  model::Piece piece;
  piece.segment = wanted.segment;
  piece.elem_size = wanted.elem_size;
  if (wanted.is_points) {
    const std::size_t first = moves.size();
    for (const std::uint64_t point : points.subspan(wanted.first_point, wanted.point_count))
      moves.push_back({point, 0});
    piece.points = std::span<const model::PointMove>(moves).subspan(first);
  } else {
    piece.copy.ndims = wanted.ndims;
    piece.copy.elem_size = wanted.elem_size;
    piece.copy.src_offset = static_cast<std::int64_t>(wanted.offset);
    piece.copy.count = wanted.count;
    piece.copy.src_strides = wanted.strides;
  }
  return piece;
}

}  // namespace penstock::transport
