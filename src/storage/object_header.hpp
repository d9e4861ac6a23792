// The header of an object's file: what the bytes after it are, and whose.
//
//   0  "PNSTKOBJ"   8 format (1)   12 flags (bit 0: synced before it got its name)   16 number of the file
//   24 key bytes   28 metadata bytes   32 data bytes   40 checksum of data   48 checksum of key and metadata
//   56 checksum of bytes 0..55   64 key, metadata, zeros up to a multiple of 64, data
//
// Integers are little-endian, checksums XXH3. Pure functions; the decoders take any bytes and throw Error(protocol).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace penstock::storage {

struct ObjectHeader {
  std::uint64_t number = 0;
  bool synced = false;
  std::uint64_t data_bytes = 0;
  std::uint64_t checksum = 0;
  std::string key, metadata;
};

constexpr std::size_t fixed_header_bytes = 64;

// The first 64 bytes, checked.
struct FixedHeader {
  std::uint64_t number = 0;
  bool synced = false;
  std::uint32_t key_bytes = 0, metadata_bytes = 0;
  std::uint64_t data_bytes = 0, checksum = 0, names_checksum = 0;

  std::uint64_t data_offset() const;
  std::uint64_t file_bytes() const { return data_offset() + data_bytes; }
};

// All bytes before the data.
std::string encode_header(const ObjectHeader& header);
FixedHeader decode_fixed_header(std::span<const std::byte> bytes);
// `bytes`: all before the data, at least.
ObjectHeader decode_header(std::span<const std::byte> bytes);

}  // namespace penstock::storage
