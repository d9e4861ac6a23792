// The Gray-Scott reaction-diffusion system on a periodic 3-D grid, decomposed over the ranks of an MPI communicator.
//
//   dU/dt = Du lap(U) - U V^2 + F (1 - U) + noise * r,     dV/dt = Dv lap(V) + U V^2 - (F + k) V
//
// Explicit Euler, double precision; lap is the 7-point Laplacian as the mean of the six neighbours minus the centre. r is
// uniform in [-1, 1) and a function of seed, time step and global cell only. Every cell is computed by the same sequence
// of roundings wherever it lies, so fields are equal bit by bit for any number of ranks, and equal to reference.py.
//
// Sources of the problem: J. E. Pearson, "Complex patterns in a simple system", Science 261 (1993) 189-192; the
// Gray-Scott tutorial of ADIOS2 (box in the middle, averaging Laplacian). No code of theirs is used.
//
// This is physics only: no output, no Penstock. Constructor and advance are collective over the communicator.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "halo.hpp"
#include "settings.hpp"

namespace gray_scott {

// One rank's part of a field, inside its ghosted array: count cells in each dimension from `first` on.
struct FieldView {
  const double* first = nullptr;
  Index strides{};  // bytes between neighbours in each dimension
};

// Where a state is filled in: this rank's part of both fields, as in FieldView.
struct StateView {
  double* u = nullptr;
  double* v = nullptr;
  Index strides{};
};

class Simulation {
 public:
  // Throws UsageError when a rank would have no cells.
  Simulation(const Settings& settings, MPI_Comm comm);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Goes on from a state that was put out after `step` time steps, by any number of ranks. The caller fills all of the
  // view before the next advance.
  StateView restart(std::int64_t step);
  // One time step.
  void advance();
  // Other feed and kill rates from the next time step on, the same on all ranks. False: these are in force already.
  bool set_rates(double F, double k);

  std::int64_t step() const { return step_; }  // time steps done
  double time() const { return static_cast<double>(step_) * settings_.dt; }
  const Index& start() const { return start_; }  // this rank's part of the global grid
  const Index& count() const { return count_; }
  // Valid until the next advance.
  FieldView u() const { return view(u_); }
  FieldView v() const { return view(v_); }
  // Seconds of advance() spent waiting for the neighbours' cells.
  double halo_s() const { return halo_s_; }

 private:
  void seed_box();
  // Computes the new values of the cells low <= index < high (ghosted indices).
  void update(const Index& low, const Index& high);
  // The layers next to the ghosts that were left out while those travelled.
  void update_shell(Index low, Index high);
  FieldView view(const std::vector<double>& field) const;
  std::int64_t offset(std::int64_t i, std::int64_t j, std::int64_t k) const;

  Settings settings_;
  MPI_Comm cartesian_ = MPI_COMM_NULL;
  Index start_{}, count_{};
  std::vector<double> u_, v_, u_next_, v_next_;
  std::unique_ptr<Halo> halo_;
  std::int64_t step_ = 0;
  double halo_s_ = 0;
};

}  // namespace gray_scott
