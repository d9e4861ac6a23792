// Files of the tiers `files` and `disk`: header and data, written in one call.
#include <fcntl.h>

#include <vector>

#include "storage/object_codec.hpp"
#include "storage/tier.hpp"
#include "storage/verified_read.hpp"

namespace penstock::storage {

namespace {

constexpr std::size_t first_read_bytes = 4096;  // holds nearly every header

class RawCodec final : public ObjectCodec {
 public:
  std::string_view suffix() const override { return ".obj"; }
  std::string name_prefix(std::string_view) const override { return {}; }

  void write(const File& file, const ObjectHeader& header, std::span<const std::byte> data) const override {
    file.write(encode_header(header), data);
  }

  ObjectHeader read(const std::string& path, const Place& place) const override {
    const File file(path, O_RDONLY);
    std::uint64_t offset = 0;
    ObjectHeader header = read_header(file, offset);
    if (place) read_verified(file, {offset, header.data_bytes, header.checksum}, place(header));
    return header;
  }

  ObjectHeader verify(const std::string& path) const override {
    const File file(path, O_RDONLY);
    std::uint64_t offset = 0;
    ObjectHeader header = read_header(file, offset);
    verify_only(file, {offset, header.data_bytes, header.checksum});
    return header;
  }

 private:
  static ObjectHeader read_header(const File& file, std::uint64_t& data_offset) {
    std::vector<std::byte> bytes(first_read_bytes);
    bytes.resize(file.read_at(0, bytes));
    try {
      const FixedHeader fixed = decode_fixed_header(bytes);
      data_offset = fixed.data_offset();
      if (file.size() != fixed.file_bytes()) throw Error(Errc::protocol, "it is not as long as its header says");
      if (const std::size_t have = bytes.size(); have < data_offset) {
        bytes.resize(data_offset);
        bytes.resize(have + file.read_at(have, std::span(bytes).subspan(have)));
      }
      return decode_header(bytes);
    } catch (const Error& error) {
      throw error.in(file.path());
    }
  }
};

}  // namespace

std::unique_ptr<ObjectCodec> raw_codec() { return std::make_unique<RawCodec>(); }

}  // namespace penstock::storage
