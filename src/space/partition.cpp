#include "space/partition.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "model/box.hpp"
#include "model/curve.hpp"

namespace penstock::space {
namespace {

std::uint64_t divide_up(std::uint64_t size, std::uint64_t by) { return size / by + (size % by != 0); }

// Numbers along the curve, by place in the grid. Dimensions that are not cut have no part in the curve.
std::vector<std::uint64_t> curve_numbers(const Dims& grid) {
  std::vector<std::size_t> cut;
  std::size_t bits = 0;
  for (std::size_t d = 0; d < grid.size(); ++d) {
    if (grid[d] == 1) continue;
    cut.push_back(d);
    bits = std::max<std::size_t>(bits, std::bit_width(grid[d] - 1));
  }
  std::vector<std::uint64_t> numbers(element_count(grid));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Dims at = grid;
    std::uint64_t rest = i;
    for (std::size_t d = grid.size(); d-- > 0; rest /= grid[d]) at[d] = rest % grid[d];
    model::GridPlace place{};
    for (std::size_t k = 0; k < cut.size(); ++k) place[k] = at[cut[k]];
    numbers[i] = model::hilbert(place, cut.size(), bits);
  }
  return numbers;
}

}  // namespace

Partition::Partition(const Dims& shape, std::uint32_t parts)
    : shape_(shape), length_(shape), grid_(Dims::filled(shape.size(), 1)) {
  element_count(shape);  // throws
  const std::uint64_t wanted = std::clamp<std::uint32_t>(parts, 1, max_parts);
  // A dimension is cut into 2, 4, 8 ... lengths. Where they do not come out even, fewer lengths reach to the end.
  Dims cuts = grid_;
  while (!shape.empty()) {
    const auto longest = static_cast<std::size_t>(std::max_element(length_.begin(), length_.end()) - length_.begin());
    if (length_[longest] < 2 || 2 * element_count(cuts) > std::bit_ceil(wanted)) break;
    cuts[longest] *= 2;
    length_[longest] = divide_up(shape[longest], cuts[longest]);
    grid_[longest] = divide_up(shape[longest], length_[longest]);
  }
  const auto along = curve_numbers(grid_);
  places_.resize(along.size());
  std::iota(places_.begin(), places_.end(), 0u);
  std::sort(places_.begin(), places_.end(), [&](auto a, auto b) { return along[a] < along[b]; });
  numbers_.resize(along.size());
  for (std::uint32_t part = 0; part < places_.size(); ++part) numbers_[places_[part]] = part;
}

Box Partition::box_of(std::uint32_t part) const {
  Box box = whole(shape_);
  std::uint64_t rest = places_.at(part);
  for (std::size_t d = shape_.size(); d-- > 0; rest /= grid_[d]) {
    box.start[d] = rest % grid_[d] * length_[d];
    box.count[d] = std::min(length_[d], shape_[d] - box.start[d]);
  }
  return box;
}

std::vector<Partition::Piece> Partition::cut(const Box& box) const {
  std::vector<Piece> pieces;
  if (model::is_empty(box)) return pieces;
  const std::size_t dims = shape_.size();
  Dims first = box.start, last = box.start;
  for (std::size_t d = 0; d < dims; ++d) {
    first[d] = box.start[d] / length_[d];
    last[d] = (box.start[d] + box.count[d] - 1) / length_[d];
  }
  Dims at = first;
  for (bool more = true; more;) {
    std::uint64_t place = 0;
    for (std::size_t d = 0; d < dims; ++d) place = place * grid_[d] + at[d];
    const auto part = numbers_[place];
    pieces.push_back({part, *model::intersect(box, box_of(part))});
    more = false;
    for (std::size_t d = dims; d-- > 0 && !more;) {
      more = at[d] < last[d];
      at[d] = more ? at[d] + 1 : first[d];
    }
  }
  std::ranges::sort(pieces, {}, &Piece::part);
  return pieces;
}

}  // namespace penstock::space
