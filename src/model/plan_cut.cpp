#include <algorithm>

#include "model/plan.hpp"

namespace penstock::model {

namespace {

class Cutter {
 public:
  Cutter(const Piece& piece, std::span<const std::uint64_t> cuts, std::vector<Piece>& parts)
      : piece_(piece), cuts_(cuts), parts_(parts), elem_size_(piece.elem_size), size_(piece.copy.ndims) {
    const auto& copy = piece.copy;
    std::int64_t src = copy.src_offset, dst = copy.dst_offset;
    for (std::size_t d = 0; d < size_; ++d) {
      dims_[d] = {copy.count[d], copy.src_strides[d], copy.dst_strides[d]};
      auto& dim = dims_[d];
      if (dim.src >= 0) continue;  // from the other end
      const auto last = static_cast<std::int64_t>(dim.count - 1);
      src += last * dim.src;
      dst += last * dim.dst;
      dim.src = -dim.src;
      dim.dst = -dim.dst;
    }
    if (copy.elem_size > elem_size_) {  // a dimension that normalise() made one element of
      dims_[size_++] = {copy.elem_size / elem_size_, elem_size_, elem_size_};
    }
    std::sort(dims_.begin(), dims_.begin() + size_, [](const Dim& a, const Dim& b) { return a.src > b.src; });
    reach_[size_] = elem_size_;
    for (std::size_t d = size_; d-- > 0;)
      reach_[d] = reach_[d + 1] + (dims_[d].count - 1) * static_cast<std::uint64_t>(dims_[d].src);
    cut(0, src, dst);
  }

 private:
  struct Dim {
    std::uint64_t count = 1;
    std::int64_t src = 0, dst = 0;
  };

  // The elements of dimensions d and up, from here on.
  void cut(std::size_t d, std::int64_t src, std::int64_t dst) {
    if (d == size_) return add(d, 1, src, dst);
    const auto& [count, src_stride, dst_stride] = dims_[d];
    for (std::uint64_t left = count; left > 0;) {
      std::uint64_t whole = left;  // before the next cut
      const auto next = std::ranges::upper_bound(cuts_, static_cast<std::uint64_t>(src));
      if (next != cuts_.end()) {
        const auto before = *next - static_cast<std::uint64_t>(src), stride = static_cast<std::uint64_t>(src_stride);
        whole = std::min(left, before / stride + (before % stride >= reach_[d + 1] ? 1 : 0));
      }
      if (whole > 0) add(d, whole, src, dst);
      else cut(d + 1, src, dst);
      const auto done = std::max<std::uint64_t>(whole, 1);
      src += static_cast<std::int64_t>(done) * src_stride;
      dst += static_cast<std::int64_t>(done) * dst_stride;
      left -= done;
    }
  }

  // So many of dimension d, with all of those after it.
  void add(std::size_t d, std::uint64_t count, std::int64_t src, std::int64_t dst) {
    Strides to{}, from{};
    std::array<std::uint64_t, max_dims> counts{};
    for (std::size_t i = d; i < size_; ++i) {
      to[i - d] = dims_[i].dst;
      from[i - d] = dims_[i].src;
      counts[i - d] = i == d ? count : dims_[i].count;
    }
    Piece part = piece_;
    part.copy = normalise(to.data(), from.data(), counts.data(), size_ - d, elem_size_);
    part.copy.src_offset += src;
    part.copy.dst_offset += dst;
    parts_.push_back(part);
  }

  const Piece& piece_;
  const std::span<const std::uint64_t> cuts_;
  std::vector<Piece>& parts_;
  const std::uint32_t elem_size_;
  std::size_t size_;                                 // of dims_
  std::array<Dim, max_dims> dims_;                   // from the largest source stride to the smallest
  std::array<std::uint64_t, max_dims + 1> reach_{};  // bytes from the first to the last element of dimensions d and up
};

}  // namespace

void cut_at_source(const Piece& piece, std::span<const std::uint64_t> cuts, std::vector<Piece>& parts) {
  if (piece.bytes() == 0) return;
  if (piece.points.empty()) {
    Cutter(piece, cuts, parts);
    return;
  }
  for (auto left = piece.points; !left.empty();) {
    const auto next = std::ranges::upper_bound(cuts, left.front().src);
    const auto end = next == cuts.end() ? left.end() : std::ranges::lower_bound(left, *next, {}, &PointMove::src);
    const auto count = static_cast<std::size_t>(end - left.begin());
    parts.push_back(piece);
    parts.back().points = left.first(count);
    left = left.subspan(count);
  }
}

}  // namespace penstock::model
