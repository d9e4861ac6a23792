// sedov: the Sedov blast (hydro.hpp), written as the mesh regions sedov and sedov-surface.
//
//   mpiexec -n 2 sedov [--elements 32] [--end 0.8] [--states 20] [--report FILE]
//
// Each state is written at an equal interval of time, from the end of the first on. Where the regions go is configured (the section
// `meshes` of penstock.yaml, PENSTOCK_MESH_SEDOV, PENSTOCK_MESH_SEDOV_SURFACE), not programmed here. --report writes, as JSON, the
// shock's radius beside Sedov's, and the seconds spent on computing and on each region: of rank 0 in all, and of the slowest rank for
// each state of the volume and for its close.
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hydro.hpp"
#include "penstock/mpi.hpp"
#include "penstock/penstock.hpp"
#include "regions.hpp"

namespace {

constexpr const char* usage = "usage: sedov [--elements N] [--end TIME] [--states N] [--report FILE]";

struct Arguments {
  int elements = 32;
  double end = 0.8;
  int states = 20;
  std::string report;
};

Arguments parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; i += 2) {
    const std::string word = words[i];
    if (i + 1 == count) throw std::invalid_argument(word + " needs a value\n" + usage);
    char* end = nullptr;
    const double number = std::strtod(words[i + 1], &end);
    const bool is_number = *end == '\0' && end != words[i + 1] && std::isfinite(number);
    if (word == "--report") arguments.report = words[i + 1];
    else if (!is_number) throw std::invalid_argument(word + " takes a number\n" + usage);
    else if (word == "--elements") arguments.elements = static_cast<int>(number);
    else if (word == "--end") arguments.end = number;
    else if (word == "--states") arguments.states = static_cast<int>(number);
    else throw std::invalid_argument("unknown option " + word + "\n" + usage);
  }
  if (arguments.elements < 2 || arguments.elements > 500 || arguments.states < 1 || !(arguments.end > 0) ||
      arguments.end > 1)
    throw std::invalid_argument(std::string("2 to 500 elements, at least 1 state, an end in (0, 1]\n") + usage);
  return arguments;
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

void run(const Arguments& arguments) {
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
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int code = 0;
  try {
    run(parse(count, words));
  } catch (const std::exception& e) {
    std::cerr << "sedov: " << e.what() << std::endl;
    code = 1;
  }
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return code;
}
