// gray-scott: a Gray-Scott simulation that writes U and V as steps of a stream.
//
//   mpiexec -n 2 gray-scott --help
//
// Each step holds the global arrays U and V (float64, row-major) on the mesh `grid`, and the values sim_step (time steps done)
// and time; attributes: F, k, Du, Dv, dt, and those of a channel (penstock/coprocessor.hpp). Where the steps live, whether the
// simulation waits for its readers, and what analyses it in its process is configured (penstock.yaml,
// PENSTOCK_STREAM_GRAY_SCOTT, PENSTOCK_COPROCESSING_GRAY_SCOTT), not programmed here. An analysis may ask for some of the steps
// and fields, and set F and k while the simulation runs.
//
// A step of both fields is all of the simulation's state, and so a checkpoint: --restart goes on from the newest one of a
// stream that is kept (engine pool), whatever the number of ranks that wrote it.
//
// --analysis: rank 0 runs a Python program inside its process (with what follows on the command line), which reads the stream
// in situ where the stream's engine is insitu.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "penstock/mpi.hpp"
#include "penstock/penstock.hpp"
#ifdef GRAY_SCOTT_ANALYSIS
#include "penstock/python_program.hpp"
#endif
#include "settings.hpp"
#include "simulation.hpp"

namespace {

using gray_scott::Settings;
using gray_scott::Simulation;
using simulation::UsageError;

struct Arguments {
  std::string settings;
  std::vector<std::string> overrides;
  std::int64_t outputs = 0;  // how many; 0: as the settings say
  std::string restart;       // "": from the beginning
  std::string report;
  std::int64_t die_in = 0;            // of this run's outputs, from 1; 0: none
  std::vector<std::string> analysis;  // the Python program and its arguments; empty: none
};

simulation::CommandLine command_line(Arguments& arguments) {
  simulation::CommandLine line("gray-scott",
                               "A Gray-Scott simulation that writes U and V as steps of a stream.\n"
                               "Settings and their defaults:\n" +
                                   gray_scott::keys_and_defaults());
  line.operand("SETTINGS", arguments.settings, "a YAML file with settings, a line \"key: value\" for each");
  line.option("--set", "KEY=VALUE", "one more setting; may be given several times",
              [&](const std::string& text) { arguments.overrides.push_back(text); });
  line.number<std::int64_t>("--outputs", "N", arguments.outputs, 1, 1'000'000'000,
                            "outputs, which replaces the setting steps; default: as the settings say");
  line.text("--restart", "STREAM", arguments.restart,
            "goes on from the newest step of a stream that is kept (engine pool)");
  line.text("--report", "FILE", arguments.report, "JSON: seconds and bytes");
  line.number<std::int64_t>("--die-in", "N", arguments.die_in, 1, 1'000'000'000,
                            "for tests: the last rank kills itself within output N of this run; default: never");
  line.rest("--analysis", "SCRIPT [ARGUMENT]...", arguments.analysis,
            "the last option: a Python program that rank 0 runs in its process");
  return line;
}

// Seconds of this rank, by what they were spent on.
struct Timings {
  double start = 0;             // until the first time step, a restart included
  double restart = 0;           // of which for opening the stream and reading the state
  double simulation = 0;        // computing, halo exchange included
  double halo = 0;              // of which waiting for neighbours
  double put = 0;               // copying blocks into the stream and ending steps
  double wait = 0;              // in request, for room or for the first reader
  double close = 0;             // for readers to finish what was written
  double total = 0;             // from the first time step on
  std::vector<double> outputs;  // of put and wait, each output
};

class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum), begin_(MPI_Wtime()) {}
  ~Stopwatch() { sum_ += MPI_Wtime() - begin_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  double begin_;
};

penstock::Dims dims(const gray_scott::Index& index) {
  std::array<std::uint64_t, 3> values;
  std::copy(index.begin(), index.end(), values.begin());
  return penstock::Dims(values);
}

penstock::Box box_of(const Simulation& simulation) { return {dims(simulation.start()), dims(simulation.count())}; }

// Collective. Fills the simulation with the newest state of a stream: each rank reads its part of U and V.
void restart(penstock::Context& context, const std::string& name, const Settings& settings, Simulation& simulation) {
  const auto refuse = [&](const std::string& why) { throw UsageError("--restart " + name + ": " + why); };
  // A new writer replaces what a stream holds: were it killed before its first output, there would be nothing left.
  int replaced = name == settings.stream && context.options_for(name).resume == "no";
  MPI_Allreduce(MPI_IN_PLACE, &replaced, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);  // nodes may be configured differently
  if (replaced) refuse("this run would replace it; name another with --set stream=NAME, or configure resume: append");
  auto reader = context.open_stream(name, penstock::mpi_cohort(MPI_COMM_WORLD), {.start = "newest"});
  auto [outcome, step] = reader.try_begin_step(penstock::configured);
  if (!step) refuse("the stream holds no step to go on from");
  const auto& u = step->variable("U");
  if (u.shape != dims(settings.shape)) refuse("its fields have another shape than the settings say");
  const auto state = simulation.restart(step->read_value<std::int64_t>("sim_step"));
  const auto mine = penstock::Selection::box(box_of(simulation));
  step->get(u.id, mine, state.u, penstock::Order::row, state.strides);
  step->get(step->variable("V").id, mine, state.v, penstock::Order::row, state.strides);
  step->end();
  reader.close();
}

