#include "analysis/fragments/extremes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

namespace penstock::analysis {
namespace {

using Face = std::array<std::size_t, 3>;

Point3 unit(const Point3& a) {
  const double length = std::sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]);
  return {a[0] / length, a[1] / length, a[2] / length};
}

double projection(const Point3& at, const Point3& along) {
  return at[0] * along[0] + at[1] * along[1] + at[2] * along[2];
}

// Each face becomes four, with corners in the middles of its edges.
void divide(std::vector<Point3>& corners, std::vector<Face>& faces) {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> middles;
  const auto middle = [&](std::size_t a, std::size_t b) {
    const auto [found, added] = middles.try_emplace(std::minmax(a, b), corners.size());
    const Point3 one = corners[a], other = corners[b];
    if (added) corners.push_back(unit({one[0] + other[0], one[1] + other[1], one[2] + other[2]}));
    return found->second;
  };
  std::vector<Face> finer;
  for (const auto& [a, b, c] : faces) {
    const std::size_t ab = middle(a, b), bc = middle(b, c), ca = middle(c, a);
    for (const Face& face : {Face{a, ab, ca}, Face{b, bc, ab}, Face{c, ca, bc}, Face{ab, bc, ca}})
      finer.push_back(face);
  }
  faces = std::move(finer);
}

std::vector<Point3> icosahedron_divided_twice() {
  std::vector<Point3> corners;
  for (int axis = 0; axis < 3; ++axis)
    for (const double one : {-1.0, 1.0})
      for (const double golden : {-std::numbers::phi, std::numbers::phi}) {
        Point3 corner{};
        corner[(axis + 1) % 3] = one;
        corner[(axis + 2) % 3] = golden;
        corners.push_back(unit(corner));
      }
  std::vector<Face> faces;  // three corners that are neighbours: the cosine between them is 0.447, or else negative
  const auto near = [&](std::size_t a, std::size_t b) { return projection(corners[a], corners[b]) > 0; };
  for (std::size_t a = 0; a < corners.size(); ++a)
    for (std::size_t b = a + 1; b < corners.size(); ++b)
      for (std::size_t c = b + 1; c < corners.size(); ++c)
        if (near(a, b) && near(b, c) && near(a, c)) faces.push_back({a, b, c});
  for (int i = 0; i < 2; ++i) divide(corners, faces);
  return corners;
}

// points: of one component, in the order of vertices. Moves those that are kept to `to`, and returns their end.
using Points = std::vector<ExtremePoint>::iterator;
Points keep_extremes(Points first, Points end, Points to) {
  std::array<Points, extreme_directions> kept;
  const auto directions = directions_of_extremes();
  for (std::size_t i = 0; i < directions.size(); ++i) {
    double farthest = projection(first->at, directions[i]);
    kept[i] = first;
    for (auto point = first + 1; point < end; ++point)
      if (const double its = projection(point->at, directions[i]); its > farthest) farthest = its, kept[i] = point;
  }
  std::ranges::sort(kept);
  for (auto each = kept.begin(), last = std::unique(kept.begin(), kept.end()); each != last; ++each) *to++ = **each;
  return to;
}

}  // namespace

std::span<const Point3> directions_of_extremes() {
  static const std::vector<Point3> directions = icosahedron_divided_twice();
  return directions;
}

void ExtremePoints::add(const ExtremePoint& point) {
  points_.push_back(point);
  if (points_.size() >= most_) drop_others();
}

std::vector<ExtremePoint> ExtremePoints::take() {
  drop_others();
  points_.shrink_to_fit();  // it was made for many more
  return std::exchange(points_, {});
}

void ExtremePoints::drop_others() {
  std::ranges::sort(points_);
  const auto same = [](const ExtremePoint& a, const ExtremePoint& b) {
    return a.component == b.component && a.vertex == b.vertex;
  };
  points_.erase(std::unique(points_.begin(), points_.end(), same), points_.end());
  auto to = points_.begin();
  for (auto first = points_.begin(); first != points_.end();) {
    const auto end =
        std::find_if(first, points_.end(), [&](const auto& each) { return each.component != first->component; });
    to = keep_extremes(first, end, to);
    first = end;
  }
  points_.erase(to, points_.end());
  most_ = 2 * points_.size() + (1 << 16);
}

}  // namespace penstock::analysis
