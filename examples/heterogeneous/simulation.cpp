// gray-scott-arrays: a Gray-Scott simulation that puts V into an array space, one version for each output.
//
//   CONVERT=on_request mpiexec -n 2 gray-scott-arrays settings.yaml VERSIONS [REPORT]
//
// V is float64 in rows. Each rank puts its box straight out of its array with ghost cells. CONVERT names the place where
// elements are converted for programs that get V in another layout (penstock::ConvertAt); nothing: automatic.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "penstock/penstock.hpp"
#include "penstock/space.hpp"
#include "settings.hpp"
#include "simulation.hpp"

namespace {

using gray_scott::Simulation;

// Seconds of the slowest rank.
struct Timings {
  double simulation = 0;
  std::vector<double> puts;  // of each version, with the wait for room
};

penstock::Dims dims(const gray_scott::Index& index) {
  std::array<std::uint64_t, 3> values;
  std::copy(index.begin(), index.end(), values.begin());
  return penstock::Dims(values);
}

penstock::ArrayOptions array_options() {
  const char* place = std::getenv("CONVERT");
  return {.convert = penstock::convert_at_named(place ? place : "automatic"),
          .layouts = {{penstock::DType::float32, penstock::Order::column}},  // for in_advance: what the analyses get
          .keep = 8,
          .readers = {"pictures"}};  // the last to read a version
}

Timings run(Simulation& simulation, const gray_scott::Settings& settings, std::uint64_t versions) {
  penstock::Context context;
  penstock::Space space(context);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  // The others' puts wait for it: a launcher may give CONVERT to ranks on its own machine only.
  if (rank == 0) space.define("V", penstock::DType::float64, dims(settings.shape), array_options());
  const penstock::Box mine{dims(simulation.start()), dims(simulation.count())};
  Timings timings;
  for (std::uint64_t version = 0; version < versions; ++version) {
    const double begin = MPI_Wtime();
    for (std::int64_t i = 0; i < settings.plot_every; ++i) simulation.advance();
    const double computed = MPI_Wtime();
    const auto V = simulation.v();
    space.put("V", version, mine, V.first, {.strides = {V.strides.begin(), V.strides.end()}});
    timings.simulation += computed - begin;
    timings.puts.push_back(MPI_Wtime() - computed);
  }
  MPI_Allreduce(MPI_IN_PLACE, &timings.simulation, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, timings.puts.data(), static_cast<int>(versions), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return timings;
}

void report(const gray_scott::Settings& settings, const Timings& timings, const std::string& path) {
  const auto& [nx, ny, nz] = settings.shape;
  const double put_s = std::accumulate(timings.puts.begin(), timings.puts.end(), 0.0);
  const auto bytes = timings.puts.size() * sizeof(double) * static_cast<std::size_t>(nx * ny * nz);
  std::printf("gray-scott-arrays: %zu versions: simulation %.2f s, put %.3f s\n", timings.puts.size(),
              timings.simulation, put_s);
  if (path.empty()) return;
  const nlohmann::ordered_json values = {{"program", "gray-scott-arrays"},
                                         {"steps", timings.puts.size()},
                                         {"simulation_s", timings.simulation},
                                         {"put_s", put_s},
                                         {"bytes", bytes},
                                         {"puts_s", timings.puts}};
  std::ofstream file(path);
  file << values.dump(2) << "\n";
  if (!file.flush()) throw std::runtime_error(path + ": the report cannot be written");
}

void start(int argc, char** argv) {
  if (argc < 3 || argc > 4) throw std::runtime_error("usage: gray-scott-arrays SETTINGS VERSIONS [REPORT]");
  const auto settings = gray_scott::load_settings(argv[1]);
  const auto versions = std::strtoull(argv[2], nullptr, 10);
  Simulation simulation(settings, MPI_COMM_WORLD);
  const auto timings = run(simulation, settings, versions);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) report(settings, timings, argc == 4 ? argv[3] : "");
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0;  // MPI is called by the main thread alone
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
  try {
    start(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "gray-scott-arrays: " << error.what() << "\n";
    MPI_Abort(MPI_COMM_WORLD, 1);  // the other ranks may wait for this one's cells
  }
  MPI_Finalize();
}
