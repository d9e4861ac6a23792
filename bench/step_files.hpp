// Outputs of Gray-Scott in files, as codes without staging do it: one HDF5 file an output, written and read by all ranks together
// (parallel HDF5). Datasets are contiguous and not filled first; each rank packs its part without ghost cells, into memory it
// keeps. A file has its final name once it is closed, and synced where that is asked for.
#pragma once

#include <mpi.h>

// After mpi.h: its own version of it brings MPI's C++ bindings.
#include <hdf5.h>

#include <filesystem>

#include "arguments.hpp"
#include "simulation.hpp"

namespace penstock::bench {

template <class Id>
Id check_id(Id id, const char* call) {
  if (id < 0) throw std::runtime_error(std::string(call) + " failed");
  return id;
}

class StepFiles {
 public:
  using Index = gray_scott::Index;

  // start, count: this rank's part. Collective, as are write and read.
  StepFiles(const Index& shape, const Index& start, const Index& count, std::string folder, bool collective,
            bool synced)
      : folder_(std::move(folder)), synced_(synced) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    for (std::size_t d = 0; d < 3; ++d) {
      shape_[d] = static_cast<hsize_t>(shape[d]);
      start_[d] = static_cast<hsize_t>(start[d]);
      count_[d] = static_cast<hsize_t>(count[d]);
    }
    access_ = check_id(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");
    check_id(H5Pset_fapl_mpio(access_, MPI_COMM_WORLD, MPI_INFO_NULL), "H5Pset_fapl_mpio");
    transfer_ = check_id(H5Pcreate(H5P_DATASET_XFER), "H5Pcreate");
    check_id(H5Pset_dxpl_mpio(transfer_, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT),
             "H5Pset_dxpl_mpio");
    creation_ = check_id(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
    H5Pset_fill_time(creation_, H5D_FILL_TIME_NEVER);
    in_memory_ = check_id(H5Screate_simple(3, count_, nullptr), "H5Screate_simple");
    in_file_ = check_id(H5Screate_simple(3, shape_, nullptr), "H5Screate_simple");
    check_id(H5Sselect_hyperslab(in_file_, H5S_SELECT_SET, start_, nullptr, count_, nullptr), "H5Sselect_hyperslab");
  }
  ~StepFiles() {
    H5Sclose(in_file_);
    H5Sclose(in_memory_);
    for (const hid_t list : {access_, transfer_, creation_}) H5Pclose(list);
  }
  StepFiles(const StepFiles&) = delete;
  StepFiles& operator=(const StepFiles&) = delete;

  std::string path_of(std::int64_t number) const { return folder_ + "/checkpoint-" + std::to_string(number) + ".h5"; }
  // The highest number in the folder.
  std::int64_t newest() const {
    std::int64_t number = -1;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("checkpoint-") && name.ends_with(".h5"))
        number = std::max<std::int64_t>(number, std::stoll(name.substr(11)));
    }
    require(number >= 0, "a checkpoint");
    return number;
  }

  void write(std::int64_t number, const gray_scott::FieldView& u, const gray_scott::FieldView& v) {
    packed_.resize(elements());
    const std::string path = path_of(number), open_path = path + ".open";
    const hid_t file = check_id(H5Fcreate(open_path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access_), "H5Fcreate");
    const gray_scott::FieldView fields[] = {u, v};
    for (int f = 0; f < 2; ++f) {
      each_row(fields[f].strides, [&](std::int64_t from, std::size_t to, std::size_t length) {
        const auto* row = reinterpret_cast<const double*>(reinterpret_cast<const char*>(fields[f].first) + from);
        std::copy_n(row, length, packed_.data() + to);
      });
      const hid_t set = check_id(
          H5Dcreate2(file, names[f], H5T_NATIVE_DOUBLE, in_file_, H5P_DEFAULT, creation_, H5P_DEFAULT), "H5Dcreate2");
      check_id(H5Dwrite(set, H5T_NATIVE_DOUBLE, in_memory_, in_file_, transfer_, packed_.data()), "H5Dwrite");
      H5Dclose(set);
    }
    check_id(H5Fclose(file), "H5Fclose");  // collective: everything is in the file system's hands
    if (rank_ != 0) return;
    if (synced_) sync(open_path);
    std::filesystem::rename(open_path, path);
    if (synced_) sync(folder_);
  }

  // This rank's part, packed.
  void read(std::int64_t number, double* u, double* v) {
    const hid_t file = check_id(H5Fopen(path_of(number).c_str(), H5F_ACC_RDONLY, access_), "H5Fopen");
    double* fields[] = {u, v};
    for (int f = 0; f < 2; ++f) read_field(file, f, fields[f]);
    check_id(H5Fclose(file), "H5Fclose");
  }
  // Into ghosted arrays.
  void read(std::int64_t number, const gray_scott::StateView& state) {
    packed_.resize(elements());
    const hid_t file = check_id(H5Fopen(path_of(number).c_str(), H5F_ACC_RDONLY, access_), "H5Fopen");
    double* fields[] = {state.u, state.v};
    for (int f = 0; f < 2; ++f) {
      read_field(file, f, packed_.data());
      each_row(state.strides, [&](std::int64_t to, std::size_t from, std::size_t length) {
        auto* row = reinterpret_cast<double*>(reinterpret_cast<char*>(fields[f]) + to);
        std::copy_n(packed_.data() + from, length, row);
      });
    }
    check_id(H5Fclose(file), "H5Fclose");
  }

 private:
  static constexpr const char* names[] = {"U", "V"};
  std::size_t elements() const { return count_[0] * count_[1] * count_[2]; }

  void read_field(hid_t file, int field, double* out) {
    const hid_t set = check_id(H5Dopen2(file, names[field], H5P_DEFAULT), "H5Dopen2");
    check_id(H5Dread(set, H5T_NATIVE_DOUBLE, in_memory_, in_file_, transfer_, out), "H5Dread");
    H5Dclose(set);
  }
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

  const std::string folder_;
  const bool synced_;
  int rank_ = 0;
  hsize_t shape_[3], start_[3], count_[3];
  std::vector<double> packed_;
  hid_t access_ = -1, transfer_ = -1, creation_ = -1, in_memory_ = -1, in_file_ = -1;
};

}  // namespace penstock::bench