// The Python program that rank 0 runs beside the simulation, if there is one.
class Analysis {
 public:
#ifdef GRAY_SCOTT_ANALYSIS
  Analysis(const std::vector<std::string>& program, int rank) {
    if (rank == 0 && !program.empty()) program_.emplace(program);
  }
  // After the stream has been closed.
  int wait() { return program_ ? program_->wait() : 0; }

 private:
  std::optional<penstock::PythonProgram> program_;
#else
  Analysis(const std::vector<std::string>& program, int) {
    if (!program.empty()) throw UsageError("--analysis: this gray-scott was built without Python");
  }
  int wait() { return 0; }
#endif
};

// What the simulation shows of itself, and what analyses may set: a channel of two fields and two parameters.
class Output {
 public:
  Output(penstock::Context& context, const Settings& settings, const Simulation& simulation, int rank)
      : rank_(rank),
        box_(box_of(simulation)),
        coprocessor_(context, settings.stream, penstock::mpi_cohort(MPI_COMM_WORLD), {}, stream_options()) {
    coprocessor_.set_mesh("grid", {penstock::UniformMesh{.shape = dims(settings.shape), .axes = "xyz"}});
    u_ = coprocessor_.field<double>("grid", "U");
    v_ = coprocessor_.field<double>("grid", "V");
    sim_step_ = coprocessor_.writer().define_value<std::int64_t>("sim_step");
    time_ = coprocessor_.writer().define_value<double>("time");
    coprocessor_.declare("F", settings.F, 0.0, 1.0);
    coprocessor_.declare("k", settings.k, 0.0, 1.0);
    const std::pair<const char*, double> parameters[] = {{"Du", settings.Du}, {"Dv", settings.Dv}, {"dt", settings.dt}};
    for (const auto& [name, value] : parameters) put_attribute(name, value);
    put_attribute("F", settings.F);
    put_attribute("k", settings.k);
  }

  // Publishes a cycle if it is asked for, and gives the simulation what an analysis has set. dies: when half of the step is put,
  // for tests of restarts.
  void write(Simulation& simulation, Timings& timings, bool dies) {
    Stopwatch all(timings.outputs.emplace_back());
    auto step = [&] {
      Stopwatch watch(timings.wait);
      return coprocessor_.request(simulation.step(), simulation.time());
    }();
    steer(simulation);
    if (!step) return;
    Stopwatch watch(timings.put);
    // Straight out of the ghosted array: one strided copy, or none where the stream is read in place.
    step->lend(u_, box_, simulation.u().first, simulation.u().strides);
    if (dies) std::raise(SIGKILL);
    step->lend(v_, box_, simulation.v().first, simulation.v().strides);
    if (rank_ == 0) {
      step->step().put(sim_step_, simulation.step());
      step->step().put(time_, simulation.time());
    }
    step->coprocess();
  }

  // Returns the exit status of an analysis that the coprocessor runs in this process.
  int close() { return coprocessor_.finalize(); }
  penstock::StreamStatistics statistics() { return coprocessor_.writer().statistics(); }

 private:
  penstock::StreamOptions stream_options() const {
    // U and V of one rank, and room for what describes them: lets the stream reserve its memory when it opens.
    return {.step_bytes = 2 * sizeof(double) * penstock::element_count(box_.count) + 8192};
  }
  void put_attribute(const char* name, double value) {
    coprocessor_.writer().put_attribute(name, penstock::Attribute::of(value));
  }
  void steer(Simulation& simulation) {
    const double F = coprocessor_.value<double>("F"), k = coprocessor_.value<double>("k");
    if (!simulation.set_rates(F, k)) return;
    put_attribute("F", F);
    put_attribute("k", k);
  }

  int rank_;
  penstock::Box box_;
  penstock::Coprocessor coprocessor_;
  penstock::Field<double> u_, v_;
  penstock::Variable<std::int64_t> sim_step_;
  penstock::Variable<double> time_;
};

