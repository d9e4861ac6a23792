// Several ranks write one global array, each its rows of it: mpiexec -n 2 mpi_writer
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <penstock/mpi.hpp>
#include <penstock/penstock.hpp>
#include <vector>

constexpr std::uint64_t rows = 100, columns = 50;

void write_stream() {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const std::uint64_t first = rows * rank / size, last = rows * (rank + 1) / size;
  std::vector<double> part((last - first) * columns);

  penstock::Context context;
  auto writer = context.create_stream("rows", penstock::mpi_cohort(MPI_COMM_WORLD));
  auto T = writer.define<double>("T", {rows, columns});
  for (int number = 0; number < 10; ++number) {
    part.assign(part.size(), rank + 10.0 * number);
    auto step = writer.begin_step();
    step.put(T, {.start = {first, 0}, .count = {last - first, columns}}, part.data());
    step.end();
  }
  writer.close();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    write_stream();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "writer: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
