#include "model/plan.hpp"

#include <algorithm>
#include <cstring>

#include "model/box.hpp"
#include "penstock/error.hpp"

namespace penstock::model {

namespace {

using Form = Selection::Form;

[[noreturn]] void refuse_selection(const VariableLayout& variable, const std::string& what) {
  throw Error(Errc::invalid_argument, "variable '" + variable.info.name + "': " + what);
}

bool is_value(const VariableLayout& variable) {
  return variable.info.kind == Kind::global_value || variable.info.kind == Kind::local_value;
}

const Block& block_of(const VariableLayout& variable, const Selection& selection) {
  const std::uint64_t number = selection.block_number();
  if (number >= variable.blocks.size())
    refuse_selection(variable,
                     "there is no block " + std::to_string(number) + " of " + std::to_string(variable.blocks.size()));
  return variable.blocks[number];
}

// The box from the first to the last element selected; checked to lie in the array.
void check_box(const VariableLayout& variable, const Selection& selection) {
  const Box& box = selection.box();
  const Dims& shape = variable.info.shape;
  if (box.start.size() != shape.size() || box.count.size() != shape.size())
    refuse_selection(variable, "a selection of " + std::to_string(box.start.size()) + " dimensions (count " +
                                   std::to_string(box.count.size()) + ") of an array of " +
                                   std::to_string(shape.size()));
  const Dims& stride = selection.stride();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::uint64_t step = stride.empty() ? 1 : stride[d];
    if (step == 0) refuse_selection(variable, "the strides of a selection are at least 1");
    bool inside = box.start[d] <= shape[d];
    if (inside && box.count[d] > 0) {
      std::uint64_t last = 0;
      inside = !__builtin_mul_overflow(box.count[d] - 1, step, &last) &&
               !__builtin_add_overflow(last, box.start[d], &last) && last < shape[d];
    }
    if (!inside)
      refuse_selection(variable, "the selection (start " + std::to_string(box.start[d]) + ", count " +
                                     std::to_string(box.count[d]) + ", stride " + std::to_string(step) +
                                     ") of dimension " + std::to_string(d) + " is outside the shape " +
                                     to_string(shape));
  }
}

void check_points(const VariableLayout& variable, const Selection& selection) {
  const Dims& shape = variable.info.shape;
  const auto coordinates = selection.coordinates();
  if (shape.empty() || selection.dimensions() != shape.size())
    refuse_selection(variable, "points of " + std::to_string(selection.dimensions()) + " dimensions in an array of " +
                                   std::to_string(shape.size()));
  for (std::size_t i = 0; i < coordinates.size(); ++i)
    if (coordinates[i] >= shape[i % shape.size()])
      refuse_selection(variable,
                       "point " + std::to_string(i / shape.size()) + " is outside the shape " + to_string(shape));
}

// Strides in bytes and the offset of an element, for a block where it lies.
struct Source {
  const Block& block;
  Strides strides;
  Source(const VariableLayout& variable, const Block& of) : block(of), strides(strides_of(variable, of)) {}
  std::uint64_t offset_of(const std::uint64_t* index) const {
    std::uint64_t offset = block.offset;
    for (std::size_t d = 0; d < block.box.start.size(); ++d)
      offset += (index[d] - block.box.start[d]) * static_cast<std::uint64_t>(strides[d]);
    return offset;
  }
};

Strides destination_strides(const VariableLayout& variable, const Dims& shape, const Destination& destination) {
  if (destination.strides.empty()) return packed_strides(shape, variable.elem_size, destination.order);
  if (destination.strides.size() != shape.size())
    refuse_selection(variable, std::to_string(destination.strides.size()) + " strides for an array of " +
                                   std::to_string(shape.size()) + " dimensions");
  Strides strides{};
  std::int64_t reach = 0;  // bytes from the first element to the furthest
  for (std::size_t d = 0; d < shape.size(); ++d) {
    strides[d] = destination.strides[d];
    std::int64_t extent = 0;
    if (shape[d] > 1 && (strides[d] == INT64_MIN ||
                         __builtin_mul_overflow(shape[d] - 1, strides[d] < 0 ? -strides[d] : strides[d], &extent) ||
                         __builtin_add_overflow(reach, extent, &reach)))
      refuse_selection(variable, "the strides are too large");
  }
  return strides;
}

}  // namespace

