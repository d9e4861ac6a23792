// Steps through HDF5 files, as codes without a streaming library do it: one file a step in --data-directory (a memory
// file system or a disk), contiguous datasets without compression, no fsync. The reader is told of each file, and the
// writer of each file read and removed, by a shared word: quicker than any polling of a directory, so the figures flatter
// files. At most --queue files wait.
#include <hdf5.h>

#include "common.hpp"

namespace penstock::bench {
namespace {

template <class Id>
Id check(Id id, const char* call) {
  if (id < 0) throw std::runtime_error(std::string(call) + " failed");
  return id;
}

class Files {
 public:
  explicit Files(const Options& options)
      : options_(options),
        page_(options.directory),
        figures_(options),
        many_(options.workload == "W3"),
        access_(check(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate")),
        creation_(check(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate")) {
    H5Pset_fill_time(creation_, H5D_FILL_TIME_NEVER);
  }
  ~Files() {
    H5Pclose(creation_);
    H5Pclose(access_);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  void run() {
    if (options_.workload != "W1" && !many_) unknown_case(options_);
    options_.role == "writer" ? write() : read();
    figures_.print();
  }

 private:
  std::string path(int step) const { return options_.data_directory + "/step-" + std::to_string(step) + ".h5"; }
  Word& written() { return page_.word(0); }
  Word& read_and_removed() { return page_.word(1); }
  std::size_t elements() const { return many_ ? w3_variables * w3_elements : w1_elements; }

  void write() {
    std::vector<double> own(elements());
    ramp(own.data(), own.size());
    page_.meet(2);
    figures_.start();
    for (int step = 0; step < steps_of(options_); ++step) {
      if (step >= options_.queue) await(read_and_removed(), static_cast<std::uint32_t>(step - options_.queue + 1), 50);
      if (many_) w3_stamp(own.data(), step);
      else stamp(own.data(), own.size(), step);
      write_file(own.data(), step);
      publish(written(), static_cast<std::uint32_t>(step + 1));
      figures_.step_done(step);
    }
    figures_.loop_done();
  }

  void write_file(const double* data, int step) {
    const hid_t file = check(H5Fcreate(path(step).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access_), "H5Fcreate");
    if (many_) {
      const hsize_t shape[1] = {w3_elements};
      for (int v = 0; v < w3_variables; ++v)
        write_dataset(file, w3_name(v), 1, shape, data + static_cast<std::size_t>(v) * w3_elements);
    } else {
      const hsize_t shape[3] = {w1_shape[0], w1_shape[1], w1_shape[2]};
      write_dataset(file, "T", 3, shape, data);
    }
    check(H5Fclose(file), "H5Fclose");
  }

  void write_dataset(hid_t file, const std::string& name, int dimensions, const hsize_t* shape, const double* data) {
    const hid_t space = check(H5Screate_simple(dimensions, shape, nullptr), "H5Screate_simple");
    const hid_t set = check(
        H5Dcreate2(file, name.c_str(), H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, creation_, H5P_DEFAULT), "H5Dcreate2");
    check(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), "H5Dwrite");
    H5Dclose(set);
    H5Sclose(space);
  }

  void read() {
    std::vector<double> own(elements(), 0.0);
    page_.meet(2);
    figures_.start();
    for (int step = 0; step < steps_of(options_); ++step) {
      await(written(), static_cast<std::uint32_t>(step + 1), 50);
      const hid_t file = check(H5Fopen(path(step).c_str(), H5F_ACC_RDONLY, access_), "H5Fopen");
      if (!many_) read_dataset(file, "T", own.data());
      for (int v = 0; many_ && v < w3_variables; ++v)
        read_dataset(file, w3_name(v), own.data() + static_cast<std::size_t>(v) * w3_elements);
      check(H5Fclose(file), "H5Fclose");
      unlink(path(step).c_str());
      publish(read_and_removed(), static_cast<std::uint32_t>(step + 1));
      if (many_) w3_check(own.data(), step);
      else check_samples(own.data(), own.size(), step);
      figures_.step_done(step);
    }
    figures_.loop_done();
    if (!many_) check_all(own.data(), own.size(), steps_of(options_) - 1);
  }

  static void read_dataset(hid_t file, const std::string& name, double* out) {
    const hid_t set = check(H5Dopen2(file, name.c_str(), H5P_DEFAULT), "H5Dopen2");
    check(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, out), "H5Dread");
    H5Dclose(set);
  }

  const Options& options_;
  SharedPage page_;
  Figures figures_;
  bool many_;
  hid_t access_;
  hid_t creation_;
};

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  return penstock::bench::run_program(
      argc, argv, [](const penstock::bench::Options& options) { penstock::bench::Files(options).run(); });
}
