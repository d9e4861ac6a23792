// One time step of the two fluids on a grid of blocks: finite volumes, second order in space and time, all levels in one step.
//
// States at faces come from limited slopes (van Leer) of the primitive values; at the boundary between the materials, from a
// hyperbolic tangent of the volume fraction (THINC), with which each material's mass goes (K.-M. Shyue and F. Xiao, J. Comput. Phys.
// 268 (2014) 326), so that it stays a few cells wide. Heun's method in time. Where levels meet, the coarse block takes the fine
// blocks' fluxes, so that masses, momentum and energy are conserved. Collective over the grid's communicator.
#pragma once

#include <vector>

#include "fluid.hpp"
#include "grid.hpp"

namespace exploding_pipe {

class Solver {
 public:
  // width: of a cell of level 0. courant: the share of the largest stable step that is taken.
  Solver(const Mixture& mixture, double width, double courant) : mixture_(mixture), width_(width), courant_(courant) {}

  // The largest step that the scheme allows now.
  double stable_step(const Grid& grid) const;
  // Ghost cells need not be filled before, and are not after.
  void advance(Grid& grid, double dt);

 private:
  void make_rates(Grid& grid);
  void correct_coarse(const Grid& grid);

  Mixture mixture_;
  double width_, courant_;
  // Of this rank's blocks: the change of each cell in a unit of time, and the fluxes through each block's outer faces with the speed
  // there as their last component.
  std::vector<double> rates_, face_fluxes_;
};

}  // namespace exploding_pipe