Strides strides_of(const VariableLayout& variable, const Block& block) {
  if (block.strides.empty()) return packed_strides(block.box.count, variable.elem_size, variable.info.order);
  Strides strides{};
  std::ranges::transform(block.strides, strides.begin(), [](auto stride) { return static_cast<std::int64_t>(stride); });
  return strides;
}

Piece byte_piece(int writer_rank, std::uint32_t segment, std::uint64_t offset, std::uint64_t bytes) {
  const std::int64_t stride = 1;
  Piece piece;
  piece.writer_rank = writer_rank;
  piece.segment = segment;
  piece.elem_size = 1;
  piece.copy = normalise(&stride, &stride, &bytes, 1, 1);
  piece.copy.src_offset = static_cast<std::int64_t>(offset);
  return piece;
}

class PlanBuilder {
 public:
  PlanBuilder(const VariableLayout& variable, const Selection& selection, const Strides& dst)
      : variable_(variable), selection_(selection), dst_(dst) {}

  Plan build() {
    switch (selection_.form()) {
      case Form::all: add_all(); break;
      case Form::box: add_box(selection_.box(), selection_.stride()); break;
      case Form::block: add_whole_block(static_cast<std::uint32_t>(selection_.block_number())); break;
      case Form::points: add_points(); break;
    }
    plan_.overlapping_ = variable_.overlapping && plan_.pieces_.size() > 1 && selection_.form() != Form::points;
    for (const auto& piece : plan_.pieces_) plan_.bytes_ += piece.bytes();
    return std::move(plan_);
  }

 private:
  void add_all() {
    switch (variable_.info.kind) {
      case Kind::global_value:  // the last writer wins
        if (!variable_.blocks.empty()) add_whole_block(static_cast<std::uint32_t>(variable_.blocks.size() - 1));
        break;
      case Kind::local_array: add_whole_block(0); break;
      default: add_box(whole(variable_.info.shape), {});
    }
  }

  void add_box(const Box& box, const Dims& stride) {
    if (is_empty(box)) return;
    if (variable_.info.kind == Kind::global_value) return add_all();
    Box hull = box;
    if (!stride.empty())
      for (std::size_t d = 0; d < hull.count.size(); ++d) hull.count[d] = (box.count[d] - 1) * stride[d] + 1;
    std::vector<std::uint32_t> hits;
    variable_.query(hull, hits);
    plan_.pieces_.reserve(hits.size());
    for (const auto number : hits) add_part(number, box, stride);
  }

  // What the selection takes of one block.
  void add_part(std::uint32_t number, const Box& box, const Dims& stride) {
    const Source source(variable_, variable_.blocks[number]);
    const Box& from = source.block.box;
    const std::size_t n = box.start.size();
    std::array<std::uint64_t, max_dims> first{}, count{};
    Strides src{};
    std::int64_t dst_offset = 0;
    for (std::size_t d = 0; d < n; ++d) {
      const std::uint64_t step = stride.empty() ? 1 : stride[d];
      // Of the selected indices i (at start + i * step), those within the block.
      const std::uint64_t skipped = from.start[d] > box.start[d] ? (from.start[d] - box.start[d] - 1) / step + 1 : 0;
      const std::uint64_t last_inside = from.start[d] + from.count[d] - 1;
      if (last_inside < box.start[d]) return;
      const std::uint64_t end = std::min(box.count[d], (last_inside - box.start[d]) / step + 1);
      if (skipped >= end) return;
      first[d] = box.start[d] + skipped * step;
      count[d] = end - skipped;
      // Unsigned: a step over a single element may be as large as it likes.
      src[d] = static_cast<std::int64_t>(step * static_cast<std::uint64_t>(source.strides[d]));
      dst_offset += static_cast<std::int64_t>(skipped) * dst_[d];
    }
    add_piece(number, source.offset_of(first.data()), src, dst_offset, count.data(), n);
  }

