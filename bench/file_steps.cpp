// Steps written to files by all ranks of a simulation: the stream engine `file` beside plain parallel HDF5 (one file a step, one
// contiguous dataset that is not filled first, closed and renamed), in one program, interleaved.
//
//   mpiexec -n 2 file_steps --data FOLDER [--mib 64] [--steps 20] [--rounds 5] [--fsync 0] [--collective 0] [--compression 0]
//
// A round is all steps of one side, from the first begin until all are complete, the other side's files gone before. A line of
// figures: the seconds of each round of both sides, and the median of plain / ours of a round and the one after it.
#include <mpi.h>

#include "penstock/mpi.hpp"
#include "penstock/penstock.hpp"

// After mpi.h: its own version of it brings MPI's C++ bindings.
#include <fcntl.h>
#include <hdf5.h>

#include <filesystem>

#include "arguments.hpp"

namespace penstock::bench {
namespace {

hid_t check_id(hid_t id, const char* call) {
  if (id < 0) throw std::runtime_error(std::string(call) + " failed");
  return id;
}

void sync(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor >= 0 && fsync(descriptor) == 0, "fsync");
  close(descriptor);
}

struct Sides {
  std::string folder;
  std::uint64_t elements = 0;  // of a rank
  int steps = 0;
  bool synced = false, collective = false;
  std::uint32_t compression = 0;
  int rank = 0, ranks = 1;
  std::vector<double> data;

  void plain() const {
    const hid_t access = check_id(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");
    check_id(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL), "H5Pset_fapl_mpio");
    const hid_t transfer = check_id(H5Pcreate(H5P_DATASET_XFER), "H5Pcreate");
    check_id(H5Pset_dxpl_mpio(transfer, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT), "H5Pset_dxpl_mpio");
    const hid_t creation = check_id(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    const hsize_t mine = elements, all = elements * static_cast<hsize_t>(ranks),
                  start = mine * static_cast<hsize_t>(rank);
    const hid_t in_memory = check_id(H5Screate_simple(1, &mine, nullptr), "H5Screate_simple");
    const hid_t in_file = check_id(H5Screate_simple(1, &all, nullptr), "H5Screate_simple");
    check_id(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, &start, nullptr, &mine, nullptr), "H5Sselect_hyperslab");
    for (int t = 0; t < steps; ++t) {
      const std::string path = folder + "/plain/step-" + std::to_string(t) + ".h5", open_path = path + ".open";
      const hid_t file = check_id(H5Fcreate(open_path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), "H5Fcreate");
      const hid_t set =
          check_id(H5Dcreate2(file, "T", H5T_NATIVE_DOUBLE, in_file, H5P_DEFAULT, creation, H5P_DEFAULT), "H5Dcreate2");
      check_id(H5Dwrite(set, H5T_NATIVE_DOUBLE, in_memory, in_file, transfer, data.data()), "H5Dwrite");
      H5Dclose(set);
      check_id(H5Fclose(file), "H5Fclose");
      if (rank != 0) continue;
      if (synced) sync(open_path);
      std::filesystem::rename(open_path, path);
      if (synced) sync(folder + "/plain");
    }
    for (const hid_t list : {access, transfer, creation}) H5Pclose(list);
    for (const hid_t space : {in_memory, in_file}) H5Sclose(space);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void ours(Writer& writer) const {
    const auto mine = static_cast<std::uint64_t>(rank);
    const auto T = writer.define<double>("T", {elements * static_cast<std::uint64_t>(ranks)});
    for (int t = 0; t < steps; ++t) {
      auto step = writer.begin_step();
      step.put(T, Box{{mine * elements}, {elements}}, data.data());
      step.end();
    }
    writer.close();
  }

  // Opening a stream once is no part of a step, as MPI_Init is not.
  double round(bool is_ours, Context& context) const {
    if (rank == 0) {
      std::filesystem::remove_all(folder + "/plain");
      std::filesystem::remove_all(folder + "/ours");
      std::filesystem::create_directories(folder + "/plain");
      ::sync();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    std::optional<Writer> writer;
    if (is_ours) {
      StreamOptions options;
      options.engine = "file";
      options.folder = folder + "/ours";
      options.sync = synced;
      options.compression = compression;
      writer.emplace(context.create_stream("steps", mpi_cohort(MPI_COMM_WORLD), options));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    is_ours ? ours(*writer) : plain();
    double seconds = MPI_Wtime() - begin;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
  }
};

void run(const Arguments& arguments) {
  Sides sides;
  sides.folder = arguments.text("data", ".");
  sides.elements = arguments.number("mib", 64) << 17;
  sides.steps = static_cast<int>(arguments.number("steps", 20));
  sides.synced = arguments.number("fsync", 0) != 0;
  sides.collective = arguments.number("collective", 0) != 0;
  sides.compression = static_cast<std::uint32_t>(arguments.number("compression", 0));
  const auto rounds = arguments.number("rounds", 5);
  arguments.check();
  MPI_Comm_rank(MPI_COMM_WORLD, &sides.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &sides.ranks);
  for (std::uint64_t i = 0; i < sides.elements; ++i) sides.data.push_back(static_cast<double>(i * 2654435761u % 4096));
  ContextOptions options;
  options.directory = sides.folder + "/directory";
  Context context(options);
  std::vector<double> plain, ours, ratios;
  for (std::uint64_t r = 0; r <= rounds; ++r) {  // the first one is not counted
    const bool ours_first = r % 2 == 1;
    double seconds[2];
    for (const bool is_ours : {ours_first, !ours_first}) seconds[is_ours] = sides.round(is_ours, context);
    if (r == 0) continue;
    plain.push_back(seconds[0]);
    ours.push_back(seconds[1]);
    ratios.push_back(seconds[0] / seconds[1]);
  }
  if (sides.rank == 0) std::filesystem::remove_all(sides.folder + "/plain");
  std::ranges::sort(ratios);
  FigureLine line;
  line.add("plain_s", plain);
  line.add("ours_s", ours);
  line.add("gib_per_round",
           static_cast<double>(sides.elements * 8 * static_cast<std::uint64_t>(sides.ranks)) * sides.steps / (1 << 30));
  line.add("speed_ratio", ratios[ratios.size() / 2]);
  if (sides.rank == 0) line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = penstock::bench::run_with_arguments(argc, argv, penstock::bench::run);
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
}
