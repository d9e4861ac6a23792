// exploding-pipe: a closed pipe of metal bursts by the gas in it; written as a stream of blocks of an adaptive grid.
//
//   mpiexec -n 4 exploding-pipe --help
//
// Each level more makes the cells half as wide, and is what sets the size of the run. Solutions are known of the problems sod, sedov and
// translation.
//
// The stream is a channel (penstock/coprocessor.hpp): where its steps go, and what analyses them, is configured. Outputs are at equal
// intervals of time, from the start to the end (one: at the end); each is a step, if it is asked for. The mesh `blocks` (AmrMesh) has,
// in Morton order, each rank's blocks of 10 x 10 x 10 cells, axes z, y, x, one layer of ghost cells included. Fields: volume_fraction,
// mass_density (float64, of the pipe's material: its share of each cell's volume, and its mass in a unit of volume), density, pressure,
// velocity (float32). Values: time, cycle, regrids, moved_blocks.
#include <mpi.h>

#include <cstdio>
#include <string>
#include <utility>

#include "command_line.hpp"
#include "penstock/mpi.hpp"
#include "penstock/penstock.hpp"
#include "simulation.hpp"

namespace {

using namespace exploding_pipe;

struct Arguments {
  std::string problem = "pipe", stream = "exploding-pipe";
  int cells = 32, levels = 3, outputs = 17;
  double end = 0;  // 0: the problem's
  std::uint64_t seed = 1;
};

simulation::CommandLine command_line(Arguments& arguments) {
  simulation::CommandLine line(
      "exploding-pipe",
      "A closed pipe of metal bursts by the gas in it; written as a stream of blocks of an adaptive grid. The pipe's "
      "domain\n"
      "has sides of 1, and the air around it the density 1 and the pressure 1; lengths and times are in these units.");
  line.text("--problem", "NAME", arguments.problem, "pipe, or one with a known solution: sod, sedov, translation");
  line.number("--cells", "N", arguments.cells, cells_per_side, 1024,
              "cells along the longest side at level 0, a multiple of 8");
  line.number("--levels", "N", arguments.levels, 1, 9, "levels of refinement, the coarsest included");
  line.number("--end", "TIME", arguments.end, 1e-9, 1e9,
              "time of the last output; default: 0.08 for pipe, 0.2 for sod, 0.5 for sedov, 0.4 for translation");
  line.number("--outputs", "N", arguments.outputs, 1, 1'000'000,
              "outputs, at equal intervals of time from the start to the end; 1: at the end");
  line.number<std::uint64_t>("--seed", "N", arguments.seed, 0, UINT64_MAX, "seed of the pipe's imperfections");
  line.text("--stream", "NAME", arguments.stream, "name of the stream");
  return line;
}

constexpr std::uint64_t shown = cells_per_side + 2;  // with one layer of ghost cells

// The channel of blocks.
class Output {
 public:
  Output(const penstock::Context& context, const std::string& stream, const Simulation& simulation)
      : coprocessor_(context, stream, penstock::mpi_cohort(simulation.grid().comm())) {
    const double h = simulation.width(0);
    coprocessor_.set_mesh("blocks", {penstock::AmrMesh{.cells = {shown, shown, shown},
                                                       .axes = "zyx",
                                                       .ghost_layers = 1,
                                                       .spacing = {h, h, h},
                                                       .levels = "levels",
                                                       .indices = "indices",
                                                       .splits = "splits",
                                                       .depth = depth_of(simulation.grid().tree())}});
    constexpr auto element = penstock::Association::element;
    fraction_ = coprocessor_.field<double>("blocks", "volume_fraction", {.association = element});
    mass_density_ = coprocessor_.field<double>("blocks", "mass_density", {.association = element});
    density_ = coprocessor_.field<float>("blocks", "density", {.association = element});
    pressure_ = coprocessor_.field<float>("blocks", "pressure", {.association = element});
    velocity_ = coprocessor_.field<float>("blocks", "velocity", {.association = element, .components = 3});
    levels_ = coprocessor_.structure<std::int32_t>("blocks", "levels");
    indices_ = coprocessor_.structure<std::int32_t>("blocks", "indices");
    splits_ = coprocessor_.structure<std::uint64_t>("blocks", "splits");
    penstock::Writer& writer = coprocessor_.writer();
    time_ = writer.define_value<double>("time");
    cycle_ = writer.define_value<std::int64_t>("cycle");
    regrids_ = writer.define_value<std::int64_t>("regrids");
    moved_ = writer.define_value<std::int64_t>("moved_blocks");
  }

  // The simulation's ghost cells are filled.
  void write(const Simulation& simulation) {
    auto step = coprocessor_.request(simulation.cycle(), simulation.time());
    if (!step) return;
    lend_blocks(simulation.grid(), *step);
    put_fields(simulation, *step);
    put_tree(simulation.grid(), *step);
    if (simulation.grid().rank() == 0) put_values(simulation, step->step());
    step->coprocess();
  }

  // Returns the exit status of an analysis that runs in this process.
  int close() { return coprocessor_.finalize(); }

 private:
  static std::uint32_t depth_of(const Octree& tree) { return static_cast<std::uint32_t>(tree.max_level()); }
  static penstock::Box box_of(const Grid& grid) {
    return penstock::whole({static_cast<std::uint64_t>(grid.count()), shown, shown, shown});
  }