  void add_whole_block(std::uint32_t number) {
    const Source source(variable_, variable_.blocks[number]);
    const Dims& count = source.block.box.count;
    if (is_empty(source.block.box)) return;
    // A value's block gives a scalar, for which there are no destination strides.
    const std::size_t n = is_value(variable_) ? 0 : count.size();
    add_piece(number, source.block.offset, source.strides, 0, count.begin(), n);
  }

  void add_piece(std::uint32_t number, std::uint64_t src_offset, const Strides& src, std::int64_t dst_offset,
                 const std::uint64_t* count, std::size_t n) {
    Piece& piece = start_piece(number);
    piece.copy = normalise(dst_.data(), src.data(), count, n, variable_.elem_size);
    piece.copy.src_offset += static_cast<std::int64_t>(src_offset);
    piece.copy.dst_offset += dst_offset;
  }

  Piece& start_piece(std::uint32_t number) {
    const Block& block = variable_.blocks[number];
    Piece& piece = plan_.pieces_.emplace_back();
    piece.block = number;
    piece.writer_rank = block.writer_rank;
    piece.segment = block.segment;
    piece.elem_size = static_cast<std::uint32_t>(variable_.elem_size);
    return piece;
  }

  void add_points() {
    struct Found {
      std::uint32_t block;
      PointMove move;
    };
    const std::size_t dims = selection_.dimensions();
    const auto coordinates = selection_.coordinates();
    std::vector<Found> found;
    found.reserve(coordinates.size() / dims);
    for (std::size_t i = 0; i < coordinates.size() / dims; ++i) {
      const std::uint64_t* point = coordinates.data() + i * dims;
      const std::int64_t number = variable_.index.last_holding(point);
      if (number < 0) continue;
      const Source source(variable_, variable_.blocks[static_cast<std::size_t>(number)]);
      found.push_back(
          {static_cast<std::uint32_t>(number), {source.offset_of(point), static_cast<std::int64_t>(i) * dst_[0]}});
    }
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
      if (a.block != b.block) return a.block < b.block;
      return a.move.src != b.move.src ? a.move.src < b.move.src : a.move.dst < b.move.dst;
    });
    plan_.moves_.reserve(found.size());
    for (const auto& one : found) plan_.moves_.push_back(one.move);
    for (std::size_t i = 0; i < found.size();) {
      std::size_t end = i;
      while (end < found.size() && found[end].block == found[i].block) ++end;
      start_piece(found[i].block).points = std::span<const PointMove>(plan_.moves_).subspan(i, end - i);
      i = end;
    }
  }

  const VariableLayout& variable_;
  const Selection& selection_;
  const Strides& dst_;
  Plan plan_;
};

Dims shape_of(const VariableLayout& variable, const Selection& selection) {
  const Kind kind = variable.info.kind;
  switch (selection.form()) {
    case Form::block: {
      const Block& block = block_of(variable, selection);
      return is_value(variable) ? Dims{} : block.box.count;
    }
    case Form::all:
      if (kind != Kind::local_array) return variable.info.shape;
      if (variable.blocks.size() != 1)
        refuse_selection(variable, "a local array of " + std::to_string(variable.blocks.size()) +
                                       " blocks has no whole: select one of its blocks");
      return variable.blocks.front().box.count;
    case Form::box:
      if (kind == Kind::local_array) refuse_selection(variable, "a local array is selected by block");
      check_box(variable, selection);
      return selection.box().count;
    case Form::points:
      if (kind == Kind::local_array) refuse_selection(variable, "a local array is selected by block");
      check_points(variable, selection);
      return Dims{selection.coordinates().size() / selection.dimensions()};
  }
  refuse_selection(variable, "an unknown form of selection");
}

Plan make_plan(const VariableLayout& variable, const Selection& selection, const Destination& destination) {
  if (variable.elem_size == 0)
    throw Error(Errc::unsupported, "variable '" + variable.info.name + "' holds strings, which are read whole");
  const Dims shape = shape_of(variable, selection);
  const Strides strides = destination_strides(variable, shape, destination);
  return PlanBuilder(variable, selection, strides).build();
}

}  // namespace penstock::model
