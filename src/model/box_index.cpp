#include "model/box_index.hpp"

#include <algorithm>
#include <bit>

#include "model/box.hpp"

namespace penstock::model {

namespace {

// Interleaves the leading bits of a box's centre, so that boxes near each other get keys near each other.
std::uint64_t morton_key(const Box& box, const Box& hull) {
  const std::size_t dims = box.start.size();
  if (dims == 0) return 0;
  const std::size_t bits = 64 / dims;
  std::uint64_t key = 0;
  std::array<std::uint64_t, max_dims> scaled{};
  for (std::size_t d = 0; d < dims; ++d) {
    const int width = std::bit_width(hull.count[d]);  // bits of any offset within the hull
    const std::uint64_t centre = box.start[d] - hull.start[d] + box.count[d] / 2;
    const int shift = width - static_cast<int>(bits);
    scaled[d] = shift > 0 ? centre >> shift : centre << -shift;
  }
  for (std::size_t bit = bits; bit-- > 0;)
    for (std::size_t d = 0; d < dims; ++d) key = (key << 1) | ((scaled[d] >> bit) & 1u);
  return key;
}

Box hull_of(std::span<const Box> boxes, std::span<const std::uint32_t> numbers) {
  Box hull = boxes[numbers.front()];
  for (const auto number : numbers) {
    const auto& box = boxes[number];
    for (std::size_t d = 0; d < hull.start.size(); ++d) {
      const auto low = std::min(hull.start[d], box.start[d]);
      const auto high = std::max(hull.start[d] + hull.count[d], box.start[d] + box.count[d]);
      hull.start[d] = low;
      hull.count[d] = high - low;
    }
  }
  return hull;
}

}  // namespace

BoxIndex::BoxIndex(std::span<const Box> boxes) {
  if (boxes.empty()) return;
  dims_ = boxes.front().start.size();
  numbers_.reserve(boxes.size());
  for (std::uint32_t i = 0; i < boxes.size(); ++i)
    if (!is_empty(boxes[i])) numbers_.push_back(i);
  if (numbers_.size() > fan_out) {
    const Box hull = hull_of(boxes, numbers_);
    std::vector<std::uint64_t> keys(boxes.size());
    for (const auto i : numbers_) keys[i] = morton_key(boxes[i], hull);
    std::sort(numbers_.begin(), numbers_.end(),
              [&](auto a, auto b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
  }
  auto& leaves = levels_.emplace_back(numbers_.size());
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    const Box& box = boxes[numbers_[i]];
    for (std::size_t d = 0; d < dims_; ++d) {
      leaves[i].low[d] = box.start[d];
      leaves[i].high[d] = box.start[d] + box.count[d];
    }
  }
  while (levels_.back().size() > fan_out) {
    const auto& below = levels_.back();
    std::vector<Bounds> nodes((below.size() + fan_out - 1) / fan_out);
    for (std::size_t i = 0; i < below.size(); ++i) {
      Bounds& node = nodes[i / fan_out];
      if (i % fan_out == 0) node = below[i];
      for (std::size_t d = 0; d < dims_; ++d) {
        node.low[d] = std::min(node.low[d], below[i].low[d]);
        node.high[d] = std::max(node.high[d], below[i].high[d]);
      }
    }
    levels_.push_back(std::move(nodes));
  }
}

bool BoxIndex::touches(const Bounds& bounds, const std::uint64_t* low, const std::uint64_t* high) const {
  for (std::size_t d = 0; d < dims_; ++d)
    if (bounds.low[d] >= high[d] || low[d] >= bounds.high[d]) return false;
  return true;
}

// Calls visit(number) for each box that touches [low, high), in curve order, until it returns false.
template <class Visit>
std::uint64_t BoxIndex::visit(const std::uint64_t* low, const std::uint64_t* high, Visit&& visit) const {
  if (levels_.empty()) return 0;
  std::uint64_t looks = 0;
  // A stack of (level, first, last) ranges; a node below the top has at most fan_out children.
  struct Range {
    std::size_t level, next, end;
  };
  std::array<Range, 16> stack;  // 16 levels of 16 hold more boxes than memory does
  std::size_t depth = 0;
  stack[0] = {levels_.size() - 1, 0, levels_.back().size()};
  for (;;) {
    Range& range = stack[depth];
    if (range.next == range.end) {
      if (depth == 0) return looks;
      --depth;
      continue;
    }
    const std::size_t i = range.next++;
    ++looks;
    if (!touches(levels_[range.level][i], low, high)) continue;
    if (range.level == 0) {
      if (!visit(numbers_[i])) return looks;
      continue;
    }
    const std::size_t level = range.level - 1;
    stack[++depth] = {level, i * fan_out, std::min((i + 1) * fan_out, levels_[level].size())};
  }
}

void BoxIndex::query(const Box& box, std::vector<std::uint32_t>& out) const {
  std::uint64_t high[max_dims] = {};
  if (box.start.size() != dims_) return;
  for (std::size_t d = 0; d < dims_; ++d) {
    if (box.count[d] == 0) return;
    high[d] = box.start[d] + box.count[d];
  }
  const auto before = static_cast<std::ptrdiff_t>(out.size());
  visit(box.start.begin(), high, [&](std::uint32_t number) {
    out.push_back(number);
    return true;
  });
  if (numbers_.size() > fan_out) std::sort(out.begin() + before, out.end());
}

std::int64_t BoxIndex::last_holding(const std::uint64_t* point) const {
  std::uint64_t high[max_dims] = {};
  for (std::size_t d = 0; d < dims_; ++d) high[d] = point[d] + 1;
  std::int64_t last = -1;
  visit(point, high, [&](std::uint32_t number) {
    last = std::max<std::int64_t>(last, number);
    return true;
  });
  return last;
}

bool BoxIndex::any_overlap(std::uint64_t budget) const {
  std::uint64_t looks = 0;
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    const Bounds& bounds = levels_.front()[i];
    bool found = false;
    looks += visit(bounds.low, bounds.high, [&](std::uint32_t number) {
      found = number != numbers_[i];
      return !found;
    });
    if (found || looks > budget) return true;
  }
  return false;
}

}  // namespace penstock::model
