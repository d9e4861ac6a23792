// Gray-Scott with its checkpoints in files, as codes without staging do it: one HDF5 file a checkpoint, written and read by
// all ranks together (parallel HDF5). The comparison for the study "restart" of `penstock bench pool`, whose other side is
// the program gray-scott itself.
//
//   mpiexec -n 2 checkpoint_files --settings FILE --data FOLDER [--restart 1] [--fsync 1] [--collective 0] [--more 20]
//
// A checkpoint counts when its file has its final name: it is written under another, closed, synced (--fsync 1: what a
// durable step of a pool is compared with) and renamed. --restart goes on from the newest one, for --more time steps.
// Datasets are contiguous and not filled first; each rank packs its part without ghost cells, into memory it keeps.
#include <mpi.h>

// After mpi.h: its own version of it brings MPI's C++ bindings.
#include <hdf5.h>

#include <filesystem>

#include "arguments.hpp"
#include "simulation.hpp"

namespace penstock::bench {
namespace {

namespace fs = std::filesystem;
using gray_scott::Index;
using gray_scott::Settings;
using gray_scott::Simulation;

template <class Id>
Id check(Id id, const char* call) {
  if (id < 0) throw std::runtime_error(std::string(call) + " failed");
  return id;
}

constexpr const char* prefix = "checkpoint-";

std::string path_of(const std::string& folder, std::int64_t step) {
  return folder + "/" + prefix + std::to_string(step) + ".h5";
}

// The time step of the newest checkpoint in the folder.
std::int64_t newest(const std::string& folder) {
  std::int64_t step = -1;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".h5"))
      step = std::max<std::int64_t>(step, std::stoll(name.substr(11)));
  }
  require(step >= 0, "a checkpoint");
  return step;
}

