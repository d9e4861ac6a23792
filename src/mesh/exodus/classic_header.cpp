#include "mesh/exodus/classic_header.hpp"

#include <fcntl.h>
#include <unistd.h>

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
  // How many entries a list has.
  std::uint64_t list() {
    bytes(4);
    const auto count = number();
    if (count > max_list) throw Error(Errc::invalid_argument, path_ + ": its header is damaged");
    return count;
  }
  void attributes() {
    for (auto left = list(); left > 0; --left) {
      skip(number());
      const auto type = bytes(4);
      skip(number() * size_of_type(type));
    }
  }
  std::uint64_t size_of_type(std::uint64_t type) const {
    if (type == 0 || type >= type_sizes.size()) throw Error(Errc::invalid_argument, path_ + ": its header is damaged");
    return type_sizes[type];
  }

 private:
  const std::string& path_;
  std::ifstream in_;
  bool wide_ = false, wide_offsets_ = false;
};

struct Stretch {
  std::uint64_t begin, bytes;
};

}  // namespace

std::optional<std::uint64_t> classic_length(const std::string& path) {
  HeaderReader header(path);
  if (header.version() == 0) return std::nullopt;
  const auto records = header.number();
  std::vector<std::uint64_t> lengths;
  for (auto left = header.list(); left > 0; --left) {
    header.skip(header.number());
    lengths.push_back(header.number());
  }
  header.attributes();
  std::uint64_t end = 0, record_bytes = 0;
  std::vector<Stretch> in_records;
  for (auto left = header.list(); left > 0; --left) {
    header.skip(header.number());
    std::uint64_t count = 1;
    bool of_record = false;
    for (auto dimensions = header.number(); dimensions > 0; --dimensions) {
      const auto dimension = header.number();
      if (dimension >= lengths.size()) throw Error(Errc::invalid_argument, path + ": its header is damaged");
      if (lengths[dimension] == 0) of_record = true;
      else if (__builtin_mul_overflow(count, lengths[dimension], &count))
        throw Error(Errc::invalid_argument, path + ": its header is damaged");
    }
    header.attributes();
    const auto type = header.bytes(4);
    header.number();  // the size, which is wrong for large variables
    const auto begin = header.offset();
    if (__builtin_mul_overflow(count, header.size_of_type(type), &count) || begin > UINT64_MAX - count)
      throw Error(Errc::invalid_argument, path + ": its header is damaged");
    if (!of_record) {
      end = std::max(end, begin + count);
    } else {
      in_records.push_back({begin, count});
      record_bytes += (count + 3) / 4 * 4;
    }
  }
  if (records == 0 || records == streaming) return end;
  if (in_records.size() == 1) record_bytes = in_records[0].bytes;  // then records are not padded
  for (const auto& each : in_records) {
    std::uint64_t before = 0;
    if (__builtin_mul_overflow(records - 1, record_bytes, &before) || before > UINT64_MAX - each.begin - each.bytes)
      throw Error(Errc::invalid_argument, path + ": its header is damaged");
    end = std::max(end, each.begin + before + each.bytes);
  }
  return end;
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
