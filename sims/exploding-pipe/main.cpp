// exploding-pipe: a closed pipe of metal bursts by the gas in it; written as a stream of blocks of an adaptive grid.
//
//   mpiexec -n 4 exploding-pipe [--problem pipe] [--cells 32] [--levels 3] [--end TIME] [--outputs 20] [--seed 1]
//                               [--stream exploding-pipe]
//
// --cells: along a side at level 0; --levels: of refinement, the coarsest included; each level more makes the cells half as wide, and is
// what sets the size of the run. --problem sod, sedov or translation: problems whose solutions are known.
//
// Each output is a step of the stream, at an equal interval of time, from the start on. Global arrays, of N blocks in Morton order
// (each rank writes the blocks that it has): volume_fraction, mass_density (float64, of the pipe's material: its share of each cell's
// volume, and its mass in a unit of volume), density, pressure (float32) of shape (N, 10, 10, 10), axes z, y, x, with one layer of
// ghost cells; velocity (float32) of shape (N, 10, 10, 10, 3); level (int32), morton (uint64) of shape (N); corner (float64) of shape
// (N, 3): the lower corner without the ghost cells. split_keys (uint64), one for each rank: the morton number of its first block.
// Values: time, cycle, regrids, moved_blocks. Attributes: cells, ghosts, spacing (the width of a cell of level 0).
#include <mpi.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "penstock/mpi.hpp"
#include "penstock/penstock.hpp"
#include "simulation.hpp"

namespace {

using namespace exploding_pipe;

constexpr const char* usage =
    "usage: exploding-pipe [--problem pipe|sod|sedov|translation] [--cells N] [--levels N] [--end TIME] [--outputs N] "
    "[--seed N] "
    "[--stream NAME]";

struct Arguments {
  std::string problem = "pipe", stream = "exploding-pipe";
  int cells = 32, levels = 3, outputs = 20;
  double end = 0;  // 0: the problem's
  std::uint64_t seed = 1;
};

template <class T>
T number(const std::string& word, const std::string& text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most))
    throw std::invalid_argument(word + " takes a number from " + std::to_string(least) + " to " + std::to_string(most) +
                                ", not '" + text + "'\n" + usage);
  return value;
}

Arguments parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; i += 2) {
    const std::string word = words[i];
    if (i + 1 == count) throw std::invalid_argument(word + " needs a value\n" + usage);
    const std::string value = words[i + 1];
    if (word == "--problem") arguments.problem = value;
    else if (word == "--stream") arguments.stream = value;
    else if (word == "--cells") arguments.cells = number(word, value, 8, 1024);
    else if (word == "--levels") arguments.levels = number(word, value, 1, 9);
    else if (word == "--outputs") arguments.outputs = number(word, value, 1, 1'000'000);
    else if (word == "--end") arguments.end = number(word, value, 1e-9, 1e9);
    else if (word == "--seed") arguments.seed = number<std::uint64_t>(word, value, 0, UINT64_MAX);
    else throw std::invalid_argument("unknown option " + word + "\n" + usage);
  }
  return arguments;
}

constexpr int shown = cells_per_side + 2;  // with one layer of ghost cells
constexpr std::size_t shown_cells = std::size_t{shown} * shown * shown;

// The stream of blocks.
class Output {
 public:
  Output(const penstock::Context& context, const std::string& stream, const Simulation& simulation)
      : writer_(context.create_stream(stream, penstock::mpi_cohort(simulation.grid().comm()))) {
    fraction_ = writer_.define<double>("volume_fraction", {0, shown, shown, shown});
    mass_density_ = writer_.define<double>("mass_density", {0, shown, shown, shown});
    density_ = writer_.define<float>("density", {0, shown, shown, shown});
    pressure_ = writer_.define<float>("pressure", {0, shown, shown, shown});
    velocity_ = writer_.define<float>("velocity", {0, shown, shown, shown, 3});
    level_ = writer_.define<std::int32_t>("level", {0});
    morton_ = writer_.define<std::uint64_t>("morton", {0});
    corner_ = writer_.define<double>("corner", {0, 3});
    split_keys_ =
        writer_.define<std::uint64_t>("split_keys", {static_cast<std::uint64_t>(simulation.grid().tree().ranks())});
    time_ = writer_.define_value<double>("time");
    cycle_ = writer_.define_value<std::int64_t>("cycle");
    regrids_ = writer_.define_value<std::int64_t>("regrids");
    moved_ = writer_.define_value<std::int64_t>("moved_blocks");
    writer_.put_attribute("cells", penstock::Attribute::of(std::int32_t{cells_per_side}));
    writer_.put_attribute("ghosts", penstock::Attribute::of(std::int32_t{1}));
    writer_.put_attribute("spacing", penstock::Attribute::of(simulation.width(0)));
  }

  // The simulation's ghost cells are filled.
  void write(const Simulation& simulation) {
    auto step = writer_.begin_step();
    put_blocks(simulation.grid(), step);
    put_fields(simulation, step);
    put_tree(simulation, step);
    step.end();
  }

  void close() { writer_.close(); }

 private:
  void set_shape(penstock::WriteStep& step, std::uint32_t variable, std::uint64_t blocks,
                 const penstock::Dims& of_block) {
    std::vector<std::uint64_t> shape{blocks};
    shape.insert(shape.end(), of_block.begin(), of_block.end());
    step.set_shape(variable, penstock::Dims(shape));
  }

