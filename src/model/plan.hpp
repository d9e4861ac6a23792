// Redistribution plans: which bytes of which blocks go where in a reader's array.
//
// A plan depends on an epoch, a selection and the destination's layout only, never on addresses, so one plan serves
// every step of an epoch. Plans are immutable. Pieces come in block-number order and must take effect in that order
// when `overlapping` is set; elements that no block covers belong to no piece and stay as they are.
// Offsets are bytes; source offsets count from the start of the step's slot in the writer's segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/copy.hpp"
#include "model/layout.hpp"
#include "penstock/stream.hpp"
#include "penstock/types.hpp"

namespace penstock::model {

// How the caller's array lies: packed in `order`, or at `strides` (bytes, one for each dimension of shape_of).
struct Destination {
  Order order = Order::row;
  std::span<const std::int64_t> strides{};
};

// One element of a points selection.
struct PointMove {
  std::uint64_t src = 0;  // from the segment's start
  std::int64_t dst = 0;   // from the caller's base
};

// A part of one block. Points if `points` is not empty, else a strided box.
struct Piece {
  std::uint32_t block = 0;  // number within the variable
  int writer_rank = 0;
  std::uint32_t segment = 0;
  std::uint32_t elem_size = 0;
  // copy.src_offset counts from the segment's start, copy.dst_offset from the caller's base.
  StridedCopy copy;
  std::span<const PointMove> points;  // owned by the plan; in ascending source order

  // Of the packed form: what crosses a network.
  std::uint64_t bytes() const { return points.empty() ? copy.bytes() : points.size() * elem_size; }
};

// Bytes between neighbours of a block's elements.
Strides strides_of(const VariableLayout& variable, const Block& block);
// A range of bytes as a piece.
Piece byte_piece(int writer_rank, std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes);

class Plan {
 public:
  Plan() = default;
  Plan(Plan&&) noexcept = default;  // moving keeps the pieces' spans valid; copying would not
  Plan& operator=(Plan&&) noexcept = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  std::span<const Piece> pieces() const { return pieces_; }
  std::uint64_t bytes() const { return bytes_; }  // of all pieces
  bool overlapping() const { return overlapping_; }

 private:
  friend class PlanBuilder;
  std::vector<Piece> pieces_;
  std::vector<PointMove> moves_;
  std::uint64_t bytes_ = 0;
  bool overlapping_ = false;
};

// The shape of what a selection gives. Throws Error(invalid_argument): outside the array, wrong number of dimensions,
// zero stride, no such block, all() of a local array that has not exactly one block.
//   global array   all: its shape; box: count; block: the block's count; points: {n}
//   local array    all (one block only), block: the block's count; box and points are errors
//   global value   all, block: no dimensions
//   local value    as a global array of shape {blocks}; block: no dimensions
Dims shape_of(const VariableLayout& variable, const Selection& selection);

// Throws Error(invalid_argument) as shape_of, and when strides do not match its dimensions; Error(unsupported) for
// strings, which are read whole.
Plan make_plan(const VariableLayout& variable, const Selection& selection, const Destination& destination = {});

// Copies one piece from the writer's memory to the caller's.
void execute(const Piece& piece, const std::byte* segment_base, void* out);
// Gathers a piece's bytes() into a packed buffer, and scatters a packed buffer to the caller's array.
void pack(const Piece& piece, const std::byte* segment_base, void* packed);
void unpack(const Piece& piece, const void* packed, void* out);
// The packed form is what lies at out + copy.dst_offset: it can be received there without unpack.
bool packed_is_contiguous_at_destination(const Piece& piece);

// From the first byte that a piece touches to the one behind the last; both 0 for a piece without bytes. Does not overflow.
struct Extent {
  __int128 first = 0, last = 0;
};
Extent extent_of(std::span<const PointMove> points, std::uint32_t elem_size, bool of_source);
inline Extent extent_of(const StridedCopy& copy, std::int64_t offset, const Strides& strides) {
  if (copy.empty()) return {};
  Extent extent{offset, static_cast<__int128>(offset) + copy.elem_size};
  for (std::uint32_t d = 0; d < copy.ndims; ++d) {
    const auto span = static_cast<__int128>(copy.count[d] - 1) * strides[d];
    (span < 0 ? extent.first : extent.last) += span;
  }
  return extent;
}
inline Extent source_extent(const Piece& piece) {  // from the segment's start
  if (!piece.points.empty()) return extent_of(piece.points, piece.elem_size, true);
  return extent_of(piece.copy, piece.copy.src_offset, piece.copy.src_strides);
}
inline Extent destination_extent(const Piece& piece) {  // from the caller's base
  if (!piece.points.empty()) return extent_of(piece.points, piece.elem_size, false);
  return extent_of(piece.copy, piece.copy.dst_offset, piece.copy.dst_strides);
}

// Appends the parts of a piece that lie between these source offsets: ascending, not within an element. Source strides must be
// those of a packed array, or multiples. Spans of points are those of the piece.
void cut_at_source(const Piece& piece, std::span<const std::uint64_t> cuts, std::vector<Piece>& parts);

// A run of source bytes, from the segment's start.
struct SourceRun {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
// The source as runs that, one after the other, are the packed form. Appends and returns true; appends nothing and
// returns false when runs are shorter than min_bytes or there would be more than max_runs.
bool contiguous_runs(const Piece& piece, std::uint64_t min_bytes, std::size_t max_runs, std::vector<SourceRun>& out);

// Memory that can be viewed in place: a box of one block.
struct ViewPart {
  std::uint32_t block = 0;
  int writer_rank = 0;
  std::uint32_t segment = 0;
  Box box;  // of the array (local arrays: of the block)
  Order order = Order::row;
  std::uint64_t offset = 0;  // of the first element, from the segment's start
  std::uint64_t bytes = 0;   // from the first to the last element; 0: an empty block
  Strides strides{};
};
// One for each block that the selection touches, in block order. Throws Error(invalid_argument) as shape_of, and for
// points and strided selections.
std::vector<ViewPart> view_parts(const VariableLayout& variable, const Selection& selection);

}  // namespace penstock::model
