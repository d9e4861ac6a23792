#include "transport/tcp/bulk_wire.hpp"

#include <cstring>

namespace penstock::transport {

namespace {

[[noreturn]] void refuse_bulk(const char* what) { throw Error(Errc::protocol, what); }

}  // namespace

BulkHeader decode_bulk_header(std::span<const std::byte> bytes) {
  BulkHeader header;
  if (bytes.size() != sizeof header) refuse_bulk("a bulk message that is too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  switch (header.kind) {
    case BulkKind::pull:
      if (header.count == 0 || header.count > max_chunk_ranges) refuse_bulk("a pull of an impossible number of ranges");
      break;
    case BulkKind::push:
    case BulkKind::data: break;
    case BulkKind::done:
      if (header.bytes != 0) refuse_bulk("a bulk answer with bytes");
      break;
    default: refuse_bulk("a bulk message of an unknown kind");
  }
  if (header.bytes > max_chunk_bytes) refuse_bulk("a bulk message that is too long");
  if (header.kind == BulkKind::data && header.code != 0 && header.bytes != 0) refuse_bulk("a refusal with bytes");
  return header;
}

std::vector<BulkRange> decode_bulk_ranges(std::span<const std::byte> bytes, std::uint64_t expected) {
  if (bytes.empty() || bytes.size() % sizeof(BulkRange) != 0 || bytes.size() / sizeof(BulkRange) > max_chunk_ranges)
    refuse_bulk("a malformed list of ranges");
  std::vector<BulkRange> ranges(bytes.size() / sizeof(BulkRange));
  std::memcpy(ranges.data(), bytes.data(), bytes.size());
  std::uint64_t sum = 0;
  for (const BulkRange& range : ranges) {
    if (range.bytes > max_chunk_bytes) refuse_bulk("a range that is too long");
    sum += range.bytes;
  }
  if (sum != expected) refuse_bulk("ranges that are not as long as their pull says");
  return ranges;
}

}  // namespace penstock::transport
