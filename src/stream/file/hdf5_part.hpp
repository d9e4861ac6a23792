// The one function of libpenstock_file.so: what needs HDF5 (base/part.hpp). HDF5 makes the files and says where in them a block
// lies; the blocks' bytes are written and read beside it (file_sink, file_plane), but for compressed ones.
//
// Any thread: HDF5 is called with one lock of the process held. Errors: Error(system), which name the file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/part.hpp"
#include "model/layout.hpp"
#include "wire/control.hpp"

namespace penstock::stream {

// A rank's file of one step, while it is written. Destroyed before close() it stays incomplete.
class StepFile {
 public:
  virtual ~StepFile() = default;
  virtual std::uint64_t header_offset() const = 0;
  // Room for block `number` of the rank's layout, or for a text beside the blocks; where its bytes go.
  virtual std::uint64_t add_block(std::uint32_t number, const model::VariableDefinition& variable,
                                  const Dims& count) = 0;
  virtual std::uint64_t add_bytes(const char* name, std::uint64_t bytes) = 0;
  // data: packed in the variable's order. level: of deflate, 1 to 9.
  virtual void write_compressed(std::uint32_t number, const model::VariableDefinition& variable, const Dims& count,
                                const void* data, int level) = 0;
  virtual void close() = 0;
};

// What makes rank 0's file the master of its step.
struct Master {
  std::string stream;
  std::uint64_t step = 0;
  const model::Epoch& epoch;
  const std::vector<wire::Payload>& payloads;  // by rank
  const std::string& layouts;                  // join_layouts
  std::function<void(const model::Block&, std::span<std::byte>)> read;
};

struct Hdf5Part : base::PartHead {
  std::unique_ptr<StepFile> (*create)(const std::string& path);
  std::uint64_t (*add_master)(const std::string& path, const Master& master);  // where the layouts are
  void (*read_compressed)(const std::string& path, std::uint32_t number, std::span<std::byte> out);
};

// Throws Error(unsupported).
const Hdf5Part& hdf5_part();

}  // namespace penstock::stream

// Null where it is not linked into the program.
extern "C" [[gnu::weak]] const penstock::base::PartHead* penstock_file_part();
