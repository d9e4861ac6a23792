#include "mesh/exodus/netcdf_file.hpp"

#include <netcdf.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <utility>

#include "penstock/error.hpp"
#include "storage/hdf5.hpp"

namespace penstock::mesh {
namespace {

using Use = storage::h5::Use;  // netCDF-C knows no threads, and lets HDF5 print

constexpr std::size_t max_texts = std::size_t{256} << 20;  // bytes

DType dtype_of_type(nc_type type) {
  switch (type) {
    case NC_BYTE: return DType::int8;
    case NC_UBYTE: return DType::uint8;
    case NC_CHAR: return DType::string;
    case NC_SHORT: return DType::int16;
    case NC_USHORT: return DType::uint16;
    case NC_INT: return DType::int32;
    case NC_UINT: return DType::uint32;
    case NC_INT64: return DType::int64;
    case NC_UINT64: return DType::uint64;
    case NC_FLOAT: return DType::float32;
    case NC_DOUBLE: return DType::float64;
    default: return DType::none;
  }
}

nc_type type_of(DType dtype) {
  switch (dtype) {
    case DType::int8: return NC_BYTE;
    case DType::uint8: return NC_UBYTE;
    case DType::string: return NC_CHAR;
    case DType::int16: return NC_SHORT;
    case DType::uint16: return NC_USHORT;
    case DType::int32: return NC_INT;
    case DType::uint32: return NC_UINT;
    case DType::int64: return NC_INT64;
    case DType::uint64: return NC_UINT64;
    case DType::float32: return NC_FLOAT;
    case DType::float64: return NC_DOUBLE;
    default: throw Error(Errc::unsupported, "netCDF has no type for " + std::string(name_of(dtype)));
  }
}

int get(int file, int variable, DType dtype, const std::size_t* start, const std::size_t* count, void* out) {
  switch (dtype) {
    case DType::int8: return nc_get_vara_schar(file, variable, start, count, static_cast<signed char*>(out));
    case DType::uint8: return nc_get_vara_uchar(file, variable, start, count, static_cast<unsigned char*>(out));
    case DType::string: return nc_get_vara_text(file, variable, start, count, static_cast<char*>(out));
    case DType::int16: return nc_get_vara_short(file, variable, start, count, static_cast<short*>(out));
    case DType::uint16: return nc_get_vara_ushort(file, variable, start, count, static_cast<unsigned short*>(out));
    case DType::int32: return nc_get_vara_int(file, variable, start, count, static_cast<int*>(out));
    case DType::uint32: return nc_get_vara_uint(file, variable, start, count, static_cast<unsigned*>(out));
    case DType::int64: return nc_get_vara_longlong(file, variable, start, count, static_cast<long long*>(out));
    case DType::uint64:
      return nc_get_vara_ulonglong(file, variable, start, count, static_cast<unsigned long long*>(out));
    case DType::float32: return nc_get_vara_float(file, variable, start, count, static_cast<float*>(out));
    case DType::float64: return nc_get_vara_double(file, variable, start, count, static_cast<double*>(out));
    default: return NC_EBADTYPE;
  }
}

int put(int file, int variable, DType dtype, const std::size_t* start, const std::size_t* count, const void* values) {
  switch (dtype) {
    case DType::int8: return nc_put_vara_schar(file, variable, start, count, static_cast<const signed char*>(values));
    case DType::uint8:
      return nc_put_vara_uchar(file, variable, start, count, static_cast<const unsigned char*>(values));
    case DType::string: return nc_put_vara_text(file, variable, start, count, static_cast<const char*>(values));
    case DType::int16: return nc_put_vara_short(file, variable, start, count, static_cast<const short*>(values));
    case DType::uint16:
      return nc_put_vara_ushort(file, variable, start, count, static_cast<const unsigned short*>(values));
    case DType::int32: return nc_put_vara_int(file, variable, start, count, static_cast<const int*>(values));
    case DType::uint32: return nc_put_vara_uint(file, variable, start, count, static_cast<const unsigned*>(values));
    case DType::int64: return nc_put_vara_longlong(file, variable, start, count, static_cast<const long long*>(values));
    case DType::uint64:
      return nc_put_vara_ulonglong(file, variable, start, count, static_cast<const unsigned long long*>(values));
    case DType::float32: return nc_put_vara_float(file, variable, start, count, static_cast<const float*>(values));
    case DType::float64: return nc_put_vara_double(file, variable, start, count, static_cast<const double*>(values));
    default: return NC_EBADTYPE;
  }
}

Property read_attribute(int file, int variable, const char* name, nc_type type, std::size_t length, int& status) {
  if (type == NC_CHAR) {
    std::string text(length, '\0');
    status = nc_get_att_text(file, variable, name, text.data());
    if (const auto end = text.find('\0'); end != std::string::npos) text.resize(end);
    return text;
  }
  if (type == NC_FLOAT || type == NC_DOUBLE) {
    std::vector<double> values(length);
    status = nc_get_att_double(file, variable, name, values.data());
    if (length == 1) return values[0];
    return values;
  }
  std::vector<long long> numbers(length);
  status = nc_get_att_longlong(file, variable, name, numbers.data());
  if (length == 1) return std::int64_t{numbers[0]};
  return std::vector<std::int64_t>(numbers.begin(), numbers.end());
}

}  // namespace

std::size_t values_in(const Extent& lengths) {
  std::size_t count = 1;
  for (const auto length : lengths)
    if (__builtin_mul_overflow(count, length, &count))
      throw Error(Errc::invalid_argument, "a variable has more values than can be counted");
  return count;
}

void NetcdfFile::check(int status, const std::string& doing) const {
  if (status == NC_NOERR) return;
  throw Error(Errc::system, path_ + ": cannot " + doing + ": " + nc_strerror(status));
}

NetcdfFile NetcdfFile::open(const std::string& path, bool writable) {
  NetcdfFile file(path);
  {
    const Use use;
    const auto status = nc_open(path.c_str(), writable ? NC_WRITE : NC_NOWRITE, &file.id_);
    if (status == NC_ENOTNC) throw Error(Errc::invalid_argument, path + ": is no netCDF file");
    if (status == ENOENT) {
      const auto unfinished = path + ".writing";
      const bool is_there = std::filesystem::exists(unfinished);
      throw Error(Errc::not_found,
                  path + ": there is no such file" +
                      (is_there ? "; " + unfinished + " is being written, or its writer ended too early" : ""));
    }
    file.check(status, "open the file");
    int format = 0;
    file.check(nc_inq_format(file.id_, &format), "read its format");
    file.format_ = format == NC_FORMAT_CDF5              ? Format::cdf5
                   : format == NC_FORMAT_NETCDF4         ? Format::netcdf4
                   : format == NC_FORMAT_NETCDF4_CLASSIC ? Format::netcdf4_classic
                                                         : Format::offset64;
  }
  file.look();
  return file;
}

NetcdfFile NetcdfFile::create(const std::string& path, Format format) {
  NetcdfFile file(path);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    throw Error(Errc::invalid_argument, path + ": is no regular file");  // netCDF removes what it cannot make
  const Use use;
  static constexpr std::array modes{NC_64BIT_OFFSET, NC_64BIT_DATA, NC_NETCDF4, NC_NETCDF4 | NC_CLASSIC_MODEL};
  file.format_ = format;
  file.check(nc_create(path.c_str(), NC_CLOBBER | modes[static_cast<std::size_t>(format)], &file.id_), "make the file");
  int old = 0;
  file.check(nc_set_fill(file.id_, NC_NOFILL, &old), "turn filling off");
  return file;
}

NetcdfFile::NetcdfFile(NetcdfFile&& other) noexcept
    : path_(std::move(other.path_)),
      id_(std::exchange(other.id_, -1)),
      format_(other.format_),
      dimensions_(std::move(other.dimensions_)),
      variables_(std::move(other.variables_)) {}

NetcdfFile::~NetcdfFile() {
  if (id_ < 0) return;
  const Use use;
  nc_close(id_);
}

bool NetcdfFile::holds_64_bits() const { return format_ == Format::cdf5 || format_ == Format::netcdf4; }

void NetcdfFile::look() {
  const Use use;
  int dimensions = 0, variables = 0;
  check(nc_inq(id_, &dimensions, &variables, nullptr, nullptr), "read its contents");
  std::array<char, NC_MAX_NAME + 1> name{};
  std::vector<int> numbers(static_cast<std::size_t>(std::max(dimensions, 1)));
  check(nc_inq_dimids(id_, &dimensions, numbers.data(), 0), "list its dimensions");
  for (int i = 0; i < dimensions; ++i) {
    check(nc_inq_dimname(id_, numbers[static_cast<std::size_t>(i)], name.data()), "read a dimension");
    dimensions_[name.data()] = numbers[static_cast<std::size_t>(i)];
  }
  for (int i = 0; i < variables; ++i) {
    nc_type type = 0;
    int rank = 0;
    check(nc_inq_var(id_, i, name.data(), &type, &rank, nullptr, nullptr), "read a variable");
    NetcdfVariable variable{i, name.data(), dtype_of_type(type), std::vector<int>(static_cast<std::size_t>(rank))};
    check(nc_inq_vardimid(id_, i, variable.dimensions.data()), "read a variable's dimensions");
    variables_.emplace(variable.name, std::move(variable));
  }
}

std::optional<std::size_t> NetcdfFile::dimension(const std::string& name) const {
  const auto found = dimensions_.find(name);
  if (found == dimensions_.end()) return std::nullopt;
  return length_of(found->second);
}

std::string NetcdfFile::dimension_name(int dimension) const {
  const Use use;
  std::array<char, NC_MAX_NAME + 1> name{};
  check(nc_inq_dimname(id_, dimension, name.data()), "read a dimension");
  return name.data();
}

std::size_t NetcdfFile::length_of(int dimension) const {
  const Use use;
  std::size_t length = 0;
  check(nc_inq_dimlen(id_, dimension, &length), "read a dimension's length");
  return length;
}

std::size_t NetcdfFile::rows_of(const NetcdfVariable& variable) const {
  return variable.dimensions.empty() ? 1 : length_of(variable.dimensions.front());
}
std::size_t NetcdfFile::width_of(const NetcdfVariable& variable) const {
  return variable.dimensions.empty() ? 1 : length_of(variable.dimensions.back());
}

int NetcdfFile::define_dimension(const std::string& name, std::size_t length) {
  if (const auto found = dimensions_.find(name); found != dimensions_.end()) return found->second;
  const Use use;
  int id = -1;
  check(nc_def_dim(id_, name.c_str(), length == 0 ? NC_UNLIMITED : length, &id), "define dimension " + name);
  dimensions_[name] = id;
  return id;
}

int NetcdfFile::dimension_id(const std::string& name) const {
  const auto found = dimensions_.find(name);
  if (found == dimensions_.end()) throw Error(Errc::internal, path_ + ": dimension " + name + " is not defined");
  return found->second;
}

const NetcdfVariable* NetcdfFile::find(const std::string& name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? nullptr : &found->second;
}

int NetcdfFile::define_variable(const std::string& name, DType dtype, const std::vector<int>& dimensions) {
  const Use use;
  NetcdfVariable variable{-1, name, dtype, dimensions};
  check(nc_def_var(id_, name.c_str(), type_of(dtype), static_cast<int>(dimensions.size()), dimensions.data(),
                   &variable.id),
        "define variable " + name);
  const auto id = variable.id;
  variables_.emplace(name, std::move(variable));
  return id;
}

void NetcdfFile::compress(int variable, int level) {
  const Use use;
  check(nc_def_var_deflate(id_, variable, 1, 1, level), "compress a variable");
}

std::uint32_t NetcdfFile::compression() const {
  if (is_classic()) return 0;
  const Use use;
  int highest = 0;
  for (const auto& [name, variable] : variables_) {
    int shuffle = 0, deflate = 0, level = 0;
    check(nc_inq_var_deflate(id_, variable.id, &shuffle, &deflate, &level), "look at the compression of " + name);
    if (deflate != 0) highest = std::max(highest, level);
  }
  return static_cast<std::uint32_t>(highest);
}

Properties NetcdfFile::attributes(int variable) const {
  const Use use;
  const int owner = variable == global_attribute ? NC_GLOBAL : variable;
  int count = 0;
  check(owner == NC_GLOBAL ? nc_inq_natts(id_, &count) : nc_inq_varnatts(id_, owner, &count), "count attributes");
  Properties properties;
  std::array<char, NC_MAX_NAME + 1> name{};
  for (int i = 0; i < count; ++i) {
    nc_type type = 0;
    std::size_t length = 0;
    check(nc_inq_attname(id_, owner, i, name.data()), "read an attribute's name");
    check(nc_inq_att(id_, owner, name.data(), &type, &length), "read an attribute");
    if (dtype_of_type(type) == DType::none) continue;  // of a type that a program made for itself
    int status = NC_NOERR;
    auto value = read_attribute(id_, owner, name.data(), type, length, status);
    check(status, std::string("read attribute ") + name.data());
    properties.emplace(name.data(), std::move(value));
  }
  return properties;
}

void NetcdfFile::put_attribute(int variable, const std::string& name, const Property& value) {
  const Use use;
  const int owner = variable == global_attribute ? NC_GLOBAL : variable;
  const auto integers = [&](const std::int64_t* values, std::size_t count) {
    const bool narrow =
        std::all_of(values, values + count, [](std::int64_t v) { return v == static_cast<std::int32_t>(v); });
    const std::vector<long long> numbers(values, values + count);
    return nc_put_att_longlong(id_, owner, name.c_str(), narrow || !holds_64_bits() ? NC_INT : NC_INT64, count,
                               numbers.data());
  };
  int status = NC_NOERR;
  if (const auto* text = std::get_if<std::string>(&value))
    status = nc_put_att_text(id_, owner, name.c_str(), text->size(), text->data());
  else if (const auto* number = std::get_if<std::int64_t>(&value)) status = integers(number, 1);
  else if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&value))
    status = integers(numbers->data(), numbers->size());
  else if (const auto* real = std::get_if<double>(&value))
    status = nc_put_att_double(id_, owner, name.c_str(), NC_DOUBLE, 1, real);
  else {
    const auto& reals = std::get<std::vector<double>>(value);
    status = nc_put_att_double(id_, owner, name.c_str(), NC_DOUBLE, reals.size(), reals.data());
  }
  check(status, "write attribute " + name);
}

