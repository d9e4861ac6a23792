#include "storage/object_header.hpp"

#include "storage/little_endian.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {

namespace {

constexpr std::string_view magic = "PNSTKOBJ";
constexpr std::uint32_t header_format = 1, flag_synced = 1;
constexpr std::uint64_t alignment = 64;

std::uint64_t checksum_of(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

[[noreturn]] void refuse_header(const char* why) {
  throw Error(Errc::protocol, std::string("not an object's file: ") + why);
}

}  // namespace

// Sizes are limited (decode_fixed_header), so no sum here overflows.
std::uint64_t FixedHeader::data_offset() const {
  return (fixed_header_bytes + std::uint64_t{key_bytes} + metadata_bytes + alignment - 1) / alignment * alignment;
}

std::string encode_header(const ObjectHeader& header) {
  const std::string names = header.key + header.metadata;
  std::string out;
  out.reserve(fixed_header_bytes + names.size() + alignment);
  out += magic;
  append_little(out, header_format);
  append_little(out, header.synced ? flag_synced : 0);
  append_little(out, header.number);
  append_little(out, static_cast<std::uint32_t>(header.key.size()));
  append_little(out, static_cast<std::uint32_t>(header.metadata.size()));
  append_little(out, header.data_bytes);
  append_little(out, header.checksum);
  append_little(out, checksum_of(names));
  append_little(out, checksum_of(out));
  out += names;
  out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
  return out;
}

FixedHeader decode_fixed_header(std::span<const std::byte> bytes) {
  if (bytes.size() < fixed_header_bytes) refuse_header("it is too short");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), fixed_header_bytes);
  if (!text.starts_with(magic)) refuse_header("it does not begin as one");
  if (read_little<std::uint64_t>(bytes, 56) != checksum_of(text.substr(0, 56))) refuse_header("its header is damaged");
  if (read_little<std::uint32_t>(bytes, 8) != header_format) refuse_header("it has a format of another version");
  FixedHeader header;
  header.synced = (read_little<std::uint32_t>(bytes, 12) & flag_synced) != 0;
  header.number = read_little<std::uint64_t>(bytes, 16);
  header.key_bytes = read_little<std::uint32_t>(bytes, 24);
  header.metadata_bytes = read_little<std::uint32_t>(bytes, 28);
  header.data_bytes = read_little<std::uint64_t>(bytes, 32);
  header.checksum = read_little<std::uint64_t>(bytes, 40);
  header.names_checksum = read_little<std::uint64_t>(bytes, 48);
  if (header.key_bytes > max_key_bytes || header.metadata_bytes > max_metadata_bytes ||
      header.data_bytes > max_data_bytes)
    refuse_header("its sizes are beyond the limits");
  return header;
}

ObjectHeader decode_header(std::span<const std::byte> bytes) {
  const FixedHeader fixed = decode_fixed_header(bytes);
  const std::uint64_t names_bytes = std::uint64_t{fixed.key_bytes} + fixed.metadata_bytes;
  if (bytes.size() - fixed_header_bytes < names_bytes) refuse_header("it is too short");
  const std::string_view names(reinterpret_cast<const char*>(bytes.data()) + fixed_header_bytes, names_bytes);
  if (checksum_of(names) != fixed.names_checksum) refuse_header("its key or metadata is damaged");
  ObjectHeader header;
  header.number = fixed.number;
  header.synced = fixed.synced;
  header.data_bytes = fixed.data_bytes;
  header.checksum = fixed.checksum;
  header.key = names.substr(0, fixed.key_bytes);
  header.metadata = names.substr(fixed.key_bytes);
  return header;
}

}  // namespace penstock::storage
