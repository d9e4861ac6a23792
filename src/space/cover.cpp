#include "space/cover.hpp"

#include <algorithm>
#include <optional>

#include "model/box.hpp"

namespace penstock::space {
namespace {

// The two boxes as one, where they differ in one dimension only and touch there.
std::optional<Box> joined(const Box& a, const Box& b) {
  std::optional<std::size_t> along;
  for (std::size_t d = 0; d < a.start.size(); ++d) {
    if (a.start[d] == b.start[d] && a.count[d] == b.count[d]) continue;
    if (along || (a.start[d] + a.count[d] != b.start[d] && b.start[d] + b.count[d] != a.start[d])) return std::nullopt;
    along = d;
  }
  if (!along) return std::nullopt;
  Box both = a;
  both.start[*along] = std::min(a.start[*along], b.start[*along]);
  both.count[*along] = a.count[*along] + b.count[*along];
  return both;
}

class Subtraction {
 public:
  Subtraction(std::size_t most, std::uint64_t budget) : most_(most), budget_(budget) {}

  void subtract(const Box& wanted, std::span<const Box> candidates) {
    if (!result.complete) return;
    looks_ += candidates.size() + 1;
    std::vector<Box> there;
    for (const Box& candidate : candidates) {
      const auto inside = model::intersect(wanted, candidate);
      if (!inside) continue;
      if (*inside == wanted) return;
      there.push_back(*inside);
    }
    if (there.empty()) return add(wanted);
    if (looks_ > budget_) {
      result.complete = false;
      return;
    }
    const auto [d, at] = middle_face(wanted, there);
    Box half = wanted;
    half.count[d] = at - wanted.start[d];
    subtract(half, there);
    half.start[d] = at;
    half.count[d] = wanted.start[d] + wanted.count[d] - at;
    subtract(half, there);
  }

  Missing result;

 private:
  struct Face {
    std::size_t dimension;
    std::uint64_t at;
  };
  // Of the faces that lie within `wanted`: the middle one in the dimension that has most. So both halves have fewer, and the
  // halving is as deep as the logarithm of their number.
  static Face middle_face(const Box& wanted, const std::vector<Box>& there) {
    std::vector<std::uint64_t> best, faces;
    std::size_t dimension = 0;
    for (std::size_t d = 0; d < wanted.start.size(); ++d) {
      faces.clear();
      const auto low = wanted.start[d], high = low + wanted.count[d];
      for (const Box& box : there) {
        if (box.start[d] > low) faces.push_back(box.start[d]);
        if (box.start[d] + box.count[d] < high) faces.push_back(box.start[d] + box.count[d]);
      }
      if (faces.size() <= best.size()) continue;
      best.swap(faces);
      dimension = d;
    }
    const auto middle = best.begin() + static_cast<std::ptrdiff_t>(best.size() / 2);
    std::nth_element(best.begin(), middle, best.end());
    return {dimension, *middle};
  }

  // Halves come one after the other, so the box to join is among the last ones.
  void add(Box box) {
    constexpr std::size_t tried = 8;
    for (auto& boxes = result.boxes;;) {
      const auto first = boxes.size() > tried ? boxes.end() - tried : boxes.begin();
      const auto other = std::find_if(first, boxes.end(), [&](const Box& b) { return joined(b, box).has_value(); });
      if (other == boxes.end()) break;
      box = *joined(*other, box);
      boxes.erase(other);
    }
    if (result.boxes.size() < most_) result.boxes.push_back(box);
    else result.complete = false;
  }

  const std::size_t most_;
  const std::uint64_t budget_;
  std::uint64_t looks_ = 0;
};

}  // namespace

Missing missing(const Box& wanted, std::span<const Box> there, std::size_t most, std::uint64_t budget) {
  Subtraction subtraction(most, budget);
  if (!model::is_empty(wanted)) subtraction.subtract(wanted, there);
  return std::move(subtraction.result);
}

}  // namespace penstock::space
