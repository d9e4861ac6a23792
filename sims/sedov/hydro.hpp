// The Sedov blast: a point explosion in a cold gas, in Lagrangian hydrodynamics on hexahedra that move with the gas.
//
// One octant of the blast on n x n x n elements of [0, 1.2]^3 (dimensionless; gamma 1.4, density 1). Ranks have slabs along z; they
// share the nodes between them. Staggered in space and time, with corner forces, a scalar artificial viscosity and hourglass
// damping, and with the energy that the corner forces give or take (E. J. Caramana et al., J. Comput. Phys. 146 (1998) 227), so
// that the total energy is constant. The energy is such that the shock's radius is time^(2/5) (L. I. Sedov, 1959; E = 0.851072).
//
// Collective over the communicator: the constructor, advance, and what says so.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <vector>

namespace sedov {

using Vector = std::array<double, 3>;

class Blast {
 public:
  // 2 <= n; at most n ranks.
  Blast(int n, MPI_Comm comm);
  // To the time, in steps that the stability of the scheme allows.
  void advance(double time);

  double time() const { return time_; }
  std::int64_t steps() const { return steps_; }
  int n() const { return n_; }
  int first_layer() const { return first_; }
  int layers() const { return layers_; }
  std::size_t nodes() const { return position_.size(); }
  std::size_t elements() const { return energy_.size(); }
  // Numbers of nodes, from 0, in the order of IOSS's hex8.
  const std::vector<std::array<int, 8>>& corners() const { return corners_; }

  const std::vector<Vector>& start() const { return start_; }
  const std::vector<Vector>& position() const { return position_; }
  const std::vector<Vector>& velocity() const { return velocity_; }
  const std::vector<double>& density() const { return density_; }
  const std::vector<double>& pressure() const { return pressure_; }
  const std::vector<double>& energy() const { return energy_; }  // internal, of a unit of mass

  // Collective. Of the octant: kinetic and internal.
  double total_energy() const;
  // Collective. The radius of the densest shell.
  double shock_radius() const;
  static double exact_shock_radius(double time);

 private:
  void add_over_ranks(std::vector<Vector>& values);
  void add_over_ranks(std::vector<double>& values);
  void make_forces();
  void step(double dt);
  double stable_step() const;
  void update_elements();

  MPI_Comm comm_;
  int rank_ = 0, ranks_ = 1;
  int n_, first_ = 0, layers_ = 0;
  double time_ = 0, dt_ = 0;
  std::int64_t steps_ = 0;
  std::vector<std::array<int, 8>> corners_;
  std::vector<Vector> start_, position_, velocity_, force_;
  std::vector<std::array<Vector, 8>> corner_force_;
  std::vector<double> node_mass_, mass_, volume_, density_, pressure_, energy_, length_, viscosity_, sound_;
};

}  // namespace sedov
