// The workflow of workflow.hpp through a stream.
//
//   mpiexec -n 2 workflow_stream --role simulation --settings FILE [--engine pool|direct] [--queue 4] [--stripe-bytes N]
//   mpiexec -n 2 workflow_stream --role analysis --settings FILE [--levels 16] [--plane shm|tcp|ucx]
//   common: --origin SECONDS --memory 1
//
// The analysis works on views: without a copy, but for blocks that a pool has cut into stripes. A pool keeps a step until the
// analysis has read it.
#include "penstock/mpi.hpp"
#include "penstock/penstock.hpp"
#include "plane.hpp"
#include "workflow.hpp"

namespace penstock::bench {
namespace {

const Timeout patience(300'000);
constexpr const char* stream_name = "workflow";

Dims dims(const Index& index) {
  std::array<std::uint64_t, 3> values;
  std::copy(index.begin(), index.end(), values.begin());
  return Dims(values);
}

StreamOptions options_of(const Arguments& arguments) {
  StreamOptions options;
  options.engine = arguments.text("engine", "pool");
  options.queue_steps = static_cast<std::uint32_t>(arguments.number("queue", 4));
  if (options.engine == "pool") options.retain_for = options.group = "analysis";
  options.stripe_bytes = arguments.number("stripe-bytes", options.stripe_bytes);
  options.step_timeout_ms = options.close_timeout_ms = options.open_timeout_ms = 300'000;
  options.data_plane = plane_of(arguments.text("plane"));
  return options;
}

FigureLine simulation(const WorkflowPlan& plan, StreamOptions options) {
  Simulation simulation(plan.settings, MPI_COMM_WORLD);
  Context context;
  const Box mine{dims(simulation.start()), dims(simulation.count())};
  options.step_bytes = 2 * sizeof(double) * element_count(mine.count) + 4096;
  auto writer = context.create_stream(stream_name, mpi_cohort(MPI_COMM_WORLD), options);
  const auto u = writer.define<double>("U", dims(plan.settings.shape));
  const auto v = writer.define<double>("V", dims(plan.settings.shape));
  const auto output = [&](const Simulation& state, double& waiting) {
    const double start = now();
    auto step = writer.begin_step(patience);
    waiting += now() - start;
    step.put(u.id, mine, state.u().first, state.u().strides);
    step.put(v.id, mine, state.v().first, state.v().strides);
    step.end();
  };
  return simulate(plan, simulation, output, [&] { writer.close(patience); });
}

FigureLine analysis(const WorkflowPlan& plan, const StreamOptions& options) {
  Context context;
  auto reader = context.open_stream(stream_name, mpi_cohort(MPI_COMM_WORLD), options);
  const auto [start, count] = plan.part_of(rank_of_world(), size_of_world());
  const auto mine = Selection::box(Box{dims(start), dims(count)});
  const auto next = [&](Analysis& out, double& waiting, double& taking) {
    const double begin = now();
    auto [outcome, step] = reader.try_begin_step(patience);
    if (!step && outcome == Outcome::end_of_stream) return false;
    require(step.has_value(), "a step");
    const double found = now(), analysed = out.seconds();
    waiting += found - begin;
    for (const char* name : {"U", "V"}) {
      for (const auto& view : step->view(step->variable(name).id, mine)) {
        const auto& box = view.box();
        out.add(view.as<double>().data(),
                {static_cast<std::int64_t>(box.count[0]), static_cast<std::int64_t>(box.count[1]),
                 static_cast<std::int64_t>(box.count[2])},
                {view.strides()[0], view.strides()[1], view.strides()[2]});
      }
    }
    step->end();
    taking += now() - found - (out.seconds() - analysed);
    return true;
  };
  return analyse(plan, next, [&] { reader.close(); });
}

void run(const Arguments& arguments) {
  const WorkflowPlan plan(arguments);
  const auto options = options_of(arguments);
  const std::string role = arguments.text("role", "simulation");
  arguments.check();
  const auto line = role == "simulation" ? simulation(plan, options) : analysis(plan, options);
  if (rank_of_world() == 0) line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_mpi(argc, argv, penstock::bench::run); }
