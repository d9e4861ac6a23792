// A rank's file of one step: where its blocks go, and compressed blocks.
#include <algorithm>

#include "penstock/version.hpp"
#include "stream/file/hdf5/handles.hpp"
#include "stream/file/hdf5/master.hpp"
#include "stream/file/hdf5_part.hpp"
#include "stream/file/step_header.hpp"

namespace penstock::stream {
namespace {

using h5::check;
using h5::Id;

constexpr hsize_t chunk_bytes = 1 << 20;  // HDF5 keeps so much of a dataset in memory

// The shape halved along its slowest dimensions until it is small enough.
h5::Extents chunk_of(h5::Extents shape, std::size_t elem_size) {
  hsize_t bytes = elem_size;
  for (const auto extent : shape) bytes *= extent;
  for (auto& extent : shape)
    while (bytes > chunk_bytes && extent > 1) {
      bytes = bytes / extent * ((extent + 1) / 2);
      extent = (extent + 1) / 2;
    }
  return shape;
}

class Hdf5StepFile final : public StepFile {
 public:
  explicit Hdf5StepFile(const std::string& path) : path_(path) {
    h5::with(path_, [&] {
      const Id access = h5::access_list();
      const Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "make properties");
      check(H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED), "make properties");
      file_ = Id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose, "create the file");
      const Id header = h5::make_dataset(file_, "/penstock/header", H5T_STD_U8LE, {sizeof(StepHeader)});
      header_ = h5::offset_of(header);
      if (header_ % header_alignment != 0 || header_ + sizeof(StepHeader) > header_within)
        throw Error(Errc::internal, "HDF5 puts the header at " + std::to_string(header_));
    });
  }
  ~Hdf5StepFile() override {
    const h5::Use use;
    file_ = Id();
  }

  std::uint64_t header_offset() const override { return header_; }

  std::uint64_t add_block(std::uint32_t number, const model::VariableDefinition& variable, const Dims& count) override {
    return h5::with(path_, [&] {
      const Id type = h5::type_of(variable.dtype);
      const Id block = h5::make_dataset(file_, h5::block_name(number), type, h5::in_file(count, variable, 1));
      h5::mark_type(block, variable.dtype);
      return h5::offset_of(block);
    });
  }

  std::uint64_t add_bytes(const char* name, std::uint64_t bytes) override {
    return h5::with(path_, [&] {
      return h5::offset_of(h5::make_dataset(file_, std::string("/penstock/") + name, H5T_STD_U8LE, {bytes}));
    });
  }

  void write_compressed(std::uint32_t number, const model::VariableDefinition& variable, const Dims& count,
                        const void* data, int level) override {
    h5::with(path_, [&] {
      const Id type = h5::type_of(variable.dtype);
      const auto shape = h5::in_file(count, variable, 1);
      const auto chunk = chunk_of(shape, size_of(variable.dtype));
      const Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make properties");
      check(H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()), "set the chunks");
      check(H5Pset_shuffle(creation), "set the filters");
      check(H5Pset_deflate(creation, static_cast<unsigned>(level)), "set the filters");
      const Id space = h5::space_of(shape), names = h5::names_list();
      Id block(H5Dcreate2(file_, h5::block_name(number).c_str(), type, space, names, creation, H5P_DEFAULT), H5Dclose,
               "make a dataset");
      h5::mark_type(block, variable.dtype);
      check(H5Dwrite(block, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), "write a block");
      block.close("write a block");
    });
  }

  void close() override {
    h5::with(path_, [&] { file_.close("write the file"); });
  }

 private:
  const std::string path_;
  Id file_;
  std::uint64_t header_ = 0;
};

std::unique_ptr<StepFile> create_step_file(const std::string& path) { return std::make_unique<Hdf5StepFile>(path); }

// HDF5 1.10 takes a chunk that was not compressed for a whole one, and reads beyond its memory if it is smaller. deflate is
// left out, as bit 1 of the mask says, where it would not make the chunk smaller; shuffle, bit 0, never.
void require_whole_chunks(hid_t block, hid_t type, hid_t space) {
#if H5_VERSION_GE(1, 10, 5)
  const Id creation(H5Dget_create_plist(block), H5Pclose, "read a block");
  hsize_t shape[H5S_MAX_RANK];
  const int dims = check(H5Pget_chunk(creation, H5S_MAX_RANK, shape), "read a block");
  hsize_t bytes = H5Tget_size(type), chunks = 0;
  for (int d = 0; d < dims; ++d) bytes *= shape[d];
  check(H5Dget_num_chunks(block, space, &chunks), "read a block");
  for (hsize_t i = 0; i < chunks; ++i) {
    unsigned skipped = 0;
    hsize_t stored = 0;
    check(H5Dget_chunk_info(block, space, i, nullptr, &skipped, nullptr, &stored), "read a block");
    if (skipped != 0 && (skipped != 2 || stored != bytes))
      throw Error(Errc::protocol, "a block's chunk is damaged: it is neither whole nor compressed");
  }
#else
  (void)block, (void)type, (void)space;
#endif
}

void read_compressed(const std::string& path, std::uint32_t number, std::span<std::byte> out) {
  h5::with(path, [&] {
    const Id access = h5::access_list();
    const Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose, "open the file");
    const Id block(H5Dopen2(file, h5::block_name(number).c_str(), H5P_DEFAULT), H5Dclose, "open a block");
    const Id type(H5Dget_type(block), H5Tclose, "read a block"), space(H5Dget_space(block), H5Sclose, "read a block");
    const auto count = check(H5Sget_simple_extent_npoints(space), "read a block");
    if (out.size() % H5Tget_size(type) != 0 || static_cast<std::uint64_t>(count) != out.size() / H5Tget_size(type))
      throw Error(Errc::protocol, "a block has another size than its description says");
    require_whole_chunks(block, type, space);
    check(H5Dread(block, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()), "read a block");
  });
}

}  // namespace
}  // namespace penstock::stream

const penstock::base::PartHead* penstock_file_part() {
  using namespace penstock::stream;
  static constexpr Hdf5Part part{{PENSTOCK_VERSION}, &create_step_file, &add_master, &read_compressed};
  return &part;
}
