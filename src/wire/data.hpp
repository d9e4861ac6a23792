// Messages that move memory: reads and writes over a socket, and announcements of shared segments.
//
// encode_* append to `out`, whose capacity is reused; decode_* verify the bytes and every field's range, fill or return
// owned values (reusing their capacity) and throw Error(protocol). Whether a piece lies inside its segment is for the
// server to check: reach() gives what must be inside.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/types.hpp"

namespace penstock::wire {

enum class DataKind : std::uint16_t {
  segment_announce = 0x8101,
  read_request = 0x8102,   // a DataRequest
  reply = 0x8103,          // a DataReply
  write_request = 0x8104,  // a DataRequest of one piece of bytes; the bytes follow, and a trailer as of a reply
};

inline constexpr std::size_t max_read_pieces = 1u << 16;     // in one request
inline constexpr std::uint64_t max_read_bytes = 1ull << 40;  // of one request's answer
inline constexpr std::size_t max_read_points = 1u << 20;     // in one request

// Part of a segment: elements at `offset` + index . strides, in row-major order of `count`; or single elements.
struct DataPiece {
  std::uint32_t segment = 0;
  std::uint32_t elem_size = 1;
  std::uint64_t offset = 0;  // bytes from the segment's start to the first element
  std::uint32_t ndims = 0;
  std::array<std::uint64_t, max_dims> count{};
  std::array<std::int64_t, max_dims> strides{};  // bytes
  bool is_points = false;
  std::uint32_t first_point = 0;  // into DataRequest::points
  std::uint32_t point_count = 0;
};

// Of a writer's memory: the step that a slot holds. Of bulk memory: an exposure, in slot 0 and segment 0.
struct DataRequest {
  std::uint64_t id = 0;
  std::uint64_t region = 0;
  std::uint32_t slot = 0;
  std::vector<DataPiece> pieces;
  std::vector<std::uint64_t> points;  // bytes from the segment's start

  void clear() {
    pieces.clear();
    points.clear();
  }
};

// The bytes of a piece's answer.
std::uint64_t bytes_of(const DataPiece& piece);
// The range [first, last) of segment bytes that a piece touches. Decoded pieces do not overflow.
struct Reach {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};
Reach reach(const DataPiece& piece, std::span<const std::uint64_t> points);

// Followed by `bytes` raw bytes and, when there are any, by one trailer: a little-endian std::uint64_t, 0 when the memory
// was still there at the end, else the code of the error that makes the bytes worthless. The answer to a write has none.
struct DataReply {
  std::uint64_t id = 0;
  Errc status = Errc::ok;
  std::string message;
  std::uint64_t bytes = 0;
};

// bytes == 0 (and no descriptor): the slot's segments older than this generation are gone.
struct SegmentAnnounce {
  std::uint32_t slot = 0;
  std::uint32_t segment = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
};

void encode(const DataRequest&, std::vector<std::byte>& out);
void encode(const DataReply&, std::vector<std::byte>& out);
void encode(const SegmentAnnounce&, std::vector<std::byte>& out);

void decode_data_request(std::span<const std::byte> bytes, DataRequest& out);
DataReply decode_data_reply(std::span<const std::byte> bytes);
SegmentAnnounce decode_segment_announce(std::span<const std::byte> bytes);

}  // namespace penstock::wire
