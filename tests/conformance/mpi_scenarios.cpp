// Cohorts of MPI ranks: one program as writer under one mpiexec and as reader under another, with other rank counts.
//
//   mpi_scenarios write|read shm|tcp|ucx DIRECTORY
//
// Both sides go through the same streams in the same order. A failure ends every rank. mpi_scenarios_c.c does the same
// in C; either may read what the other writes.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "penstock/mpi.hpp"
#include "penstock/penstock.hpp"

namespace {

using namespace penstock;

constexpr std::uint64_t rows = 12, columns = 5, steps = 6;

void check(bool condition, const char* what) {
  if (!condition) throw Error(Errc::internal, std::string("not so: ") + what);
}
#define CHECK(condition) check(condition, #condition)

struct Side {
  Context context;
  StreamOptions options;
  std::string plane;
  std::shared_ptr<Cohort> cohort() const { return mpi_cohort(MPI_COMM_WORLD); }
};

double element(std::uint64_t i, std::uint64_t j, std::uint64_t t) {
  return static_cast<double>(i * columns + j + 1000 * t);
}

// Rank r of n has rows cut(r) .. cut(r + 1), other ones each step; one of them may have none.
std::uint64_t cut(int rank, int size, std::uint64_t t) {
  if (rank == 0 || rank == size) return rank == 0 ? 0 : rows;
  return (rows * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(size) + t) % rows;
}

// Values, attributes and a decomposition that changes; one step is given up by one rank.
void write_all(Side& side) {
  const auto cohort = side.cohort();
  auto writer = side.context.create_stream("all", cohort, side.options);
  const bool in_pool = std::getenv("PENSTOCK_SCENARIOS_ENGINE") != nullptr;  // run_in_engine.py
  CHECK(writer.address().empty() == (in_pool || cohort->rank() != 0));
  const int rank = cohort->rank(), size = cohort->size();
  const auto field = writer.define<double>("field", {rows, columns});
  const auto time = writer.define_value<double>("time");
  const auto load = writer.define_value<std::int32_t>("load", Kind::local_value);
  if (rank == 0) writer.put_attribute("program", Attribute::of("heat"));
  for (std::uint64_t t = 0; t < steps; ++t) {
    auto step = writer.begin_step();
    std::vector<std::uint64_t> cuts;
    for (int r = 0; r <= size; ++r) cuts.push_back(cut(r, size, t));
    std::sort(cuts.begin(), cuts.end());
    const auto low = cuts[static_cast<std::size_t>(rank)], high = cuts[static_cast<std::size_t>(rank) + 1];
    std::vector<double> part;
    for (auto i = low; i < high; ++i)
      for (std::uint64_t j = 0; j < columns; ++j) part.push_back(element(i, j, t));
    step.put(field, {{low, 0}, {high - low, columns}}, part.data());
    if (rank == 0) step.put(time, 0.5 * static_cast<double>(t));
    step.put(load, static_cast<std::int32_t>(10 * rank) + static_cast<std::int32_t>(t));
    if (rank == 0) step.put_attribute("step", static_cast<std::int64_t>(t));
    if (t == 2 && rank == size - 1) step.abandon();
    else step.end();
  }
  writer.close();
}

void read_all(Side& side) {
  const auto cohort = side.cohort();
  auto reader = side.context.open_stream("all", cohort, side.options);
  const auto rank = static_cast<std::uint64_t>(cohort->rank()), size = static_cast<std::uint64_t>(cohort->size());
  const auto low = columns * rank / size, high = columns * (rank + 1) / size;
  for (std::uint64_t t = 0; t < steps; ++t) {
    if (t == 2) continue;  // one rank gave it up
    auto step = reader.begin_step();
    CHECK(step.number() == t);
    const auto part = step.read<double>("field", Selection::box({0, low}, {rows, high - low}));
    std::size_t at = 0;
    for (std::uint64_t i = 0; i < rows; ++i)
      for (auto j = low; j < high; ++j) CHECK(part[at++] == element(i, j, t));
    CHECK(step.read_value<double>("time") == 0.5 * static_cast<double>(t));
    const auto load = step.read<std::int32_t>("load");
    for (std::size_t r = 0; r < load.size(); ++r) CHECK(load[r] == static_cast<std::int32_t>(10 * r + t));
    CHECK(step.attribute("program")->as<std::string>() == "heat");
    CHECK(step.attribute("step")->as<std::int64_t>() == static_cast<std::int64_t>(t));
  }
  CHECK(reader.try_begin_step(Timeout(20'000)).outcome == Outcome::end_of_stream);
  CHECK(reader.statistics().data_plane == side.plane);
}

// The readers leave after three steps; the writers go on through a queue of one.
void write_left(Side& side) {
  auto options = side.options;
  options.queue_steps = 1;
  auto writer = side.context.create_stream("left", side.cohort(), options);
  const auto v = writer.define_value<std::int64_t>("t");
  for (std::int64_t t = 0; t < 20; ++t) {
    auto step = writer.begin_step();
    step.put(v, t);
    step.end();
  }
  writer.close();
}

void read_left(Side& side) {
  auto reader = side.context.open_stream("left", side.cohort(), side.options);
  for (std::int64_t t = 0; t < 3; ++t) CHECK(reader.begin_step().read_value<std::int64_t>("t") == t);
  reader.close();
}

void run(const std::string& role, const std::string& plane, const std::string& directory) {
  ContextOptions context_options;
  context_options.directory = directory;
  context_options.listen = "127.0.0.1";
  Side side{Context(context_options), {}, plane};
  side.options.data_plane = plane == "shm" ? DataPlane::shm : plane == "ucx" ? DataPlane::ucx : DataPlane::tcp;
  side.options.open_timeout_ms = side.options.step_timeout_ms = side.options.close_timeout_ms = 40'000;
  if (role == "write") {
    write_all(side);
    write_left(side);
  } else {
    read_all(side);
    read_left(side);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  alarm(100);
  try {
    if (argc != 4) throw Error(Errc::invalid_argument, "usage: mpi_scenarios write|read shm|tcp|ucx DIRECTORY");
    run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", argc > 1 ? argv[1] : "mpi_scenarios", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