  // What the simulation has as it is: one component of all blocks, without a copy where the stream is read in place.
  void put_blocks(const Grid& grid, penstock::WriteStep& step) {
    const auto total = static_cast<std::uint64_t>(grid.tree().size()), first = static_cast<std::uint64_t>(grid.first()),
               count = static_cast<std::uint64_t>(grid.count());
    constexpr std::int64_t bytes = sizeof(double);
    constexpr std::int64_t strides[] = {block_values * bytes, extent * extent * bytes, extent * bytes, bytes};
    for (const auto& [variable, component] : {std::pair(fraction_, fraction), std::pair(mass_density_, mass1)}) {
      set_shape(step, variable.id, total, {shown, shown, shown});
      const double* begin = count > 0 ? grid.block(0) + component * block_cells + place(-1, -1, -1) : nullptr;
      step.lend(variable, {{first, 0, 0, 0}, {count, shown, shown, shown}}, begin, strides);
    }
  }

  void put_fields(const Simulation& simulation, penstock::WriteStep& step) {
    const Grid& grid = simulation.grid();
    const auto total = static_cast<std::uint64_t>(grid.tree().size()), first = static_cast<std::uint64_t>(grid.first()),
               count = static_cast<std::uint64_t>(grid.count());
    set_shape(step, density_.id, total, {shown, shown, shown});
    set_shape(step, pressure_.id, total, {shown, shown, shown});
    set_shape(step, velocity_.id, total, {shown, shown, shown, 3});
    const penstock::Box box{{first, 0, 0, 0}, {count, shown, shown, shown}};
    const auto density = step.put_span(density_, box), pressures = step.put_span(pressure_, box);
    const auto velocity = step.put_span(velocity_, {{first, 0, 0, 0, 0}, {count, shown, shown, shown, 3}});
    std::size_t at = 0;
    for (int b = 0; b < grid.count(); ++b)
      for (int z = -1; z <= cells_per_side; ++z)
        for (int y = -1; y <= cells_per_side; ++y)
          for (int x = -1; x <= cells_per_side; ++x, ++at) {
            State state;
            for (int c = 0; c < components; ++c) state[c] = grid.block(b)[c * block_cells + place(x, y, z)];
            state = simulation.mixture().primitive(state);
            density[at] = static_cast<float>(state[mass1] + state[mass2]);
            pressures[at] = static_cast<float>(state[pressure]);
            for (std::size_t d = 0; d < 3; ++d) velocity[3 * at + d] = static_cast<float>(state[along_x + d]);
          }
  }

  void put_tree(const Simulation& simulation, penstock::WriteStep& step) {
    const Grid& grid = simulation.grid();
    const auto total = static_cast<std::uint64_t>(grid.tree().size()), first = static_cast<std::uint64_t>(grid.first()),
               count = static_cast<std::uint64_t>(grid.count());
    step.set_shape(level_.id, {total});
    step.set_shape(morton_.id, {total});
    step.set_shape(corner_.id, {total, 3});
    const auto level = step.put_span(level_, {{first}, {count}});
    const auto numbers = step.put_span(morton_, {{first}, {count}});
    const auto corner = step.put_span(corner_, {{first, 0}, {count, 3}});
    for (std::size_t b = 0; b < count; ++b) {
      const Key& key = grid.key(static_cast<int>(b));
      level[b] = key.level;
      numbers[b] = morton(key);
      for (std::size_t d = 0; d < 3; ++d) corner[3 * b + d] = simulation.width(key.level) * cells_per_side * key.at[d];
    }
    if (grid.rank() != 0) return;
    std::vector<std::uint64_t> splits;
    for (int rank = 0; rank < grid.tree().ranks(); ++rank)
      splits.push_back(grid.tree().first(rank) < grid.tree().size()
                           ? morton(grid.tree().leaves()[grid.tree().first(rank)])
                           : UINT64_MAX);
    step.put(split_keys_, splits.data());
    step.put(time_, simulation.time());
    step.put(cycle_, simulation.cycle());
    step.put(regrids_, simulation.regrids());
    step.put(moved_, simulation.moved_blocks());
  }

  penstock::Writer writer_;
  penstock::Variable<double> fraction_, mass_density_, corner_, time_;
  penstock::Variable<float> density_, pressure_, velocity_;
  penstock::Variable<std::int32_t> level_;
  penstock::Variable<std::uint64_t> morton_, split_keys_;
  penstock::Variable<std::int64_t> cycle_, regrids_, moved_;
};

void run(const Arguments& arguments) {
  const Problem problem = make_problem(arguments.problem, arguments.cells, arguments.seed);
  const double end = arguments.end > 0 ? arguments.end : problem.end;
  Simulation simulation(problem, arguments.levels - 1, MPI_COMM_WORLD);
  const penstock::Context context;
  Output output(context, arguments.stream, simulation);
  const double begin = MPI_Wtime();
  double writing = 0;
  for (int i = 0; i <= arguments.outputs; ++i) {
    const double until = end * i / arguments.outputs;
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
  output.close();
  const double total = MPI_Wtime() - begin;
  if (simulation.grid().rank() == 0)
    std::printf("exploding-pipe: %lld cycles, %lld regrids in %.1f s, of which writing %.2f s\n",
                static_cast<long long>(simulation.cycle()), static_cast<long long>(simulation.regrids()), total,
                writing);
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int code = 0;
  try {
    run(parse(count, words));
  } catch (const std::invalid_argument& e) {  // on every rank alike
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) std::cerr << "exploding-pipe: " << e.what() << "\n";
    code = 2;
  } catch (const std::exception& e) {
    std::cerr << "exploding-pipe: " << e.what() << "\n";
    MPI_Abort(MPI_COMM_WORLD, 1);  // the others may wait for this rank's cells
  }
  MPI_Finalize();
  return code;
}
