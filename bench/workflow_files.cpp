// The workflow of workflow.hpp without streams.
//
//   mpiexec -n 2 workflow_files --role simulation --way files --settings FILE --data FOLDER [--fsync 1]
//   mpiexec -n 2 workflow_files --role simulation --way nothing|insitu --settings FILE     no output; analysed in the process
//   mpiexec -n 2 workflow_files --role analysis --settings FILE --data FOLDER      takes each file as soon as it has its name
//   common: --origin SECONDS --levels 16 --memory 1
#include <chrono>
#include <thread>

#include "step_files.hpp"
#include "workflow.hpp"

namespace penstock::bench {
namespace {

constexpr auto look_again = std::chrono::milliseconds(1);
constexpr double patience_s = 300;

FigureLine simulation(const WorkflowPlan& plan, const std::string& way, const std::string& folder, bool synced) {
  Simulation simulation(plan.settings, MPI_COMM_WORLD);
  const auto nothing = [] {};
  if (way == "files") {
    StepFiles files(plan.settings.shape, simulation.start(), simulation.count(), folder, true, synced);
    return simulate(
        plan, simulation, [&](const Simulation& state, double&) { files.write(state.step(), state.u(), state.v()); },
        nothing);
  }
  require(way == "insitu" || way == "nothing", "a way");
  MemoryPeak unused(false);  // simulate looks
  Analysis analysis(plan.levels, unused);
  auto line = simulate(
      plan, simulation,
      [&](const Simulation& state, double&) {
        if (way == "nothing") return;
        for (const auto& field : {state.u(), state.v()}) analysis.add(field.first, state.count(), field.strides);
      },
      nothing);
  line.add("analysing_s", slowest(analysis.seconds()));
  if (way == "insitu") line.add("crossings", total(analysis.crossings()));
  return line;
}

FigureLine analysis(const WorkflowPlan& plan, const std::string& folder) {
  const auto [start, count] = plan.part_of(rank_of_world(), size_of_world());
  const auto elements = static_cast<std::size_t>(count[0] * count[1] * count[2]);
  const Index strides{count[1] * count[2] * 8, count[2] * 8, 8};
  StepFiles files(plan.settings.shape, start, count, folder, true, false);
  std::vector<double> u(elements), v(elements);
  std::int64_t number = 0;
  const auto wait_for = [&](const std::string& path) {
    const double limit = now() + patience_s;
    while (!std::filesystem::exists(path)) {
      if (now() > limit) throw std::runtime_error("no file " + path);
      std::this_thread::sleep_for(look_again);
    }
  };
  const auto next = [&](Analysis& out, double& waiting, double& taking) {
    number += plan.settings.plot_every;
    if (number > plan.settings.last_output()) return false;
    const double begin = now();
    if (rank_of_world() == 0) wait_for(files.path_of(number));
    MPI_Barrier(MPI_COMM_WORLD);
    const double found = now();
    waiting += found - begin;
    files.read(number, u.data(), v.data());
    taking += now() - found;
    for (const auto* field : {&u, &v}) out.add(field->data(), count, strides);
    return true;
  };
  return analyse(plan, next, [] {});
}

void run(const Arguments& arguments) {
  const WorkflowPlan plan(arguments);
  const std::string role = arguments.text("role", "simulation"), way = arguments.text("way", "files");
  const std::string folder = arguments.text("data", ".");
  const bool synced = arguments.number("fsync", 0) != 0;
  arguments.check();
  const auto line = role == "simulation" ? simulation(plan, way, folder, synced) : analysis(plan, folder);
  if (rank_of_world() == 0) line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_mpi(argc, argv, penstock::bench::run); }