void NetcdfFile::put_real(int variable, const std::string& name, float value) {
  const Use use;
  check(nc_put_att_float(id_, variable == global_attribute ? NC_GLOBAL : variable, name.c_str(), NC_FLOAT, 1, &value),
        "write attribute " + name);
}

void NetcdfFile::end_definitions() {
  const Use use;
  check(nc_enddef(id_), "end its definitions");
}

void NetcdfFile::synchronise() {
  const Use use;
  check(nc_sync(id_), "write it out");
}

void NetcdfFile::refresh() { synchronise(); }

void NetcdfFile::close() {
  const Use use;
  check(nc_close(std::exchange(id_, -1)), "close it");
}

void NetcdfFile::read(int variable, DType dtype, const Extent& start, const Extent& count, void* out) const {
  if (std::find(count.begin(), count.end(), 0U) != count.end()) return;
  const Use use;
  int rank = 0;
  check(nc_inq_varndims(id_, variable, &rank), "read a variable's dimensions");
  if (static_cast<std::size_t>(rank) != start.size()) {
    std::array<char, NC_MAX_NAME + 1> name{};
    nc_inq_varname(id_, variable, name.data());
    throw Error(Errc::invalid_argument, path_ + ": variable " + name.data() + " has " + std::to_string(rank) +
                                            " dimensions where Exodus has " + std::to_string(start.size()));
  }
  const auto status = get(id_, variable, dtype, start.data(), count.data(), out);
  if (status == NC_NOERR) return;
  std::array<char, NC_MAX_NAME + 1> name{};
  nc_inq_varname(id_, variable, name.data());
  check(status, std::string("read variable ") + name.data() + " as " + std::string(name_of(dtype)));
}

