#include "analysis/fragments/hull.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace penstock::analysis {
namespace {

// Coordinates are integers, so that signs are exact: 128 bits hold products of three. Points are moved at random, by up to 2^10 of
// 2^38, so that no four lie in a plane.
using Wide = __int128;
using Place = std::array<std::int64_t, 3>;
using Normal = std::array<Wide, 3>;
constexpr int place_bits = 38, moved_bits = 10;

Place minus(const Place& a, const Place& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Wide dot(const Normal& a, const Place& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
Normal cross(const Place& a, const Place& b) {
  const auto of = [&](int i, int j) { return Wide{a[i]} * b[j] - Wide{a[j]} * b[i]; };
  return {of(1, 2), of(2, 0), of(0, 1)};
}

// Both sides of a triangle, which grow point by point: each takes the place of the faces that it lies before.
class Hull {
 public:
  explicit Hull(const std::vector<Place>& points) : points_(points) {
    add({0, 1, 2});
    add({0, 2, 1});
    for (std::size_t point = 3; point < points.size(); ++point) insert(point);
  }

  // In units of the lattice.
  double volume() const {
    double sum = 0;
    for (const auto& face : faces_)
      sum += static_cast<double>(dot(face.normal, minus(points_[face.corners[0]], points_[0])));
    return sum / 6;
  }

 private:
  using Corners = std::array<std::size_t, 3>;
  struct Face {
    Corners corners;
    Normal normal;  // outwards
  };

  void add(const Corners& corners) {
    const Place& first = points_[corners[0]];
    faces_.push_back({corners, cross(minus(points_[corners[1]], first), minus(points_[corners[2]], first))});
  }
  void insert(std::size_t point) {
    edges_.clear();
    std::erase_if(faces_, [&](const Face& face) {
      const auto& [a, b, c] = face.corners;
      const bool before = dot(face.normal, minus(points_[point], points_[a])) > 0;
      if (before) edges_.insert(edges_.end(), {{a, b}, {b, c}, {c, a}});
      return before;
    });
    for (const auto& [from, to] : edges_)
      if (std::ranges::find(edges_, std::pair(to, from)) == edges_.end()) add({from, to, point});
  }

  const std::vector<Place>& points_;
  std::vector<Face> faces_;
  std::vector<std::pair<std::size_t, std::size_t>> edges_;
};

}  // namespace

double hull_volume(std::span<const Point3> points) {
  if (points.size() < 4) return 0;
  Point3 low{}, side{};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto [least, most] = std::ranges::minmax(points, {}, [&](const Point3& at) { return at[axis]; });
    low[axis] = least[axis];
    side[axis] = most[axis] - least[axis];
  }
  if (!(std::ranges::min(side) > 1e-10 * std::ranges::max(side))) return 0;
  std::mt19937_64 random;  // the same in each call
  std::vector<Place> places(points.size());
  for (std::size_t i = 0; i < points.size(); ++i)
    for (std::size_t axis = 0; axis < 3; ++axis)
      places[i][axis] = std::llround(std::ldexp((points[i][axis] - low[axis]) / side[axis], place_bits)) +
                        static_cast<std::int64_t>(random() >> (64 - moved_bits));
  return std::ldexp(Hull(places).volume(), -3 * place_bits) * side[0] * side[1] * side[2];
}

}  // namespace penstock::analysis
