#include "model/box_index.hpp"

#include <algorithm>
#include <bit>

#include "model/box.hpp"
#include "model/curve.hpp"

namespace penstock::model {

namespace {

// Interleaves the leading bits of a box's centre, so that boxes near each other get keys near each other.
std::uint64_t morton_key(const Box& box, const Box& hull) {
  const std::size_t dims = box.start.size();
  if (dims == 0) return 0;
  const std::size_t bits = 64 / dims;
  GridPlace scaled{};
  for (std::size_t d = 0; d < dims; ++d) {
    const int width = std::bit_width(hull.count[d]);  // bits of any offset within the hull
    const std::uint64_t centre = box.start[d] - hull.start[d] + box.count[d] / 2;
    const int shift = width - static_cast<int>(bits);
    scaled[d] = shift > 0 ? centre >> shift : centre << -shift;
  }
  return morton(scaled, dims, bits);
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
  Level leaves{numbers_.size(), {}};
  leaves.bounds.reserve(2 * dims_ * leaves.nodes);
  for (const auto i : numbers_) {
    for (const auto low : boxes[i].start) leaves.bounds.push_back(low);
    for (std::size_t d = 0; d < dims_; ++d) leaves.bounds.push_back(boxes[i].start[d] + boxes[i].count[d]);
  }
  levels_.push_back(std::move(leaves));
  while (levels_.back().nodes > fan_out) {
    const Level& below = levels_.back();
    Level level{(below.nodes + fan_out - 1) / fan_out, {}};
    level.bounds.resize(2 * dims_ * level.nodes);
    for (std::size_t i = 0; i < below.nodes; ++i) {
      const std::uint64_t* from = below.bounds.data() + 2 * dims_ * i;  // no bounds without dimensions
      std::uint64_t* node = level.bounds.data() + 2 * dims_ * (i / fan_out);
      if (i % fan_out == 0) std::copy_n(from, 2 * dims_, node);
      for (std::size_t d = 0; d < dims_; ++d) {
        node[d] = std::min(node[d], from[d]);
        node[dims_ + d] = std::max(node[dims_ + d], from[dims_ + d]);
      }
    }
    levels_.push_back(std::move(level));
  }
}

bool BoxIndex::touches(const std::uint64_t* bounds, const std::uint64_t* low, const std::uint64_t* high) const {
  for (std::size_t d = 0; d < dims_; ++d)
    if (bounds[d] >= high[d] || low[d] >= bounds[dims_ + d]) return false;
  return true;
}

// Calls visit(place among the leaves) for each box that touches [low, high), in curve order, until it returns false.
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
  stack[0] = {levels_.size() - 1, 0, levels_.back().nodes};
  for (;;) {
    Range& range = stack[depth];
    if (range.next == range.end) {
      if (depth == 0) return looks;
      --depth;
      continue;
    }
    const std::size_t i = range.next++;
    ++looks;
    if (!touches(levels_[range.level].bounds.data() + 2 * dims_ * i, low, high)) continue;
    if (range.level == 0) {
      if (!visit(i)) return looks;
      continue;
    }
    const std::size_t level = range.level - 1;
    stack[++depth] = {level, i * fan_out, std::min((i + 1) * fan_out, levels_[level].nodes)};
  }
}

template <class Visit>
void BoxIndex::visit_box(const Box& box, Visit&& see) const {
  std::uint64_t high[max_dims] = {};
  if (box.start.size() != dims_) return;
  for (std::size_t d = 0; d < dims_; ++d) {
    if (box.count[d] == 0) return;
    high[d] = box.start[d] + box.count[d];
  }
  visit(box.start.begin(), high, see);
}

void BoxIndex::query(const Box& box, std::vector<std::uint32_t>& out) const {
  const auto before = static_cast<std::ptrdiff_t>(out.size());
  visit_box(box, [&](std::size_t leaf) {
    out.push_back(numbers_[leaf]);
    return true;
  });
  if (numbers_.size() > fan_out) std::sort(out.begin() + before, out.end());
}

void BoxIndex::for_each(const Box& box, const std::function<bool(const Box&)>& see) const {
  Box found{Dims::filled(dims_, 0), Dims::filled(dims_, 0)};
  visit_box(box, [&](std::size_t leaf) {
    const std::uint64_t* bounds = levels_.front().bounds.data() + 2 * dims_ * leaf;
    for (std::size_t d = 0; d < dims_; ++d) {
      found.start[d] = bounds[d];
      found.count[d] = bounds[dims_ + d] - bounds[d];
    }
    return see(found);
  });
}

std::size_t BoxIndex::memory_bytes() const {
  std::size_t bytes = numbers_.capacity() * sizeof(numbers_[0]);
  for (const auto& level : levels_) bytes += level.bounds.capacity() * sizeof(std::uint64_t);
  return bytes;
}

std::int64_t BoxIndex::last_holding(const std::uint64_t* point) const {
  std::uint64_t high[max_dims] = {};
  for (std::size_t d = 0; d < dims_; ++d) high[d] = point[d] + 1;
  std::int64_t last = -1;
  visit(point, high, [&](std::size_t leaf) {
    last = std::max<std::int64_t>(last, numbers_[leaf]);
    return true;
  });
  return last;
}

bool BoxIndex::any_overlap(std::uint64_t budget) const {
  std::uint64_t looks = 0;
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    const std::uint64_t* bounds = levels_.front().bounds.data() + 2 * dims_ * i;
    bool found = false;
    looks += visit(bounds, bounds + dims_, [&](std::size_t leaf) {
      found = leaf != i;
      return !found;
    });
    if (found || looks > budget) return true;
  }
  return false;
}

}  // namespace penstock::model
