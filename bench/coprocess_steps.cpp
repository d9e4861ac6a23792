// What a coprocessor costs the simulation that has one: its start, its memory, and the cycles that nobody asks for.
//
//   coprocess_steps [--steps N] [--side N] [--engine direct]
//
// An analysis in this process asks for nothing (a trigger that is never true). Memory is the proportional set size, read
// from the kernel before and after; the staging memory of the stream is given beside it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "arguments.hpp"
#include "penstock/coprocessor.hpp"
#include "penstock/penstock.hpp"

namespace penstock::bench {
namespace {

double pss_mb() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);)
    if (line.starts_with("Pss:")) return std::stod(line.substr(4)) / 1024;
  return 0;
}

// Asks for nothing, as an analysis does.
Writer ask_for_nothing(const Context& context) {
  StreamOptions options;
  options.rendezvous_readers = 0;
  options.reserve_steps = 1;
  auto requests = context.create_stream("coprocess-steps.requests", solo(), options);
  const auto request = requests.define_value<std::string>("request");
  auto step = requests.begin_step();
  step.put(request,
           std::string(R"({"version": 1, "number": 1, "rules": [{"fields": null, "when": ["step", -1, "=="]}]})"));
  step.end();
  return requests;
}

void run(const Arguments& arguments) {
  const auto steps = arguments.number("steps", 100'000), side = arguments.number("side", 64);
  const auto engine = arguments.text("engine", "direct");
  arguments.check();
  std::string folder = (std::filesystem::temp_directory_path() / "coprocess-steps-XXXXXX").string();
  require(mkdtemp(folder.data()) != nullptr, "a folder");
  {
    ContextOptions places;
    places.directory = folder;
    places.listen = "127.0.0.1";
    const Context context(places);
    std::vector<double> array(side * side * side);
    StreamOptions options;
    options.engine = engine;
    options.rendezvous_readers = 0;
    const double before = pss_mb(), start = now();
    Coprocessor coprocessor(context, "coprocess-steps", solo(), {}, options);
    coprocessor.set_mesh("grid", {UniformMesh{.shape = {side, side, side}}});
    const auto field = coprocessor.field<double>("grid", "T");
    const double started = now() - start;
    std::int64_t cycle = 0;
    const auto publish_if_asked = [&] {
      auto step = coprocessor.request(cycle++, 0);
      if (!step) return;
      step->lend(field, whole({side, side, side}), array.data());
      step->coprocess();
    };
    publish_if_asked();  // nobody has asked for less than everything yet
    auto requests = ask_for_nothing(context);
    while (coprocessor.statistics().demand_number == 0) publish_if_asked();
    const auto published = coprocessor.statistics().steps;
    const auto moved = coprocessor.writer().statistics().bytes;
    require(published > 0 && moved > 0, "cycles published before the analysis asks");
    std::vector<double> took;
    took.reserve(steps);
    for (std::uint64_t t = 0; t < steps; ++t) {
      const double begin = now();
      publish_if_asked();
      took.push_back(1e6 * (now() - begin));
    }
    const double memory = pss_mb() - before;
    const auto counted = coprocessor.statistics();
    require(counted.steps == published, "no step of a cycle that nobody asks for");
    const auto stream = coprocessor.writer().statistics();
    require(stream.bytes == moved, "no byte of a field moved");
    requests.close(Timeout(0));
    coprocessor.finalize();
    std::ranges::sort(took);
    FigureLine line;
    line.add("start_ms", 1e3 * started);
    line.add("skipped_median_us", median(took));
    line.add("skipped_p99_us", took[took.size() * 99 / 100]);
    line.add("pss_mb", memory);
    line.add("staging_mb", static_cast<double>(stream.memory_bytes) / 1e6);
    line.add("skipped", static_cast<double>(counted.skipped_trigger));
    line.print();
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
