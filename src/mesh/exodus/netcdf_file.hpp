// A netCDF file: netCDF-C's calls with RAII and its errors as Error. Only for sources of the part penstock_exodus.
//
// Any thread: each call holds the one lock of HDF5's users (storage/hdf5_lock.hpp), as netCDF-C knows no threads. Errors:
// Error(system), or not_found for a variable that is not there; they name the file and what was asked of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/region.hpp"
#include "penstock/types.hpp"

namespace penstock::mesh {

using Extent = std::vector<std::size_t>;
// How many values there are. Throws Error(invalid_argument) where nobody could count them.
std::size_t values_in(const Extent& lengths);

struct NetcdfVariable {
  int id = -1;
  std::string name;
  DType dtype = DType::none;  // string: of characters
  std::vector<int> dimensions;
};

class NetcdfFile {
 public:
  enum class Format { offset64, cdf5, netcdf4, netcdf4_classic };

  static NetcdfFile open(const std::string& path, bool writable = false);
  // Takes the place of a file that is there.
  static NetcdfFile create(const std::string& path, Format format);
  NetcdfFile(NetcdfFile&&) noexcept;
  NetcdfFile& operator=(NetcdfFile&&) = delete;
  ~NetcdfFile();  // without close: what was not synchronised may be lost

  const std::string& path() const { return path_; }
  bool holds_64_bits() const;
  Format format() const { return format_; }
  std::uint32_t compression() const;  // the highest of its variables
  bool is_open() const { return id_ >= 0; }
  bool is_classic() const { return format_ == Format::offset64 || format_ == Format::cdf5; }

  std::optional<std::size_t> dimension(const std::string& name) const;
  std::string dimension_name(int dimension) const;
  // Length, now, of a dimension by its number.
  std::size_t length_of(int dimension) const;
  // 0: unlimited. The one that is there, if there is one.
  int define_dimension(const std::string& name, std::size_t length);
  // Of one that is there.
  int dimension_id(const std::string& name) const;

  const NetcdfVariable* find(const std::string& name) const;
  const std::map<std::string, NetcdfVariable>& variables() const { return variables_; }
  int define_variable(const std::string& name, DType dtype, const std::vector<int>& dimensions);
  // Deflate, with shuffling: netCDF-4 only.
  void compress(int variable, int level);

  // variable: global_attribute for the file's own.
  static constexpr int global_attribute = -1;
  Properties attributes(int variable) const;
  void put_attribute(int variable, const std::string& name, const Property& value);
  void put_real(int variable, const std::string& name, float value);  // of 32 bits

  // Leaves define mode: data may be written.
  void end_definitions();
  // From the next call on, what was written until now is seen by whoever opens the file, also after a crash of this process.
  void synchronise();
  // Looks for records that came since.
  void refresh();
  void close();

  // How long the variable is in its first (or last) dimension; 1 for one without dimensions.
  std::size_t rows_of(const NetcdfVariable& variable) const;
  std::size_t width_of(const NetcdfVariable& variable) const;

  // As dtype: the file's values are converted. Strings: characters. Throws Error(invalid_argument) where the variable has another number
  // of dimensions.
  void read(int variable, DType dtype, const Extent& start, const Extent& count, void* out) const;
  void write(int variable, DType dtype, const Extent& start, const Extent& count, const void* values);
  // A matrix of characters, a text in each row, without padding.
  std::vector<std::string> read_texts(const NetcdfVariable& variable) const;
  // As many as the variable has room for.
  void write_texts(const std::string& name, const std::vector<std::string>& texts);

 private:
  explicit NetcdfFile(std::string path) : path_(std::move(path)) {}
  void look();  // at dimensions and variables
  void check(int status, const std::string& doing) const;
  std::string path_;
  int id_ = -1;
  Format format_ = Format::offset64;
  std::map<std::string, int> dimensions_;
  std::map<std::string, NetcdfVariable> variables_;
};

}  // namespace penstock::mesh