  // What the simulation has as it is: one component of all blocks, without a copy where the stream is read in place.
  void lend_blocks(const Grid& grid, penstock::CoprocessStep& step) {
    constexpr std::int64_t bytes = sizeof(double);
    constexpr std::int64_t strides[] = {block_values * bytes, extent * extent * bytes, extent * bytes, bytes};
    for (const auto& [field, component] : {std::pair(fraction_, fraction), std::pair(mass_density_, mass1)}) {
      const double* begin = grid.count() > 0 ? grid.block(0) + component * block_cells + place(-1, -1, -1) : nullptr;
      step.lend(field, box_of(grid), begin, strides);
    }
  }

  // What is computed from it. A field that is not asked for has no bytes.
  void put_fields(const Simulation& simulation, penstock::CoprocessStep& step) {
    const Grid& grid = simulation.grid();
    const auto density = step.put_span(density_, box_of(grid)), pressures = step.put_span(pressure_, box_of(grid)),
               velocity = step.put_span(velocity_, box_of(grid));
    if (density.empty() && pressures.empty() && velocity.empty()) return;
    std::size_t at = 0;
    for (int b = 0; b < grid.count(); ++b)
      for (int z = -1; z <= cells_per_side; ++z)
        for (int y = -1; y <= cells_per_side; ++y)
          for (int x = -1; x <= cells_per_side; ++x, ++at) {
            State state;
            for (int c = 0; c < components; ++c) state[c] = grid.block(b)[c * block_cells + place(x, y, z)];
            state = simulation.mixture().primitive(state);
            if (!density.empty()) density[at] = static_cast<float>(state[mass1] + state[mass2]);
            if (!pressures.empty()) pressures[at] = static_cast<float>(state[pressure]);
            if (velocity.empty()) continue;
            for (std::size_t d = 0; d < 3; ++d) velocity[3 * at + d] = static_cast<float>(state[along_x + d]);
          }
  }

  void put_tree(const Grid& grid, penstock::CoprocessStep& step) {
    const Octree& tree = grid.tree();
    const auto count = static_cast<std::uint64_t>(grid.count());
    const auto levels = step.put_span(levels_, penstock::whole({count}));
    const auto indices = step.put_span(indices_, penstock::whole({count, 3}));
    for (std::size_t b = 0; b < levels.size(); ++b) {
      const Key& key = grid.key(static_cast<int>(b));
      levels[b] = key.level;
      for (std::size_t d = 0; d < 3; ++d) indices[3 * b + d] = key.at[d];
    }
    if (grid.rank() == 0) put_splits(tree, step);
  }

  // All of them from one rank, so that readers ask one.
  void put_splits(const Octree& tree, penstock::CoprocessStep& step) {
    const auto ranks = static_cast<std::uint64_t>(tree.ranks());
    const auto splits = step.put_span(splits_, {{0}, {ranks}});
    for (std::size_t rank = 0; rank < splits.size(); ++rank) {
      const int first = tree.first(static_cast<int>(rank));
      // morton() counts in blocks of the deepest level.
      splits[rank] =
          first < tree.size() ? morton(tree.leaves()[first]) >> 3 * (deepest_level - tree.max_level()) : UINT64_MAX;
    }
  }

  void put_values(const Simulation& simulation, penstock::WriteStep& step) {
    step.put(time_, simulation.time());
    step.put(cycle_, simulation.cycle());
    step.put(regrids_, simulation.regrids());
    step.put(moved_, simulation.moved_blocks());
  }

  penstock::Coprocessor coprocessor_;
  penstock::Field<double> fraction_, mass_density_;
  penstock::Field<float> density_, pressure_, velocity_;
  penstock::Field<std::int32_t> levels_, indices_;
  penstock::Field<std::uint64_t> splits_;
  penstock::Variable<double> time_;
  penstock::Variable<std::int64_t> cycle_, regrids_, moved_;
};

// Returns the exit status of an analysis that runs in this process.
int run(const Arguments& arguments) {
  const Problem problem = make_problem(arguments.problem, arguments.cells, arguments.seed);
  const double end = arguments.end > 0 ? arguments.end : problem.end;
  Simulation simulation(problem, arguments.levels - 1, MPI_COMM_WORLD);
  const penstock::Context context;
  Output output(context, arguments.stream, simulation);
  const double begin = MPI_Wtime();
  double writing = 0;
  for (int i = 1; i <= arguments.outputs; ++i) {
    const double until = i == arguments.outputs ? end : end * (i - 1) / (arguments.outputs - 1);
    while (simulation.time() < until) simulation.advance(until);
    simulation.fill_ghosts();
    const double computed = MPI_Wtime();
    output.write(simulation);
    writing += MPI_Wtime() - computed;
    const Totals totals = simulation.totals();
    if (simulation.grid().rank() != 0) continue;
    std::printf("time %.4f: cycle %lld, %d blocks, %lld moved, mass of the pipe %.6f\n", simulation.time(),
                static_cast<long long>(simulation.cycle()), simulation.grid().tree().size(),
                static_cast<long long>(simulation.moved_blocks()), totals.mass1);
    std::fflush(stdout);
  }
  const int status = output.close();
  const double total = MPI_Wtime() - begin;
  if (simulation.grid().rank() == 0)
    std::printf("exploding-pipe: %lld cycles, %lld regrids in %.1f s, of which writing %.2f s\n",
                static_cast<long long>(simulation.cycle()), static_cast<long long>(simulation.regrids()), total,
                writing);
  return status;
}

}  // namespace

int main(int count, char** words) {
  Arguments arguments;
  auto line = command_line(arguments);
  return simulation::run_over_mpi(line, count, words, [&] { return run(arguments); });
}
