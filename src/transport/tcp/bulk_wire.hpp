// What travels on the bulk connection of a channel, in either direction: messages of a header and, after some, bytes.
//
//   pull   header, `count` ranges            answered by data
//   data   header, `bytes` bytes, trailer    a refusal: code, no bytes
//   push   header, `bytes` bytes, trailer    answered by done
//   done   header
//
// A trailer is the code of what went wrong while the bytes were sent (they are then worthless), or 0. Messages are at most
// max_chunk_bytes long; longer transfers are many. Little-endian. decode throws Error(protocol). Pure; no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/error.hpp"
#include "transport/bulk.hpp"

namespace penstock::transport {

enum class BulkKind : std::uint32_t { pull = 0x70656e01, data = 0x70656e02, push = 0x70656e03, done = 0x70656e04 };

struct BulkHeader {
  BulkKind kind = BulkKind::pull;
  std::uint32_t code = 0;      // data, done: an Errc, or 0
  std::uint64_t id = 0;        // of the request, chosen by who makes it
  std::uint64_t exposure = 0;  // pull, push
  std::uint64_t offset = 0;    // push
  std::uint64_t bytes = 0;     // pull: of all ranges together
  std::uint64_t count = 0;     // pull
};
static_assert(sizeof(BulkHeader) == 48);
using BulkTrailer = std::uint64_t;
using BulkRange = BulkSpace::Range;
static_assert(sizeof(BulkRange) == 16);

inline constexpr std::uint64_t max_chunk_bytes = std::uint64_t{4} << 20;
inline constexpr std::uint64_t max_chunk_ranges = 1024;

BulkHeader decode_bulk_header(std::span<const std::byte> bytes);
// The ranges of a pull. Throws when they are not `expected` bytes together.
std::vector<BulkRange> decode_bulk_ranges(std::span<const std::byte> bytes, std::uint64_t expected);

}  // namespace penstock::transport
