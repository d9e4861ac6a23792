#include "model/box.hpp"

#include <algorithm>

namespace penstock::model {

bool is_valid(const Box& box) {
  if (box.start.size() != box.count.size()) return false;
  std::uint64_t product = 1;
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    std::uint64_t end = 0;
    if (__builtin_add_overflow(box.start[d], box.count[d], &end)) return false;
    // A zero count elsewhere makes the true product zero, but no honest box overflows on the way.
    if (__builtin_mul_overflow(product, std::max<std::uint64_t>(box.count[d], 1), &product)) return false;
  }
  return true;
}

bool is_within(const Box& box, const Dims& shape) {
  if (!is_valid(box) || box.start.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (box.start[d] + box.count[d] > shape[d]) return false;
  return true;
}

bool is_empty(const Box& box) { return std::find(box.count.begin(), box.count.end(), 0u) != box.count.end(); }

std::optional<Box> intersect(const Box& a, const Box& b) {
  if (a.start.size() != b.start.size()) return std::nullopt;
  Box result = a;
  for (std::size_t d = 0; d < a.start.size(); ++d) {
    const auto low = std::max(a.start[d], b.start[d]);
    const auto high = std::min(a.start[d] + a.count[d], b.start[d] + b.count[d]);
    if (low >= high) return std::nullopt;
    result.start[d] = low;
    result.count[d] = high - low;
  }
  return result;
}

bool contains(const Box& outer, const Box& inner) {
  if (outer.start.size() != inner.start.size()) return false;
  if (is_empty(inner)) return true;
  for (std::size_t d = 0; d < outer.start.size(); ++d)
    if (inner.start[d] < outer.start[d] || inner.start[d] + inner.count[d] > outer.start[d] + outer.count[d])
      return false;
  return true;
}

bool contains(const Box& outer, const std::uint64_t* point) {
  for (std::size_t d = 0; d < outer.start.size(); ++d)
    if (point[d] < outer.start[d] || point[d] - outer.start[d] >= outer.count[d]) return false;
  return true;
}

std::string to_string(const Box& box) {
  if (box.start.empty()) return "scalar";
  std::string text;
  for (std::size_t d = 0; d < std::min(box.start.size(), box.count.size()); ++d) {
    if (d > 0) text += " x ";
    text += '[' + std::to_string(box.start[d]) + ", " + std::to_string(box.start[d] + box.count[d]) + ')';
  }
  return text;
}

}  // namespace penstock::model
