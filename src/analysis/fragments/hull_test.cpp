#include "analysis/fragments/hull.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/random_test_support.hpp"

namespace penstock::analysis {
namespace {

using model::Random;

// Most of them lie in the faces and edges of the cube, which is their hull.
std::vector<Point3> lattice(int side) {
  std::vector<Point3> points;
  for (int z = 0; z <= side; ++z)
    for (int y = 0; y <= side; ++y)
      for (int x = 0; x <= side; ++x) points.push_back({double(x) / side, double(y) / side, double(z) / side});
  return points;
}

TEST(Hull, OfSkewLattices) {
  Random random(37);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    double m[3][3];
    for (auto& row : m)
      for (double& each : row) each = static_cast<double>(random.from(0, 200)) / 100 - 1;
    const double determinant = m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
                               m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
                               m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
    if (std::abs(determinant) < 0.1) continue;
    const double thin = std::ldexp(1.0, -static_cast<int>(random.from(0, 25)));
    auto points = lattice(static_cast<int>(random.from(1, 5)));
    for (auto& p : points) {
      const Point3 at = p;
      for (std::size_t i = 0; i < 3; ++i) p[i] = 5 + m[i][0] * at[0] + m[i][1] * at[1] + m[i][2] * at[2];
      p[1] = (p[1] - 5) * thin;
    }
    random.shuffle(points);
    const double volume = std::abs(determinant) * thin;
    EXPECT_NEAR(hull_volume(points), volume, 1e-6 * volume);
    points.insert(points.end(), points.begin(), points.begin() + points.size() / 2);
    EXPECT_NEAR(hull_volume(points), volume, 1e-6 * volume);
  }
}

TEST(Hull, OfPointsInAPlaneIsZero) {
  auto points = lattice(3);
  EXPECT_EQ(hull_volume({}), 0);
  EXPECT_EQ(hull_volume(std::span(points).first(3)), 0);
  for (auto& point : points) point[1] = 0.25;
  EXPECT_EQ(hull_volume(points), 0);
}

}  // namespace
}  // namespace penstock::analysis
