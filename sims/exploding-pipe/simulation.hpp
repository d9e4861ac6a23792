// A problem on a grid that follows it: blocks are refined where the materials meet and at shocks, and merged where nothing is left of
// them. Results do not depend on the number of ranks, bit for bit. Collective over the communicator: all but the plain accessors.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "grid.hpp"
#include "problems.hpp"
#include "solver.hpp"

namespace exploding_pipe {

struct Totals {
  double mass1, mass2, energy, volume1;
};

class Simulation {
 public:
  Simulation(Problem problem, int max_level, MPI_Comm comm);

  // One time step, which does not go beyond the time.
  void advance(double until);
  // Fills the ghost cells, for who reads the blocks.
  void fill_ghosts() { grid_.fill_ghosts(); }

  const Grid& grid() const { return grid_; }
  const Mixture& mixture() const { return mixture_; }
  double width(int level) const { return problem_.root_width / cells_per_side / (1 << level); }  // of a cell
  double time() const { return time_; }
  std::int64_t cycle() const { return cycle_; }
  std::int64_t regrids() const { return regrids_; }            // that changed the blocks
  std::int64_t moved_blocks() const { return moved_blocks_; }  // that changed their rank, in all
  Totals totals() const;

 private:
  void set_initial();
  std::vector<Wish> wishes() const;  // of all ranks' blocks
  void regrid();

  Problem problem_;
  Mixture mixture_;
  Grid grid_;
  Solver solver_;
  double time_ = 0;
  std::int64_t cycle_ = 0, regrids_ = 0, moved_blocks_ = 0;
};

}  // namespace exploding_pipe
