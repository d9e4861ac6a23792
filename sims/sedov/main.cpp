// sedov: the Sedov blast (hydro.hpp), written as the mesh regions sedov and sedov-surface.
//
//   mpiexec -n 2 sedov --help
//
// Each state is written at an equal interval of time, from the end of the first on. Where the regions go is configured (the section
// `meshes` of penstock.yaml, PENSTOCK_MESH_SEDOV, PENSTOCK_MESH_SEDOV_SURFACE), not programmed here. --report writes, as JSON, the
// shock's radius beside Sedov's, and the seconds spent on computing and on each region: of rank 0 in all, and of the slowest rank for
// each state of the volume and for its close.
#include <mpi.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "hydro.hpp"
#include "penstock/mpi.hpp"
#include "penstock/penstock.hpp"
#include "regions.hpp"

namespace {

struct Arguments {
  int elements = 32;
  double end = 0.8;
  int states = 20;
  std::string report;
};

simulation::CommandLine command_line(Arguments& arguments) {
  simulation::CommandLine line("sedov",
                               "The Sedov blast, written as the mesh regions sedov (its volume) and sedov-surface. The "
                               "gas has the density 1, and the\n"
                               "shock reaches the radius 1 at the time 1; lengths and times are in these units.");
  line.number("--elements", "N", arguments.elements, 2, 500, "elements along each axis");
  line.number("--end", "TIME", arguments.end, 1e-9, 1.0, "time of the last state");
  line.number("--states", "N", arguments.states, 1, 1'000'000,
              "states, at equal intervals of time from the end of the first on");
  line.text("--report", "FILE", arguments.report, "JSON: the shock's radius beside the exact one, and seconds");
  return line;
}

struct Line {
  double time, radius, exact, energy;
};

// In calls of the volume's region, on this rank.
struct VolumeSeconds {
  std::vector<double> states;
  double close = 0;
};

// Of the slowest rank each. Collective.
VolumeSeconds slowest(VolumeSeconds mine) {
  MPI_Allreduce(MPI_IN_PLACE, mine.states.data(), static_cast<int>(mine.states.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &mine.close, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return mine;
}

void report(const std::string& path, const std::vector<Line>& lines, const VolumeSeconds& volume, double compute_s,
            double volume_s, double surface_s, long steps) {
  std::ofstream out(path);
  out << "{\"steps\": " << steps << ", \"compute_s\": " << compute_s << ", \"volume_s\": " << volume_s
      << ", \"surface_s\": " << surface_s << ", \"volume_close_s\": " << volume.close << ",\n \"states\": [";
  const char* before = "\n  ";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& line = lines[i];
    out << before << "{\"time\": " << line.time << ", \"shock_radius\": " << line.radius
        << ", \"exact\": " << line.exact << ", \"total_energy\": " << line.energy
        << ", \"volume_s\": " << volume.states[i] << "}";
    before = ",\n  ";
  }
  out << "]}\n";
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

int run(const Arguments& arguments) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto cohort = penstock::mpi_cohort(MPI_COMM_WORLD);
  const penstock::Context context;
  sedov::Blast blast(arguments.elements, MPI_COMM_WORLD);
  sedov::VolumeRegion volume(blast, rank, ranks, penstock::mesh::create_region(context, "sedov", cohort));
  sedov::SurfaceRegion surface(blast, rank, ranks, penstock::mesh::create_region(context, "sedov-surface", cohort));
  double compute_s = 0, volume_s = 0, surface_s = 0;
  std::vector<Line> lines;
  VolumeSeconds seconds;
  for (int state = 1; state <= arguments.states; ++state) {
    const double begin = MPI_Wtime();
    blast.advance(arguments.end * state / arguments.states);
    lines.push_back(
        {blast.time(), blast.shock_radius(), sedov::Blast::exact_shock_radius(blast.time()), blast.total_energy()});
    const double computed = MPI_Wtime();
    volume.write(blast, lines.back().energy, lines.back().radius);
    const double written = MPI_Wtime();
    surface.write(blast);
    compute_s += computed - begin;
    volume_s += written - computed;
    seconds.states.push_back(written - computed);
    surface_s += MPI_Wtime() - written;
    if (rank == 0)
      std::printf("time %.3f: %ld steps, shock at %.4f (exact %.4f)\n", blast.time(), static_cast<long>(blast.steps()),
                  lines.back().radius, lines.back().exact);
    std::fflush(stdout);
  }
  const double begin = MPI_Wtime();
  volume.close();
  seconds.close = MPI_Wtime() - begin;
  surface.close();
  seconds = slowest(std::move(seconds));
  if (rank == 0 && !arguments.report.empty())
    report(arguments.report, lines, seconds, compute_s, volume_s, surface_s, static_cast<long>(blast.steps()));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  Arguments arguments;
  auto line = command_line(arguments);
  return simulation::run_over_mpi(line, count, words, [&] { return run(arguments); });
}
