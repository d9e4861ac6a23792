#include "problems.hpp"

#include <cmath>
#include <numbers>
#include <random>
#include <stdexcept>

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

// Where the pipe's wall is weak: along the borders between regions around points on the pipe, which are drawn at random.
class Scores {
 public:
  Scores(std::uint64_t seed, double radius, double half_length) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    const double cap = radius / (2 * radius + 4 * half_length);  // of the surface, each
    for (Point& point : points_) {
      const double angle = 2 * std::numbers::pi * uniform(), where = uniform();
      const bool on_cap = where < 2 * cap;
      const double r = on_cap ? radius * std::sqrt(uniform()) : radius;
      const double z = on_cap ? std::copysign(half_length, where - cap) : half_length * (2 * uniform() - 1);
      point = {r * std::cos(angle), r * std::sin(angle), z};
    }
  }
  // How far the border of the next region is, as a difference of distances to the two points.
  double from_border(const Point& at) const {
    double nearest = 1e9, second = 1e9;
    for (const Point& point : points_) {
      const double distance = std::hypot(at[0] - point[0], at[1] - point[1], at[2] - point[2]);
      second = std::min(second, std::max(nearest, distance));
      nearest = std::min(nearest, distance);
    }
    return second - nearest;
  }

 private:
  std::array<Point, 48> points_;
};

// A closed pipe of metal along z, in air, full of gas at sixty times its pressure.
Problem pipe(int cells, std::uint64_t seed) {
  constexpr double inner_radius = 0.09, thickness = 0.05, half_length = 0.2;
  constexpr double score_width = 0.016, score_thickness = 0.0;  // of the wall's, at the score's bottom
  const int roots = cells / cells_per_side;
  Problem problem{
      "pipe", {metal, air}, {roots, roots, roots}, 1.0 / roots, 4, {open, open, open, open, open, open}, 0, 0.07, {}};
  problem.initial = [scores =
                         Scores(seed, inner_radius + thickness / 2, half_length + thickness / 2)](const Point& at) {
    const Point from_centre{at[0] - 0.5, at[1] - 0.5, at[2] - 0.5};
    const double radius = std::hypot(from_centre[0], from_centre[1]), along = std::abs(from_centre[2]);
    if (radius < inner_radius && along < half_length) return pure_state(1, 10, 60);
    if (radius >= inner_radius + thickness || along >= half_length + thickness) return pure_state(1, 1, 1);
    const double depth = std::max(radius - inner_radius, along - half_length);
    const double wall = thickness * std::min(1.0, score_thickness + (1 - score_thickness) *
                                                                        scores.from_border(from_centre) / score_width);
    return depth < wall ? pure_state(0, 8, 1) : pure_state(1, 1, 1);
  };
  return problem;
}

}  // namespace

std::vector<std::string> problem_names() { return {"pipe", "sod", "sedov", "translation"}; }

Problem make_problem(const std::string& name, int cells, std::uint64_t seed) {
  if (cells < cells_per_side || cells > 1024 || cells % cells_per_side != 0)
    throw std::invalid_argument("the cells of level 0 along a side are a multiple of 8, from 8 to 1024");
  if (name == "pipe") return pipe(cells, seed);
  if (name == "sod") return sod(cells);
  if (name == "sedov") return sedov(cells);
  if (name == "translation") return translation(cells);
  throw std::invalid_argument("there is no problem '" + name + "': pipe, sod, sedov or translation");
}

}  // namespace exploding_pipe
