// One workflow in several ways: Gray-Scott on n MPI ranks, and an analysis of all of its outputs on m. What the programs
// workflow_stream (streams) and workflow_files (files; the analysis inside the simulation) share: the simulation's loop, the
// analysis, and what is timed.
//
//   init     from the launch (--origin, a time of the kernel's monotonic clock) to the first time step, or to the first output
//            that the analysis has
//   steady   from there to the end of the last output (analysis: of its analysis)
//   drain    from there until the program has closed what it had open
//
// The analysis counts, for many levels, how often the fields cross each level along their rows: whole numbers that do not
// depend on who has which rows, so that all ways must give the same.
#pragma once

#include <mpi.h>

#include <array>
#include <fstream>

#include "arguments.hpp"
#include "simulation.hpp"

namespace penstock::bench {

using gray_scott::FieldView;
using gray_scott::Index;
using gray_scott::Settings;
using gray_scott::Simulation;

// Of all ranks.
inline double slowest(double seconds) {
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}
inline double total(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return value;
}
inline int rank_of_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
inline int size_of_world() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

// The most that this process has taken, looked at while outputs are in hand: its proportional share of memory (PSS), all that it maps
// (RSS), and what is its own only.
class MemoryPeak {
 public:
  explicit MemoryPeak(bool wanted) : wanted_(wanted) {}
  void look() {
    if (!wanted_) return;
    std::ifstream file("/proc/self/smaps_rollup");
    double pss = 0, rss = 0, own = 0;
    for (std::string line; std::getline(file, line);) {
      const double mib = std::atof(line.c_str() + line.find(':') + 1) / 1024;
      if (line.starts_with("Pss:")) pss = mib;
      else if (line.starts_with("Rss:")) rss = mib;
      else if (line.starts_with("Private_")) own += mib;
    }
    pss_ = std::max(pss_, pss);
    rss_ = std::max(rss_, rss);
    own_ = std::max(own_, own);
  }
  void write(const std::string& prefix, FigureLine& line) const {
    if (!wanted_) return;
    line.add(prefix + "pss_mib", pss_);
    line.add(prefix + "rss_mib", rss_);
    line.add(prefix + "own_mib", own_);
  }

 private:
  bool wanted_;
  double pss_ = 0, rss_ = 0, own_ = 0;
};

class Analysis {
 public:
  Analysis(int levels, MemoryPeak& memory) : levels_(levels), memory_(memory) {}
  // Rows are contiguous; strides in bytes.
  void add(const double* first, const Index& count, const Index& strides) {
    const double start = now();
    for (std::int64_t i = 0; i < count[0]; ++i)
      for (std::int64_t j = 0; j < count[1]; ++j) {
        const auto* at = reinterpret_cast<const char*>(first) + i * strides[0] + j * strides[1];
        add_row(reinterpret_cast<const double*>(at), static_cast<std::size_t>(count[2]));
      }
    seconds_ += now() - start;
    memory_.look();
  }
  double crossings() const { return static_cast<double>(crossings_); }
  double seconds() const { return seconds_; }

 private:
  void add_row(const double* row, std::size_t length) {
    for (int level = 1; level <= levels_; ++level) {
      const double value = level / (levels_ + 1.0);
      std::uint32_t found = 0;
      for (std::size_t k = 0; k + 1 < length; ++k)
        found += static_cast<std::uint32_t>((row[k] < value) != (row[k + 1] < value));
      crossings_ += found;
    }
  }
  int levels_;
  MemoryPeak& memory_;
  std::uint64_t crossings_ = 0;
  double seconds_ = 0;
};

struct WorkflowPlan {
  Settings settings;
  int levels;
  double origin;
  bool memory;
  explicit WorkflowPlan(const Arguments& arguments)
      : settings(gray_scott::load_settings(arguments.text("settings"))),
        levels(static_cast<int>(arguments.number("levels", 16))),
        origin(arguments.real("origin", 0)),
        memory(arguments.number("memory", 0) != 0) {}
  // The part of the global arrays that one rank of the analysis has: rows stay whole, and the simulation cuts the other way.
  std::pair<Index, Index> part_of(int rank, int ranks) const {
    const auto cut = [&](int r) { return settings.shape[1] * r / ranks; };
    return {{0, cut(rank), 0}, {settings.shape[0], cut(rank + 1) - cut(rank), settings.shape[2]}};
  }
};

// output(simulation, seconds): hands one output over, and adds the seconds in which it had to wait for others. close(): what is
// left to do. Returns what is to be printed, of the slowest rank.
template <class Output, class Close>
FigureLine simulate(const WorkflowPlan& plan, Simulation& simulation, Output output, Close close) {
  FigureLine line;
  MemoryPeak memory(plan.memory);
  const double first = now();
  double computing = 0, writing = 0, waiting = 0;
  while (simulation.step() < plan.settings.last_output()) {
    const double start = now();
    do simulation.advance();
    while (simulation.step() % plan.settings.plot_every != 0);
    const double computed = now();
    output(simulation, waiting);
    computing += computed - start;
    writing += now() - computed;
    memory.look();
  }
  const double last = now();
  close();
  const double end = now();
  line.add("simulation_init_s", slowest(first - plan.origin));
  line.add("simulation_steady_s", slowest(last - first));
  line.add("simulation_drain_s", slowest(end - last));
  line.add("computing_s", slowest(computing));
  line.add("writing_s", slowest(writing));
  line.add("stall_s", slowest(waiting));
  line.add("simulation_s", slowest(end - plan.origin));
  memory.write("simulation_", line);
  return line;
}

// next(analysis, waiting, taking): has the next output analysed; false at the end. Adds the seconds for which it waited for it,
// and in which it was brought here.
template <class Next, class Close>
FigureLine analyse(const WorkflowPlan& plan, Next next, Close close) {
  FigureLine line;
  MemoryPeak memory(plan.memory);
  Analysis analysis(plan.levels, memory);
  double waiting = 0, taking = 0, first = 0, waited_first = 0;
  int outputs = 0;
  while (next(analysis, waiting, taking)) {
    if (outputs++ == 0) {
      first = now() - analysis.seconds();
      waited_first = waiting;
    }
  }
  const double last = now();
  close();
  const double end = now();
  require(outputs == plan.settings.outputs(), "the number of outputs");
  line.add("analysis_init_s", slowest(first - plan.origin));
  line.add("analysis_steady_s", slowest(last - first));
  line.add("analysis_drain_s", slowest(end - last));
  line.add("waiting_s", slowest(waiting - waited_first));
  line.add("taking_s", slowest(taking));
  line.add("analysing_s", slowest(analysis.seconds()));
  line.add("analysis_s", slowest(end - plan.origin));
  line.add("crossings", total(analysis.crossings()));
  memory.write("analysis_", line);
  return line;
}

template <class Body>
int run_with_mpi(int argc, char** argv, Body body) {
  MPI_Init(&argc, &argv);
  const int code = run_with_arguments(argc, argv, body);
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return 0;
}

}  // namespace penstock::bench
