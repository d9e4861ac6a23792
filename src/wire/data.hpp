// Messages of the data planes: reads of a writer rank's memory over a socket, and announcements of shared segments.
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

enum class DataKind : std::uint16_t { segment_announce = 0x8101, read_request = 0x8102, read_reply = 0x8103 };

inline constexpr std::size_t max_read_pieces = 1u << 16;     // in one request
inline constexpr std::uint64_t max_read_bytes = 1ull << 40;  // of one request's answer
inline constexpr std::size_t max_read_points = 1u << 20;     // in one request

// Part of a segment: elements at `offset` + index . strides, in row-major order of `count`; or single elements.
struct ReadPiece {
  std::uint32_t segment = 0;
  std::uint32_t elem_size = 1;
  std::uint64_t offset = 0;  // bytes from the segment's start to the first element
  std::uint32_t ndims = 0;
  std::array<std::uint64_t, max_dims> count{};
  std::array<std::int64_t, max_dims> strides{};  // bytes
  bool is_points = false;
  std::uint32_t first_point = 0;  // into ReadRequest::points
  std::uint32_t point_count = 0;
};

struct ReadRequest {
  std::uint64_t id = 0;
  std::uint64_t step = 0;
  std::uint32_t slot = 0;
  std::vector<ReadPiece> pieces;
  std::vector<std::uint64_t> points;  // bytes from the segment's start

  void clear() {
    pieces.clear();
    points.clear();
  }
};

// The bytes of a piece's answer.
std::uint64_t bytes_of(const ReadPiece& piece);
// The range [first, last) of segment bytes that a piece touches. Decoded pieces do not overflow.
struct Reach {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};
Reach reach(const ReadPiece& piece, std::span<const std::uint64_t> points);

// Followed by `bytes` raw bytes and, when there are any, by one trailer: a little-endian std::uint64_t, 0 when the step
// was still there at the end, else the code of the error that makes the bytes worthless.
struct ReadReply {
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

void encode(const ReadRequest&, std::vector<std::byte>& out);
void encode(const ReadReply&, std::vector<std::byte>& out);
void encode(const SegmentAnnounce&, std::vector<std::byte>& out);

void decode_read_request(std::span<const std::byte> bytes, ReadRequest& out);
ReadReply decode_read_reply(std::span<const std::byte> bytes);
SegmentAnnounce decode_segment_announce(std::span<const std::byte> bytes);

}  // namespace penstock::wire
