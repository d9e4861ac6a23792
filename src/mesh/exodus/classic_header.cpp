#include "mesh/exodus/classic_header.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <filesystem>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::mesh {
namespace {

constexpr std::uint64_t streaming = UINT32_MAX;  // a number of records that nobody has counted
constexpr std::uint64_t max_list = 10'000'000;
constexpr std::array<std::uint64_t, 12> type_sizes{0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};  // by nc_type

class HeaderReader {
 public:
  explicit HeaderReader(const std::string& path) : path_(path), in_(path, std::ios::binary) {}
  // 1, 2 or 5; 0 for another format.
  int version() {
    std::array<char, 4> magic{};
    in_.read(magic.data(), 4);
    if (!in_ || magic[0] != 'C' || magic[1] != 'D' || magic[2] != 'F') return 0;
    wide_ = magic[3] == 5;
    wide_offsets_ = magic[3] != 1;
    return magic[3] == 1 || magic[3] == 2 || magic[3] == 5 ? magic[3] : 0;
  }
  std::uint64_t bytes(int count) {
    std::uint64_t value = 0;
    for (int i = 0; i < count; ++i) {
      const int byte = in_.get();
      if (byte == std::char_traits<char>::eof()) throw Error(Errc::invalid_argument, path_ + ": its header is cut off");
      value = value << 8 | static_cast<unsigned>(byte);
    }
    return value;
  }
  std::uint64_t number() { return bytes(wide_ ? 8 : 4); }
  std::uint64_t offset() { return bytes(wide_offsets_ ? 8 : 4); }
  void skip(std::uint64_t count) {  // padded
    in_.seekg(static_cast<std::streamoff>((count + 3) / 4 * 4), std::ios::cur);
  }
  // netCDF-C copies a name of any length into room for these.
  void name() {
    const auto length = number();
    if (length > 256) refuse();
    skip(length);
  }
  // How many entries a list has.
  std::uint64_t list() {
    bytes(4);
    const auto count = number();
    if (count > max_list) refuse();
    return count;
  }
  void attributes() {
    for (auto left = list(); left > 0; --left) {
      name();
      const auto type = bytes(4);
      skip(number() * size_of_type(type));
    }
  }
  std::uint64_t size_of_type(std::uint64_t type) const {
    const auto size = classic_type_size(type);
    if (size == 0) refuse();
    return size;
  }
  [[noreturn]] void refuse() const { throw Error(Errc::invalid_argument, path_ + ": its header is damaged"); }

 private:
  const std::string& path_;
  std::ifstream in_;
  bool wide_ = false, wide_offsets_ = false;
};

// How many bytes the variable has, in a record or in all. Throws where nobody could count them.
std::uint64_t bytes_of(const ClassicVariable& variable, const HeaderReader& header) {
  auto bytes = header.size_of_type(variable.type);
  for (const auto length : variable.lengths)
    if (__builtin_mul_overflow(bytes, length, &bytes)) header.refuse();
  if (variable.begin > UINT64_MAX - bytes) header.refuse();
  return bytes;
}

ClassicVariable read_variable(HeaderReader& header, const std::vector<std::uint64_t>& lengths) {
  ClassicVariable variable;
  header.name();
  for (auto dimensions = header.number(); dimensions > 0; --dimensions) {
    const auto dimension = header.number();
    if (dimension >= lengths.size()) header.refuse();
    if (lengths[dimension] == 0) variable.of_record = true;
    else variable.lengths.push_back(lengths[dimension]);
  }
  header.attributes();
  variable.type = header.bytes(4);
  header.number();  // the size, which is wrong for large variables
  variable.begin = header.offset();
  return variable;
}

}  // namespace

bool is_classic(const std::string& path) { return HeaderReader(path).version() != 0; }

std::uint64_t classic_type_size(std::uint64_t type) { return type < type_sizes.size() ? type_sizes[type] : 0; }

std::optional<ClassicHeader> read_classic_header(const std::string& path) {
  HeaderReader in(path);
  ClassicHeader header{.version = in.version()};
  if (header.version == 0) return std::nullopt;
  header.records = in.number();
  std::vector<std::uint64_t> lengths;
  for (auto left = in.list(); left > 0; --left) {
    in.name();
    lengths.push_back(in.number());
  }
  in.attributes();
  std::size_t of_records = 0;
  std::uint64_t unpadded = 0;
  for (auto left = in.list(); left > 0; --left) {
    header.variables.push_back(read_variable(in, lengths));
    const auto bytes = bytes_of(header.variables.back(), in);
    if (!header.variables.back().of_record) continue;
    ++of_records;
    unpadded = bytes;
    header.record_bytes += (bytes + 3) / 4 * 4;
  }
  if (of_records == 1) header.record_bytes = unpadded;  // then records are not padded
  return header;
}

std::optional<std::uint64_t> classic_length(const std::string& path) {
  const auto header = read_classic_header(path);
  if (!header) return std::nullopt;
  const auto records = header->records == streaming ? 0 : header->records;
  std::uint64_t end = 0;
  for (const auto& variable : header->variables) {
    std::uint64_t bytes = classic_type_size(variable.type), before = 0;
    for (const auto length : variable.lengths) bytes *= length;
    if (variable.of_record && records == 0) continue;
    if (variable.of_record && (__builtin_mul_overflow(records - 1, header->record_bytes, &before) ||
                               before > UINT64_MAX - variable.begin - bytes))
      throw Error(Errc::invalid_argument, path + ": its header is damaged");
    end = std::max(end, variable.begin + before + bytes);
  }
  return end;
}

void require_whole(const std::string& path) {
  const auto needed = classic_length(path);
  if (!needed) return;
  const auto there = std::filesystem::file_size(path);
  if (there < *needed)
    throw Error(Errc::invalid_argument, path + ": is cut off, or its model is not complete: it has " +
                                            std::to_string(there) + " of " + std::to_string(*needed) + " bytes");
}

void keep_records(const std::string& path, std::uint64_t wanted) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw Error(Errc::system, path + ": cannot open the file: " + std::strerror(errno));
  std::array<unsigned char, 12> head{};
  bool done = ::pread(file, head.data(), head.size(), 0) == static_cast<ssize_t>(head.size());
  const std::size_t width = done && head[3] == 5 ? 8 : 4;
  std::uint64_t records = 0;
  for (std::size_t i = 0; i < width; ++i) records = records << 8 | head[4 + i];
  if (done && records > wanted) {
    for (std::size_t i = 0; i < width; ++i) head[4 + i] = static_cast<unsigned char>(wanted >> (8 * (width - 1 - i)));
    done = ::pwrite(file, head.data() + 4, width, 4) == static_cast<ssize_t>(width);
  }
  const auto error = errno;
  ::close(file);
  if (!done) throw Error(Errc::system, path + ": cannot write the number of states: " + std::strerror(error));
}

}  // namespace penstock::mesh
