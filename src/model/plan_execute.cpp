// What is done with the pieces of a plan: copying, packing, unpacking, and viewing in place.
#include <algorithm>
#include <cstring>

#include "model/box.hpp"
#include "model/element.hpp"
#include "model/plan.hpp"
#include "penstock/error.hpp"

namespace penstock::model {

void execute(const Piece& piece, const std::byte* segment_base, void* out) {
  if (piece.points.empty()) {
    run(piece.copy, out, segment_base);
    return;
  }
  auto* dst = static_cast<std::byte*>(out);
  with_element(piece.elem_size, [&](auto element) {
    for (const auto& move : piece.points) std::memcpy(dst + move.dst, segment_base + move.src, sizeof element);
  });
}

void pack(const Piece& piece, const std::byte* segment_base, void* packed) {
  if (piece.points.empty()) return run_pack(piece.copy, packed, segment_base);
  auto* to = static_cast<std::byte*>(packed);
  with_element(piece.elem_size, [&](auto element) {
    for (const auto& move : piece.points) {
      std::memcpy(to, segment_base + move.src, sizeof element);
      to += sizeof element;
    }
  });
}

void unpack(const Piece& piece, const void* packed, void* out) {
  if (piece.points.empty()) return run_unpack(piece.copy, out, packed);
  const auto* from = static_cast<const std::byte*>(packed);
  auto* dst = static_cast<std::byte*>(out);
  with_element(piece.elem_size, [&](auto element) {
    for (const auto& move : piece.points) {
      std::memcpy(dst + move.dst, from, sizeof element);
      from += sizeof element;
    }
  });
}

Extent extent_of(std::span<const PointMove> points, std::uint32_t elem_size, bool of_source) {
  const auto offset_of = [of_source](const PointMove& move) {
    return of_source ? static_cast<__int128>(move.src) : static_cast<__int128>(move.dst);
  };
  const auto [least, greatest] = std::ranges::minmax_element(points, {}, offset_of);
  return {offset_of(*least), offset_of(*greatest) + elem_size};
}

bool packed_is_contiguous_at_destination(const Piece& piece) {
  return piece.points.empty() && piece.copy.dst_contiguous();
}

namespace {

bool point_runs(const Piece& piece, std::uint64_t min_bytes, std::size_t max_runs, std::vector<SourceRun>& out) {
  const std::size_t before = out.size();
  for (const auto& move : piece.points) {
    if (out.size() > before && out.back().offset + out.back().bytes == move.src) {
      out.back().bytes += piece.elem_size;
      continue;
    }
    if (out.size() - before == max_runs || (out.size() > before && out.back().bytes < min_bytes)) {
      out.resize(before);
      return false;
    }
    out.push_back({move.src, piece.elem_size});
  }
  if (out.size() > before && out.back().bytes < min_bytes) {
    out.resize(before);
    return false;
  }
  return true;
}

}  // namespace

bool contiguous_runs(const Piece& piece, std::uint64_t min_bytes, std::size_t max_runs, std::vector<SourceRun>& out) {
  if (!piece.points.empty()) return point_runs(piece, min_bytes, max_runs, out);
  const StridedCopy& copy = piece.copy;
  if (copy.empty()) return true;
  std::size_t outer = copy.ndims;
  std::uint64_t run_bytes = copy.elem_size;
  while (outer > 0 && copy.src_strides[outer - 1] == static_cast<std::int64_t>(run_bytes))
    run_bytes *= copy.count[--outer];
  std::uint64_t runs = 1;
  for (std::size_t d = 0; d < outer; ++d) {
    if (copy.count[d] > max_runs / runs) return false;
    runs *= copy.count[d];
  }
  if (run_bytes < min_bytes || runs > max_runs) return false;
  out.reserve(out.size() + runs);
  std::array<std::uint64_t, max_dims> at{};
  std::int64_t offset = copy.src_offset;
  for (std::uint64_t i = 0; i < runs; ++i) {
    out.push_back({static_cast<std::uint64_t>(offset), run_bytes});
    for (std::size_t d = outer; d-- > 0;) {
      offset += copy.src_strides[d];
      if (++at[d] < copy.count[d]) break;
      at[d] = 0;
      offset -= static_cast<std::int64_t>(copy.count[d]) * copy.src_strides[d];
    }
  }
  return true;
}

namespace {

ViewPart view_of(const VariableLayout& variable, std::uint32_t number, const Box& box) {
  const Block& block = variable.blocks[number];
  ViewPart part;
  part.block = number;
  part.writer_rank = block.writer_rank;
  part.segment = block.segment;
  part.box = box;
  part.order = variable.info.order;
  part.strides = strides_of(variable, block);
  part.offset = block.offset;
  if (is_empty(box)) return part;
  part.bytes = variable.elem_size;
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    const auto stride = static_cast<std::uint64_t>(part.strides[d]);
    part.offset += (box.start[d] - block.box.start[d]) * stride;
    part.bytes += (box.count[d] - 1) * stride;
  }
  return part;
}

}  // namespace

std::vector<ViewPart> view_parts(const VariableLayout& variable, const Selection& selection) {
  using Form = Selection::Form;
  if (variable.elem_size == 0)
    throw Error(Errc::unsupported, "variable '" + variable.info.name + "' holds strings, which are read whole");
  const Form form = selection.form();
  if (form == Form::points || (form == Form::box && !selection.stride().empty()))
    throw Error(Errc::invalid_argument,
                "variable '" + variable.info.name + "': only whole boxes can be viewed in place");
  shape_of(variable, selection);
  std::vector<ViewPart> parts;
  const auto add_whole = [&](std::uint64_t number) {
    parts.push_back(view_of(variable, static_cast<std::uint32_t>(number), variable.blocks[number].box));
  };
  if (form == Form::block) {
    add_whole(selection.block_number());
  } else if (variable.info.kind == Kind::local_array) {
    add_whole(0);
  } else if (variable.info.kind == Kind::global_value) {
    if (!variable.blocks.empty()) add_whole(variable.blocks.size() - 1);
  } else {
    const Box box = form == Form::all ? whole(variable.info.shape) : selection.box();
    std::vector<std::uint32_t> hits;
    variable.query(box, hits);
    for (const auto number : hits)
      parts.push_back(view_of(variable, number, *intersect(box, variable.blocks[number].box)));
  }
  return parts;
}

}  // namespace penstock::model
