// Values in a file of one of netCDF's classic formats, written at their places by several processes at once: each writes rows that are its
// own, and no byte of another's. netCDF-C cannot: it writes blocks, with what it has read around the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mesh/database.hpp"
#include "mesh/exodus/classic_header.hpp"
#include "mesh/exodus/exodus_layout.hpp"
#include "storage/file.hpp"

namespace penstock::mesh {

// Where a column is (exodus_layout.hpp). Plain numbers, which processes send each other.
struct ClassicColumn {
  std::uint64_t begin = 0;         // of the variable, in bytes
  std::uint64_t record_bytes = 0;  // from one state to the next; 0: of the model
  std::uint64_t type = 0;          // nc_type
  std::uint64_t first = 0;         // value of the first row
  std::uint64_t row = 1;           // from one row to the next, in values
  std::uint64_t width = 1;         // values of the column in a row
  std::uint64_t add = 0;           // to each value
};
ClassicColumn classic_column(const ClassicHeader& header, const Place& place, std::size_t column);

// Errors: Error(system), which names the file; Error(invalid_argument) for a number that the file's type does not hold.
class ClassicFile {
 public:
  // name: what errors call it.
  ClassicFile(const std::string& path, std::string name);
  // values: of each row the column's, `stride` values apart.
  void write(const ClassicColumn& column, DType dtype, std::uint64_t state, Rows rows, const void* values,
             std::size_t stride);
  // How many states its header counts.
  void count_records(std::uint64_t records);
  void sync() const { file_.sync_data(); }  // what this process has written is on the disk

 private:
  void write_bytes(std::span<const std::byte> bytes, std::uint64_t at) const;
  std::string name_;
  storage::File file_;
};

}  // namespace penstock::mesh
