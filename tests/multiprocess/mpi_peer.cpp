// An MPI program that writes or reads a stream, for test_mpi.py: mpi_peer writer|reader STREAM STEPS.
//
// Each rank says its process number and what it wrote or read; the array is that of write.py, split among the ranks.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "penstock/mpi.hpp"
#include "penstock/penstock.hpp"

namespace {

using namespace penstock;

constexpr std::uint64_t length = 100'000;

struct Part {
  std::uint64_t first, count;
  Part(const Cohort& cohort)
      : first(length * static_cast<std::uint64_t>(cohort.rank()) / static_cast<std::uint64_t>(cohort.size())),
        count(length * static_cast<std::uint64_t>(cohort.rank() + 1) / static_cast<std::uint64_t>(cohort.size()) -
              first) {}
};

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

void write(Context& context, const std::string& stream, const std::shared_ptr<Cohort>& cohort, std::uint64_t steps) {
  auto writer = context.create_stream(stream, cohort);
  const auto variable = writer.define<double>("T", {length});
  const Part part(*cohort);
  std::vector<double> values(part.count);
  for (std::uint64_t t = 0; t < steps; ++t) {
    auto step = writer.begin_step();
    for (std::uint64_t i = 0; i < part.count; ++i) values[i] = static_cast<double>(part.first + i + t);
    step.put(variable, {{part.first}, {part.count}}, values.data());
    step.put_attribute("time", static_cast<double>(t) / 2);
    step.end();
    say("wrote " + std::to_string(t));
  }
  writer.close();
}

void read(Context& context, const std::string& stream, const std::shared_ptr<Cohort>& cohort) {
  auto reader = context.open_stream(stream, cohort);
  const Part part(*cohort);
  std::uint64_t steps = 0;
  for (;;) {
    auto outcome = reader.try_begin_step(configured);
    if (outcome.outcome == Outcome::not_ready) throw Error(Errc::timeout, "no step in time");
    if (outcome.outcome == Outcome::writer_lost) say("lost");
    if (outcome.outcome != Outcome::ready) break;
    auto& step = *outcome.step;
    const auto values = step.read<double>("T", Selection::box({part.first}, {part.count}));
    bool whole = true;
    for (std::uint64_t i = 0; i < part.count; ++i)
      whole = whole && values[i] == static_cast<double>(part.first + i + step.number());
    say("read " + std::to_string(step.number()) + (whole ? " whole" : " TORN"));
    ++steps;
  }
  say("end " + reader.statistics().data_plane + " " + std::to_string(steps));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  MPI_Init(&argc, &argv);
  int code = 0;
  {
    const auto cohort = mpi_cohort(MPI_COMM_WORLD);
    say("rank " + std::to_string(cohort->rank()) + " " + std::to_string(::getpid()));
    Context context;
    try {
      if (argv[1] == std::string("writer")) write(context, argv[2], cohort, std::stoull(argv[3]));
      else read(context, argv[2], cohort);
    } catch (const Error& error) {
      say("error " + std::string(name_of(error.code())) + " " + error.what());
      code = 1;
    }
  }
  MPI_Finalize();
  return code;
}