// Collective. Times are those of the slowest rank, bytes and copies are summed over the ranks. first: the time steps that
// were done when this run began.
nlohmann::ordered_json make_report(const Settings& settings, std::int64_t first, Timings& timings,
                                   const penstock::StreamStatistics& statistics, int ranks) {
  std::array<double, 9> seconds{timings.simulation, timings.halo,      timings.put,   timings.wait,   timings.close,
                                timings.total,      statistics.copy_s, timings.start, timings.restart};
  std::array<std::uint64_t, 4> sums{statistics.bytes, statistics.bytes_copied, statistics.copies,
                                    statistics.memory_bytes};
  MPI_Allreduce(MPI_IN_PLACE, seconds.data(), seconds.size(), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, sums.data(), sums.size(), MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  auto& outputs = timings.outputs;
  MPI_Allreduce(MPI_IN_PLACE, outputs.data(), static_cast<int>(outputs.size()), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  const auto cells = static_cast<double>(settings.shape[0] * settings.shape[1] * settings.shape[2]);
  const auto steps = static_cast<double>(settings.steps - first);
  return {{"program", "gray-scott"},
          {"stream", settings.stream},
          {"ranks", ranks},
          {"shape", settings.shape},
          {"sim_steps", settings.steps},
          {"first_sim_step", first},
          {"steps_written", statistics.steps},
          {"steps_dropped", statistics.steps_dropped},
          {"start_s", seconds[7]},
          {"restart_s", seconds[8]},
          {"simulation_s", seconds[0]},
          {"halo_s", seconds[1]},
          {"put_s", seconds[2]},
          {"wait_s", seconds[3]},
          {"steady_s", seconds[5] - seconds[4]},
          {"close_s", seconds[4]},
          {"total_s", seconds[5]},
          {"outputs_s", outputs},
          {"copy_s", seconds[6]},
          {"bytes", sums[0]},
          {"bytes_copied", sums[1]},
          {"copies", sums[2]},
          {"memory_bytes", sums[3]},
          {"cell_updates_per_s", seconds[0] > 0 ? cells * steps / seconds[0] : 0.0}};
}

void save(const nlohmann::ordered_json& report, const std::string& path) {
  std::ofstream file(path);
  file << report.dump(2) << "\n";
  if (!file.flush()) throw std::runtime_error(path + ": the report cannot be written");
}

// Collective. Rank 0 reads the file, which other nodes may not have.
std::string shared_text(const std::string& path, int rank) {
  std::optional<std::string> text;
  int bytes = -1;
  if (rank == 0 && (text = gray_scott::read_text(path))) bytes = static_cast<int>(text->size());
  MPI_Bcast(&bytes, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (bytes < 0) throw UsageError(path + ": cannot be read");
  std::string all = text.value_or(std::string(static_cast<std::size_t>(bytes), ' '));
  MPI_Bcast(all.data(), bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
  return all;
}

// Collective; the same on all ranks.
Settings settings_of(const Arguments& arguments, int rank) {
  auto settings =
      gray_scott::parse_settings(shared_text(arguments.settings, rank), arguments.settings, arguments.overrides);
  if (arguments.outputs > 0) settings.steps = arguments.outputs * settings.plot_every;
  return settings;
}

// Returns the analysis's exit status, on rank 0.
int run(const Arguments& arguments) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Settings settings = settings_of(arguments, rank);
  Timings timings;
  nlohmann::ordered_json report;
  std::int64_t first = 0;
  int analysed = 0;
  {
    Analysis analysis(arguments.analysis, rank);
    const double begin = MPI_Wtime();
    Simulation simulation(settings, MPI_COMM_WORLD);
    penstock::Context context;
    if (!arguments.restart.empty()) {
      MPI_Barrier(MPI_COMM_WORLD);  // the clock is not to count whom the others waited for
      Stopwatch watch(timings.restart);
      restart(context, arguments.restart, settings, simulation);
      first = simulation.step();
    }
    Output output(context, settings, simulation, rank);
    timings.start = MPI_Wtime() - begin;
    {
      Stopwatch total(timings.total);
      for (std::int64_t i = 1; simulation.step() < settings.last_output(); ++i) {
        {
          Stopwatch watch(timings.simulation);
          do simulation.advance();
          while (simulation.step() % settings.plot_every != 0);
        }
        output.write(simulation, timings, i == arguments.die_in && rank == ranks - 1);
      }
      Stopwatch closing(timings.close);
      analysed = output.close();
    }
    if (const int status = analysis.wait(); status != 0) analysed = status;
    timings.halo = simulation.halo_s();
    report = make_report(settings, first, timings, output.statistics(), ranks);
  }
  if (rank != 0) return 0;
  if (!arguments.report.empty()) save(report, arguments.report);
  std::printf(
      "gray-scott: %lld time steps on %d rank%s, %llu steps written: simulation %.2f s, put %.2f s, wait %.2f s\n",
      static_cast<long long>(settings.last_output() - first), ranks, ranks == 1 ? "" : "s",
      report["steps_written"].get<unsigned long long>(), report["simulation_s"].get<double>(),
      report["put_s"].get<double>(), report["wait_s"].get<double>());
  if (analysed != 0) std::cerr << "gray-scott: the analysis ended with status " << analysed << "\n";
  return analysed;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  auto line = command_line(arguments);
  return simulation::run_over_mpi(line, argc, argv, [&] { return run(arguments); });
}
