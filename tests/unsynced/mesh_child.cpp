// Writes an Exodus file, for tests that end it on the way.
//
//   mesh_child write FILE FORMAT STATES    prints the number of each state once it is complete
//   mesh_child shared FILE FORMAT STATES   the same, by two ranks
//   mesh_child full FILE FORMAT BYTES      the file may not grow beyond BYTES; prints the error too
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "mesh/copy.hpp"
#include "mesh/database.hpp"
#include "penstock/error.hpp"

namespace {

using namespace penstock::mesh;

void write(const std::string& path, const std::string& format, int states, std::shared_ptr<penstock::Cohort> cohort) {
  const auto part = static_cast<std::uint32_t>(cohort->rank()), parts = static_cast<std::uint32_t>(cohort->size());
  std::shared_ptr<Source> source =
      database_named("generated").open({"12x10x8|times:1000|nodal:2|element:2|global:2|sideset:xX", {}, nullptr});
  if (parts > 1) source = spread(source, assign_linear(source->model(0), parts), parts);
  DatabaseRequest request{path, {}, std::move(cohort)};
  request.options.shared = true;
  set_option(request.options, "format", format);
  set_option(request.options, "integers", "32");
  const auto sink = database_named("exodus").create(request);
  const auto& model = source->model(part);
  sink->define(model);
  const auto copy = [&](Slot slot) { sink->write(slot, read_whole(*source, part, slot).data()); };
  each_model_field(model, copy);
  for (int number = 0; number < states; ++number) {
    sink->begin_state(source->next_state(penstock::Timeout(0)).time);
    each_state_field(model, copy);
    sink->end_state();
    if (part != 0) continue;
    std::printf("%d\n", number);
    std::fflush(stdout);
  }
  sink->close();
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) return 2;
  try {
    const bool full = std::string(words[1]) == "full";
    if (full) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{static_cast<rlim_t>(std::atoll(words[4])), static_cast<rlim_t>(std::atoll(words[4]))};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    const int states = full ? 1000 : std::atoi(words[4]);
    const auto write_it = [&](const std::shared_ptr<penstock::Cohort>& cohort) {
      write(words[2], words[3], states, cohort);
    };
    if (std::string(words[1]) == "shared") penstock::run_thread_cohort(2, write_it);
    else write_it(penstock::solo());
  } catch (const penstock::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