void NetcdfFile::write(int variable, DType dtype, const Extent& start, const Extent& count, const void* values) {
  if (std::find(count.begin(), count.end(), 0U) != count.end()) return;
  const Use use;
  const auto status = put(id_, variable, dtype, start.data(), count.data(), values);
  if (status == NC_NOERR) return;
  std::array<char, NC_MAX_NAME + 1> name{};
  nc_inq_varname(id_, variable, name.data());
  check(status, std::string("write variable ") + name.data());
}

std::vector<std::string> NetcdfFile::read_texts(const NetcdfVariable& variable) const {
  if (variable.dtype != DType::string || variable.dimensions.size() < 2)
    throw Error(Errc::invalid_argument, path_ + ": variable " + variable.name + " is no list of texts");
  Extent count;
  for (const auto dimension : variable.dimensions) count.push_back(length_of(dimension));
  const auto width = count.back();
  const auto rows = std::accumulate(count.begin(), count.end() - 1, std::size_t{1}, std::multiplies<>());
  if (width == 0 || rows > max_texts / width)
    throw Error(Errc::invalid_argument,
                path_ + ": variable " + variable.name + " has " + std::to_string(rows) + " texts");
  std::vector<char> characters(rows * width);
  read(variable.id, DType::string, Extent(count.size(), 0), count, characters.data());
  std::vector<std::string> texts;
  for (std::size_t row = 0; row < rows; ++row) {
    std::string text(characters.data() + row * width, width);
    if (const auto end = text.find('\0'); end != std::string::npos) text.resize(end);
    text.resize(text.find_last_not_of(' ') + 1);
    texts.push_back(std::move(text));
  }
  return texts;
}

void NetcdfFile::write_texts(const std::string& name, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  const auto& variable = variables_.at(name);
  Extent count;
  for (const auto dimension : variable.dimensions) count.push_back(length_of(dimension));
  const auto width = count.back();
  std::vector<char> characters(texts.size() * width);
  for (std::size_t row = 0; row < texts.size(); ++row)
    std::copy_n(texts[row].data(), std::min(width - 1, texts[row].size()), characters.data() + row * width);
  write(variable.id, DType::string, Extent(count.size(), 0), count, characters.data());
}

}  // namespace penstock::mesh
