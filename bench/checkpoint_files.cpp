// Gray-Scott with its checkpoints in files, as codes without staging do it: one HDF5 file a checkpoint, written and read by
// all ranks together (parallel HDF5). The comparison for the study "restart" of `penstock bench pool`, whose other side is
// the program gray-scott itself.
//
//   mpiexec -n 2 checkpoint_files --settings FILE --data FOLDER [--restart 1] [--fsync 1] [--collective 0] [--more 20]
//
// A checkpoint counts when its file has its final name: it is written under another, closed, synced (--fsync 1: what a
// durable step of a pool is compared with) and renamed. --restart goes on from the newest one, for --more time steps.
// Files: step_files.hpp.
#include "step_files.hpp"

namespace penstock::bench {
namespace {

using gray_scott::Settings;
using gray_scott::Simulation;

// Of the slowest rank.
double slowest(double seconds) {
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

void run(const Arguments& arguments) {
  Settings settings = gray_scott::load_settings(arguments.text("settings"));
  const std::string folder = arguments.text("data", ".");
  const bool restarted = arguments.number("restart", 0) != 0, synced = arguments.number("fsync", 0) != 0;
  const bool collective = arguments.number("collective", 1) != 0;
  const auto more = static_cast<std::int64_t>(arguments.number("more", 0));
  arguments.check();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  const double begin = MPI_Wtime();
  Simulation simulation(settings, MPI_COMM_WORLD);
  StepFiles files(settings.shape, simulation.start(), simulation.count(), folder, collective, synced);
  double restart_s = 0;
  if (restarted) {
    MPI_Barrier(MPI_COMM_WORLD);  // as in gray-scott: the clock is not to count whom the others waited for
    const double reading = MPI_Wtime();
    std::int64_t step = rank == 0 ? files.newest() : 0;
    MPI_Bcast(&step, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    files.read(step, simulation.restart(step));
    settings.steps = step + more;
    restart_s = slowest(MPI_Wtime() - reading);
  }
  const double start_s = slowest(MPI_Wtime() - begin), first = MPI_Wtime();
  double simulation_s = 0;
  std::vector<double> outputs;
  while (simulation.step() < settings.last_output()) {
    const double computing = MPI_Wtime();
    do simulation.advance();
    while (simulation.step() % settings.plot_every != 0);
    const double output = MPI_Wtime();
    simulation_s += output - computing;
    files.write(simulation.step(), simulation.u(), simulation.v());
    outputs.push_back(slowest(MPI_Wtime() - output));
  }
  FigureLine line;
  line.add("start_s", start_s);
  line.add("restart_s", restart_s);
  line.add("simulation_s", slowest(simulation_s));
  line.add("total_s", slowest(MPI_Wtime() - first));
  line.add("outputs_s", outputs);
  if (rank == 0) line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = penstock::bench::run_with_arguments(argc, argv, penstock::bench::run);
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
}
