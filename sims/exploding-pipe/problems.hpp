// What is simulated: the exploding pipe, and problems whose solutions are known.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "fluid.hpp"
#include "grid.hpp"

namespace exploding_pipe {

using Point = std::array<double, 3>;

struct Problem {
  std::string name;
  std::array<Material, 2> materials;
  Index roots;        // blocks of level 0 along x, y, z
  double root_width;  // of such a block
  int samples;        // points along each axis at which a cell's first state is taken
  std::array<Boundary, 6> boundaries;
  int pressure_level;                          // the finest level at which shocks alone refine
  double end;                                  // time
  std::function<State(const Point&)> initial;  // primitive; the domain's lower corner is 0, 0, 0
};

// Names: pipe, sod, sedov, translation. cells: along the domain's longest side, at level 0. seed: of the pipe's imperfections.
// Throws simulation::UsageError.
Problem make_problem(const std::string& name, int cells, std::uint64_t seed);

}  // namespace exploding_pipe
