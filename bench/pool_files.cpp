// The same steps through HDF5 files, as codes without staging do it: each rank a process, one file a step and rank, contiguous
// datasets without compression. The pool's comparison in `penstock bench pool`.
//
//   pool_files --role writer --data FOLDER [--fsync 1] [--compute-ms 0] [--ranks 2] [--side 128] [--steps 20]
//   pool_files --role reader --data FOLDER ...      one process reads all of them back, checked
//
// Without fsync the files are in the page cache when the clock stops; with it each file and its name are synced before the rank
// goes on. compute-ms: as pool_steps has it.
#include <hdf5.h>

#include "steps.hpp"

namespace penstock::bench {
namespace {

template <class Id>
Id check(Id id, const char* call) {
  if (id < 0) throw std::runtime_error(std::string(call) + " failed");
  return id;
}

std::string path_of(const std::string& folder, int step, int rank) {
  return folder + "/step-" + std::to_string(step) + "-rank-" + std::to_string(rank) + ".h5";
}

void sync(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor >= 0 && fsync(descriptor) == 0, "fsync");
  close(descriptor);
}

void write_file(const StepPlan& plan, const std::string& path, const double* data) {
  const hid_t file = check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), "H5Fcreate");
  const hid_t creation = check(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  const hsize_t shape[3] = {plan.planes(), plan.side, plan.side};
  const hid_t space = check(H5Screate_simple(3, shape, nullptr), "H5Screate_simple");
  for (int f = 0; f < StepPlan::fields; ++f) {
    const hid_t set = check(
        H5Dcreate2(file, field_name(f), H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, creation, H5P_DEFAULT), "H5Dcreate2");
    const double* slab = data + static_cast<std::size_t>(f) * plan.slab();
    check(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, slab), "H5Dwrite");
    H5Dclose(set);
  }
  H5Sclose(space);
  H5Pclose(creation);
  check(H5Fclose(file), "H5Fclose");
}

// One rank; its stalls go back as they are, and behind them the seconds in which it computed.
void write_rank(const StepPlan& plan, const std::string& folder, int rank, bool synced, double compute_s, int socket) {
  std::vector<double> own(plan.rank_elements());
  first_values(own);
  char go = 0;
  send_all(socket, "r", 1);
  require(receive_all(socket, &go, 1), "the start");
  std::vector<double> stalls;
  double computed = 0;
  for (int step = 0; step < plan.steps; ++step) {
    if (compute_s > 0) computed += compute_for(compute_s);
    next_values(plan, own, step);
    const auto path = path_of(folder, step, rank);
    const double start = now();
    write_file(plan, path, own.data());
    if (synced) {
      sync(path);
      sync(folder);
    }
    stalls.push_back(now() - start);
  }
  stalls.push_back(computed);
  send_all(socket, stalls.data(), stalls.size() * sizeof(double));
}

void write_files(const StepPlan& plan, const std::string& folder, bool synced, double compute_s, FigureLine& line) {
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < plan.ranks; ++rank)
    ranks.push_back(
        std::make_unique<Child>([&, rank](int socket) { write_rank(plan, folder, rank, synced, compute_s, socket); }));
  char ready = 0;
  for (const auto& rank : ranks) require(receive_all(rank->socket(), &ready, 1), "a rank");
  const double start = now();
  for (const auto& rank : ranks) send_all(rank->socket(), "g", 1);
  std::vector<double> slowest(static_cast<std::size_t>(plan.steps) + 1, 0.0), mine(slowest);
  for (const auto& rank : ranks) {
    require(receive_all(rank->socket(), mine.data(), mine.size() * sizeof(double)), "a rank's figures");
    for (std::size_t i = 0; i < mine.size(); ++i) slowest[i] = std::max(slowest[i], mine[i]);
  }
  const double all = now() - start - slowest.back();
  slowest.pop_back();
  double io = 0;
  for (const double one : slowest) io += one;
  line.add("step_mb", plan.step_bytes() / 1e6);
  line.add("stall_ms", 1e3 * median(slowest));
  line.add("io_s", io);
  line.add("until_safe_s", all);
  line.add("gb_per_s", plan.step_bytes() * plan.steps / 1e9 / all);
}

void read_files(const StepPlan& plan, const std::string& folder, FigureLine& line) {
  std::vector<double> own(StepPlan::fields * plan.slab() * static_cast<std::size_t>(plan.ranks), 0.0);
  double read_s = 0;
  for (int step = 0; step < plan.steps; ++step) {
    const double start = now();
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const hid_t file = check(H5Fopen(path_of(folder, step, rank).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "H5Fopen");
      for (int f = 0; f < StepPlan::fields; ++f) {
        const hid_t set = check(H5Dopen2(file, field_name(f), H5P_DEFAULT), "H5Dopen2");
        double* out = own.data() + static_cast<std::size_t>(rank * StepPlan::fields + f) * plan.slab();
        check(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, out), "H5Dread");
        H5Dclose(set);
      }
      check(H5Fclose(file), "H5Fclose");
    }
    read_s += now() - start;
    for (int part = 0; part < plan.ranks * StepPlan::fields; ++part)
      check_slab(plan, own.data() + static_cast<std::size_t>(part) * plan.slab(), step);
  }
  line.add("read_gb_per_s", plan.step_bytes() * plan.steps / 1e9 / read_s);
  line.add("read_s", read_s);
}

void run(const Arguments& arguments) {
  const StepPlan plan(arguments);
  const std::string folder = arguments.text("data", "."), role = arguments.text("role", "writer");
  const bool synced = arguments.number("fsync", 0) != 0;
  const double compute_s = static_cast<double>(arguments.number("compute-ms", 0)) / 1e3;
  arguments.check();
  FigureLine line;
  if (role == "writer") write_files(plan, folder, synced, compute_s, line);
  else read_files(plan, folder, line);
  line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
