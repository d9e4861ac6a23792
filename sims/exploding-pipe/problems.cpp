#include "problems.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <utility>

#include "usage_error.hpp"

namespace exploding_pipe {
namespace {

constexpr Boundary open = Boundary::open, mirror = Boundary::mirror;
constexpr Material air{1.4, 0}, metal{4.4, 100};

double squared(double x) { return x * x; }

// A state of one material.
State pure_state(int material, double density, double pressure_here, const Point& velocity = {}) {
  State state{};
  state[material == 0 ? mass1 : mass2] = density;
  for (int d = 0; d < 3; ++d) state[along_x + d] = velocity[d];
  state[pressure] = pressure_here;
  state[fraction] = material == 0 ? 1 : 0;
  return state;
}

// G. A. Sod, J. Comput. Phys. 27 (1978) 1, along x: two gases alike, one of them at eight times the density.
Problem sod(int cells) {
  Problem problem{"sod", {air, air}, {cells / cells_per_side, 1, 1}, 0, 1, {open, open, open, open, open, open}, 9,
                  0.2,   {}};
  problem.root_width = 1.0 / problem.roots[0];
  problem.initial = [](const Point& at) { return at[0] < 0.5 ? pure_state(0, 1, 1) : pure_state(1, 0.125, 0.1); };
  return problem;
}

// An octant of a point explosion in a cold gas of density 1; the energy is such that the shock's radius is time^(2/5).
Problem sedov(int cells) {
  constexpr double blast = 0.851072, radius = 0.06;
  constexpr double heap = 0.4 * blast / (4.0 / 3 * std::numbers::pi * radius * radius * radius);
  const int roots = cells / cells_per_side;
  Problem problem{"sedov",     {air, air}, {roots, roots, roots},
                  1.2 / roots, 8,          {mirror, open, mirror, open, mirror, open},
                  9,           0.5,        {}};
  problem.initial = [](const Point& at) {
    const bool inside = squared(at[0]) + squared(at[1]) + squared(at[2]) < squared(radius);
    return pure_state(1, 1, inside ? heap : 1e-4);
  };
  return problem;
}

// A ball of one material that a uniform flow carries across the domain, and across levels.
Problem translation(int cells) {
  const int roots = cells / cells_per_side;
  Problem problem{"translation",
                  {metal, air},
                  {roots, roots, roots},
                  1.0 / roots,
                  8,
                  {open, open, open, open, open, open},
                  0,
                  0.4,
                  {}};
  problem.initial = [](const Point& at) {
    const bool ball = squared(at[0] - 0.3) + squared(at[1] - 0.35) + squared(at[2] - 0.4) < squared(0.15);
    const Point velocity{1, 0.75, 0.5};
    return ball ? pure_state(0, 8, 1, velocity) : pure_state(1, 1, 1, velocity);
  };
  return problem;
}

// The plates of the pipe's wall: each is flat, and touches the cavity, a cylinder along z with round ends, at a point. The points are
// drawn at random, but apart from each other; a plate is where its point is the nearest.
class Plates {
 public:
  Plates(std::uint64_t seed, double radius, double half_length) : random_(seed) {
    for (std::size_t i = 0; i < plates_.size(); ++i) {
      double farthest = -1;
      for (int candidate = 0; candidate < 30; ++candidate) {
        const Plate plate = draw(radius, half_length);
        double nearest = 1e9;
        for (std::size_t j = 0; j < i; ++j)
          nearest = std::min(nearest, squared_distance(plate.point, plates_[j].point));
        if (nearest <= farthest) continue;
        farthest = nearest;
        plates_[i] = plate;
      }
    }
  }

  // How far a point is outwards from the inner side of its plate, and from the border of the next plate.
  struct Distances {
    double outwards, from_border;
  };
  Distances distances(const Point& at) const {
    const Plate *plate = nullptr, *next = nullptr;
    double nearest = 1e9, second = 1e9;
    for (const Plate& candidate : plates_) {
      const double distance = squared_distance(at, candidate.point);
      if (distance < nearest) {
        second = std::exchange(nearest, distance);
        next = std::exchange(plate, &candidate);
      } else if (distance < second) {
        second = distance;
        next = &candidate;
      }
    }
    double outwards = 0;
    for (std::size_t d = 0; d < 3; ++d) outwards += (at[d] - plate->point[d]) * plate->normal[d];
    return {outwards, (second - nearest) / 2 / std::sqrt(squared_distance(plate->point, next->point))};
  }

 private:
  struct Plate {
    Point point, normal;
  };

  static double squared_distance(const Point& a, const Point& b) {
    return squared(a[0] - b[0]) + squared(a[1] - b[1]) + squared(a[2] - b[2]);
  }
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  // Of points on the cavity's surface all are as likely: an interval along z has the same area on the round ends as between them.
  Plate draw(double radius, double half_length) {
    const double z = half_length * (2 * uniform() - 1), angle = 2 * std::numbers::pi * uniform();
    const double centre = std::clamp(z, radius - half_length, half_length - radius);
    const double up = (z - centre) / radius, out = std::sqrt(std::max(0.0, 1 - up * up));
    const Point normal{out * std::cos(angle), out * std::sin(angle), up};
    return {{radius * normal[0], radius * normal[1], z}, normal};
  }

  std::mt19937_64 random_;
  std::array<Plate, 48> plates_;
};

// A closed pipe of metal along z, in air, full of gas at sixty times its pressure. Its wall is scored from within, along the borders
// of the plates; a skin is left, which bursts first. The gas in the scores keeps the plates apart, and as they are flat, each flies
// off in its own direction.
Problem pipe(int cells, std::uint64_t seed) {
  constexpr double inner_radius = 0.1, half_length = 0.25, thickness = 0.05;
  constexpr double score_width = 0.0234, skin = 0.008;
  const int roots = cells / cells_per_side;
  Problem problem{
      "pipe", {metal, air}, {roots, roots, roots}, 1.0 / roots, 4, {open, open, open, open, open, open}, 0, 0.08, {}};
  problem.initial = [plates = Plates(seed, inner_radius, half_length)](const Point& at) {
    const auto [outwards, from_border] = plates.distances({at[0] - 0.5, at[1] - 0.5, at[2] - 0.5});
    if (outwards >= thickness) return pure_state(1, 1, 1);
    const bool score = from_border < score_width / 2 && outwards < thickness - skin;
    return outwards < 0 || score ? pure_state(1, 10, 60) : pure_state(0, 8, 1);
  };
  return problem;
}

}  // namespace

Problem make_problem(const std::string& name, int cells, std::uint64_t seed) {
  if (cells < cells_per_side || cells > 1024 || cells % cells_per_side != 0)
    throw simulation::UsageError("the cells of level 0 along a side are a multiple of 8, from 8 to 1024");
  if (name == "pipe") return pipe(cells, seed);
  if (name == "sod") return sod(cells);
  if (name == "sedov") return sedov(cells);
  if (name == "translation") return translation(cells);
  throw simulation::UsageError("there is no problem '" + name + "': pipe, sod, sedov or translation");
}

}  // namespace exploding_pipe
