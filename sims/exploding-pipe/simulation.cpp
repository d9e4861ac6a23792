#include "simulation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace exploding_pipe {
namespace {

constexpr int regrid_every = 8;  // cycles; waves cross fewer than eight cells in them
constexpr double courant = 0.8;
constexpr double fraction_jump = 0.05;  // between neighbouring cells: refines
constexpr double pressure_jump = 0.2;   // of the smaller pressure: refines
constexpr double calm = 0.3;            // a block with jumps below this share of those may be merged

// The largest jumps of a block's cells to the next ones, ghost cells included.
struct Jumps {
  double fraction = 0, pressure = 0;
};

Jumps jumps_of(const Mixture& mixture, const double* block) {
  Jumps jumps;
  const auto at = [&](int x, int y, int z) {
    State state;
    for (int c = 0; c < components; ++c) state[c] = block[c * block_cells + place(x, y, z)];
    state = mixture.primitive(state);
    return std::pair(state[fraction], state[pressure]);
  };
  for (int z = -1; z <= cells_per_side; ++z)
    for (int y = -1; y <= cells_per_side; ++y)
      for (int x = -1; x <= cells_per_side; ++x) {
        const auto [fraction_here, pressure_here] = at(x, y, z);
        for (const auto& [fraction_next, pressure_next] : {at(x + 1, y, z), at(x, y + 1, z), at(x, y, z + 1)}) {
          jumps.fraction = std::max(jumps.fraction, std::abs(fraction_next - fraction_here));
          const double smaller = std::max(std::min(std::abs(pressure_here), std::abs(pressure_next)), 1e-3);
          jumps.pressure = std::max(jumps.pressure, std::abs(pressure_next - pressure_here) / smaller);
        }
      }
  return jumps;
}

std::array<double, components> inner_sums(const double* block) {
  std::array<double, components> sums{};
  for (int c = 0; c < components; ++c)
    for (int z = 0; z < cells_per_side; ++z)
      for (int y = 0; y < cells_per_side; ++y)
        for (int x = 0; x < cells_per_side; ++x) sums[c] += block[c * block_cells + place(x, y, z)];
  return sums;
}

int number_of_ranks(MPI_Comm comm) {
  int ranks = 1;
  MPI_Comm_size(comm, &ranks);
  return ranks;
}

}  // namespace

Simulation::Simulation(Problem problem, int max_level, MPI_Comm comm)
    : problem_(std::move(problem)),
      mixture_(problem_.materials),
      grid_(Octree(problem_.roots, max_level, number_of_ranks(comm)), comm, problem_.boundaries),
      solver_(mixture_, problem_.root_width / cells_per_side, courant) {
  set_initial();
  for (int level = 0; level < max_level; ++level) {
    grid_.fill_ghosts();
    grid_.reset(grid_.tree().adapted(wishes()));
    set_initial();
  }
}

void Simulation::set_initial() {
  const int samples = problem_.samples;
  for (int b = 0; b < grid_.count(); ++b) {
    const Key& key = grid_.key(b);
    const double h = width(key.level);
    for (int z = 0; z < cells_per_side; ++z)
      for (int y = 0; y < cells_per_side; ++y)
        for (int x = 0; x < cells_per_side; ++x) {
          const Index cell{x, y, z};
          State mean{};
          for (int sample = 0; sample < samples * samples * samples; ++sample) {
            const Index part{sample % samples, sample / samples % samples, sample / samples / samples};
            Point point;
            for (int d = 0; d < 3; ++d)
              point[d] = h * (key.at[d] * cells_per_side + cell[d] + (part[d] + 0.5) / samples);
            const State state = mixture_.conserved(problem_.initial(point));
            for (int c = 0; c < components; ++c) mean[c] += state[c];
          }
          for (int c = 0; c < components; ++c)
            grid_.block(b)[c * block_cells + place(x, y, z)] = mean[c] / (samples * samples * samples);
        }
  }
}

std::vector<Wish> Simulation::wishes() const {
  const Octree& tree = grid_.tree();
  std::vector<Wish> all(static_cast<std::size_t>(tree.size()));
  for (int b = 0; b < grid_.count(); ++b) {
    const Jumps jumps = jumps_of(mixture_, grid_.block(b));
    const int level = grid_.key(b).level;
    const auto wish = [&](double jump, double threshold, int finest) {
      if (jump > threshold && level < finest) return Wish::refine;
      return jump > calm * threshold && level <= finest ? Wish::keep : Wish::coarsen;
    };
    all[grid_.first() + b] =
        std::max(wish(jumps.fraction, fraction_jump, tree.max_level()),
                 wish(jumps.pressure, pressure_jump, std::min(problem_.pressure_level, tree.max_level())));
  }
  std::vector<int> counts, firsts;
  for (int rank = 0; rank < tree.ranks(); ++rank) {
    firsts.push_back(tree.first(rank));
    counts.push_back(tree.first(rank + 1) - tree.first(rank));
  }
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all.data(), counts.data(), firsts.data(), MPI_BYTE, grid_.comm());
  return all;
}

void Simulation::regrid() {
  grid_.fill_ghosts();
  Octree next = grid_.tree().adapted(wishes());
  if (std::ranges::equal(next.leaves(), grid_.tree().leaves())) return;
  moved_blocks_ += grid_.adapt(std::move(next));
  ++regrids_;
}

void Simulation::advance(double until) {
  if (cycle_ > 0 && cycle_ % regrid_every == 0) regrid();
  const double dt = std::min(solver_.stable_step(grid_), until - time_);
  solver_.advance(grid_, dt);
  time_ = dt == until - time_ ? until : time_ + dt;
  ++cycle_;
}

Totals Simulation::totals() const {
  // Block by block in Morton order, so that the sums do not depend on the number of ranks.
  std::vector<std::array<double, components>> sums(static_cast<std::size_t>(grid_.tree().size()));
  for (int b = 0; b < grid_.count(); ++b) sums[grid_.first() + b] = inner_sums(grid_.block(b));
  MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size() * components), MPI_DOUBLE, MPI_SUM,
                grid_.comm());
  Totals totals{};
  for (int leaf = 0; leaf < grid_.tree().size(); ++leaf) {
    const double h = width(grid_.tree().leaves()[leaf].level), volume = h * h * h;
    totals.mass1 += sums[leaf][mass1] * volume;
    totals.mass2 += sums[leaf][mass2] * volume;
    totals.energy += sums[leaf][energy] * volume;
    totals.volume1 += sums[leaf][fraction] * volume;
  }
  return totals;
}

}  // namespace exploding_pipe