class Files {
 public:
  Files(const Simulation& simulation, const Settings& settings, std::string folder, bool collective, bool synced)
      : simulation_(simulation), folder_(std::move(folder)), synced_(synced) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    for (std::size_t d = 0; d < 3; ++d) {
      shape_[d] = static_cast<hsize_t>(settings.shape[d]);
      start_[d] = static_cast<hsize_t>(simulation.start()[d]);
      count_[d] = static_cast<hsize_t>(simulation.count()[d]);
    }
    packed_.assign(count_[0] * count_[1] * count_[2], 0.0);
    access_ = check(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");
    check(H5Pset_fapl_mpio(access_, MPI_COMM_WORLD, MPI_INFO_NULL), "H5Pset_fapl_mpio");
    transfer_ = check(H5Pcreate(H5P_DATASET_XFER), "H5Pcreate");
    check(H5Pset_dxpl_mpio(transfer_, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT), "H5Pset_dxpl_mpio");
    creation_ = check(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
    H5Pset_fill_time(creation_, H5D_FILL_TIME_NEVER);
    in_memory_ = check(H5Screate_simple(3, count_, nullptr), "H5Screate_simple");
    in_file_ = check(H5Screate_simple(3, shape_, nullptr), "H5Screate_simple");
    check(H5Sselect_hyperslab(in_file_, H5S_SELECT_SET, start_, nullptr, count_, nullptr), "H5Sselect_hyperslab");
  }
  ~Files() {
    H5Sclose(in_file_);
    H5Sclose(in_memory_);
    for (const hid_t list : {access_, transfer_, creation_}) H5Pclose(list);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  void write() {
    const std::string path = path_of(folder_, simulation_.step()), open_path = path + ".open";
    const hid_t file = check(H5Fcreate(open_path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access_), "H5Fcreate");
    const gray_scott::FieldView fields[] = {simulation_.u(), simulation_.v()};
    const char* names[] = {"U", "V"};
    for (int f = 0; f < 2; ++f) {
      each_row(fields[f].strides, [&](std::int64_t from, std::size_t to, std::size_t length) {
        const auto* row = reinterpret_cast<const double*>(reinterpret_cast<const char*>(fields[f].first) + from);
        std::copy_n(row, length, packed_.data() + to);
      });
      const hid_t set = check(
          H5Dcreate2(file, names[f], H5T_NATIVE_DOUBLE, in_file_, H5P_DEFAULT, creation_, H5P_DEFAULT), "H5Dcreate2");
      check(H5Dwrite(set, H5T_NATIVE_DOUBLE, in_memory_, in_file_, transfer_, packed_.data()), "H5Dwrite");
      H5Dclose(set);
    }
    check(H5Fclose(file), "H5Fclose");  // collective: everything is in the file system's hands
    if (rank_ != 0) return;
    if (synced_) sync(open_path);
    fs::rename(open_path, path);
    if (synced_) sync(folder_);
  }

  void read(std::int64_t step, const gray_scott::StateView& state) {
    const hid_t file = check(H5Fopen(path_of(folder_, step).c_str(), H5F_ACC_RDONLY, access_), "H5Fopen");
    double* fields[] = {state.u, state.v};
    const char* names[] = {"U", "V"};
    for (int f = 0; f < 2; ++f) {
      const hid_t set = check(H5Dopen2(file, names[f], H5P_DEFAULT), "H5Dopen2");
      check(H5Dread(set, H5T_NATIVE_DOUBLE, in_memory_, in_file_, transfer_, packed_.data()), "H5Dread");
      H5Dclose(set);
      each_row(state.strides, [&](std::int64_t to, std::size_t from, std::size_t length) {
        auto* row = reinterpret_cast<double*>(reinterpret_cast<char*>(fields[f]) + to);
        std::copy_n(packed_.data() + from, length, row);
      });
    }
    check(H5Fclose(file), "H5Fclose");
  }

 private:
  // body(bytes into the ghosted array, elements into the packed one, elements) for each row of this rank's part.
  template <class Body>
  void each_row(const Index& strides, Body body) const {
    for (std::size_t i = 0; i < count_[0]; ++i)
      for (std::size_t j = 0; j < count_[1]; ++j)
        body(static_cast<std::int64_t>(i) * strides[0] + static_cast<std::int64_t>(j) * strides[1],
             (i * count_[1] + j) * count_[2], count_[2]);
  }
  static void sync(const std::string& path) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(descriptor >= 0 && fsync(descriptor) == 0, "fsync");
    close(descriptor);
  }

  const Simulation& simulation_;
  std::string folder_;
  bool synced_;
  int rank_ = 0;
  hsize_t shape_[3], start_[3], count_[3];
  std::vector<double> packed_;
  hid_t access_ = -1, transfer_ = -1, creation_ = -1, in_memory_ = -1, in_file_ = -1;
};

// Of the slowest rank.
double slowest(double seconds) {
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

void run(const Arguments& arguments) {
  Settings settings = gray_scott::load_settings(arguments.text("settings"));
  const std::string folder = arguments.text("data", ".");
  const bool restarted = arguments.number("restart", 0) != 0, synced = arguments.number("fsync", 0) != 0;
  const bool collective = arguments.number("collective", 1) != 0;
  const auto more = static_cast<std::int64_t>(arguments.number("more", 0));
  arguments.check();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  const double begin = MPI_Wtime();
  Simulation simulation(settings, MPI_COMM_WORLD);
  Files files(simulation, settings, folder, collective, synced);
  double restart_s = 0;
  if (restarted) {
    MPI_Barrier(MPI_COMM_WORLD);  // as in gray-scott: the clock is not to count whom the others waited for
    const double reading = MPI_Wtime();
    std::int64_t step = rank == 0 ? newest(folder) : 0;
    MPI_Bcast(&step, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    files.read(step, simulation.restart(step));
    settings.steps = step + more;
    restart_s = slowest(MPI_Wtime() - reading);
  }
  const double start_s = slowest(MPI_Wtime() - begin), first = MPI_Wtime();
  std::vector<double> outputs;
  while (simulation.step() < settings.last_output()) {
    do simulation.advance();
    while (simulation.step() % settings.plot_every != 0);
    const double output = MPI_Wtime();
    files.write();
    outputs.push_back(slowest(MPI_Wtime() - output));
  }
  FigureLine line;
  line.add("start_s", start_s);
  line.add("restart_s", restart_s);
  line.add("total_s", slowest(MPI_Wtime() - first));
  line.add("outputs_s", outputs);
  if (rank == 0) line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = penstock::bench::run_with_arguments(argc, argv, penstock::bench::run);
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
}
