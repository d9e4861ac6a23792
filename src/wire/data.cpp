#include "wire/data.hpp"

#include <algorithm>
#include <bit>

#include "wire/data_generated.h"
#include "wire/verified.hpp"

namespace penstock::wire {

namespace {

constexpr std::size_t max_data_message_bytes = std::size_t{16} << 20;
constexpr std::size_t max_reply_text_bytes = 4096;
constexpr std::uint8_t points_mark = 255;

[[noreturn]] void bad_piece(const char* why) {
  throw Error(Errc::protocol, std::string("a request for data with ") + why);
}

// Sizes and reach of a strided piece fit in 62 bits, and its first byte is not before the segment's.
void check_box(const DataPiece& piece) {
  constexpr auto limit = static_cast<__int128>(1) << 62;
  __int128 bytes = piece.elem_size;
  __int128 low = piece.offset;
  __int128 high = static_cast<__int128>(piece.offset) + piece.elem_size;
  for (std::uint32_t d = 0; d < piece.ndims; ++d) {
    if (piece.count[d] == 0) bad_piece("a zero count");
    if (piece.count[d] > 1 && piece.strides[d] == 0) bad_piece("a stride of zero");
    bytes *= piece.count[d];
    const __int128 span = static_cast<__int128>(piece.count[d] - 1) * piece.strides[d];
    (span < 0 ? low : high) += span;
    if (bytes > limit || high > limit || low < 0) bad_piece("a piece of impossible size");
  }
  if (high > limit) bad_piece("a piece of impossible size");
}

// Takes values off the front of a list that the peer made as long as it liked.
class DimsReader {
 public:
  explicit DimsReader(const flatbuffers::Vector<std::int64_t>* values) : values_(values) {}
  std::int64_t next() {
    if (values_ == nullptr || at_ >= values_->size()) bad_piece("too few dimensions");
    return values_->Get(at_++);
  }
  bool at_end() const { return at_ == (values_ == nullptr ? 0 : values_->size()); }

 private:
  const flatbuffers::Vector<std::int64_t>* values_;
  flatbuffers::uoffset_t at_ = 0;
};

DataPiece piece_of(const fb::DataPiece& in, DimsReader& dims, std::uint64_t& points_taken, std::uint64_t points) {
  DataPiece piece;
  piece.segment = in.segment();
  piece.elem_size = in.elem_size();
  piece.offset = in.offset();
  // The sizes that the copy kernels move as words; a longer run is a dimension of them.
  if (!std::has_single_bit(piece.elem_size) || piece.elem_size > 16) bad_piece("an impossible element size");
  if (in.ndims() == points_mark) {
    if (in.count() == 0 || in.count() > points - points_taken) bad_piece("too few points");
    piece.is_points = true;
    piece.first_point = static_cast<std::uint32_t>(points_taken);
    piece.point_count = static_cast<std::uint32_t>(in.count());
    points_taken += in.count();
    return piece;
  }
  if (in.ndims() > max_dims) bad_piece("too many dimensions");
  piece.ndims = in.ndims();
  for (std::uint32_t d = 0; d < piece.ndims; ++d) piece.count[d] = static_cast<std::uint64_t>(dims.next());
  for (std::uint32_t d = 0; d < piece.ndims; ++d) piece.strides[d] = dims.next();
  check_box(piece);
  return piece;
}

}  // namespace

std::uint64_t bytes_of(const DataPiece& piece) {
  if (piece.is_points) return std::uint64_t{piece.point_count} * piece.elem_size;
  std::uint64_t bytes = piece.elem_size;
  for (std::uint32_t d = 0; d < piece.ndims; ++d) bytes *= piece.count[d];
  return bytes;
}

Reach reach(const DataPiece& piece, std::span<const std::uint64_t> points) {
  if (piece.is_points) {
    const auto mine = points.subspan(piece.first_point, piece.point_count);
    const auto [least, greatest] = std::minmax_element(mine.begin(), mine.end());
    return {*least, *greatest + piece.elem_size};
  }
  auto low = static_cast<std::int64_t>(piece.offset);
  auto high = static_cast<std::int64_t>(piece.offset) + piece.elem_size;
  for (std::uint32_t d = 0; d < piece.ndims; ++d) {
    const std::int64_t span = static_cast<std::int64_t>(piece.count[d] - 1) * piece.strides[d];
    (span < 0 ? low : high) += span;
  }
  return {static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high)};
}

void encode(const DataRequest& request, std::vector<std::byte>& out) {
  thread_local std::vector<fb::DataPiece> pieces;
  thread_local std::vector<std::int64_t> dims;
  pieces.clear();
  dims.clear();
  for (const DataPiece& piece : request.pieces) {
    const auto ndims = piece.is_points ? points_mark : static_cast<std::uint8_t>(piece.ndims);
    pieces.emplace_back(piece.offset, piece.point_count, piece.segment, piece.elem_size, ndims);
    for (std::uint32_t d = 0; d < piece.ndims; ++d) dims.push_back(static_cast<std::int64_t>(piece.count[d]));
    dims.insert(dims.end(), piece.strides.begin(), piece.strides.begin() + piece.ndims);
  }
  auto& to = thread_builder();
  const auto piece_list = to.CreateVectorOfStructs(pieces.data(), pieces.size());
  const auto dim_list = to.CreateVector(dims.data(), dims.size());
  const auto point_list = to.CreateVector(request.points.data(), request.points.size());
  append(to, fb::CreateDataRequest(to, request.id, request.region, request.slot, piece_list, dim_list, point_list),
         out);
}

void encode(const DataReply& reply, std::vector<std::byte>& out) {
  auto& to = thread_builder();
  const auto message = reply.message.empty() ? 0 : to.CreateString(reply.message.substr(0, max_reply_text_bytes));
  append(to, fb::CreateDataReply(to, reply.id, static_cast<std::uint16_t>(reply.status), message, reply.bytes), out);
}

void encode(const SegmentAnnounce& announce, std::vector<std::byte>& out) {
  auto& to = thread_builder();
  append(to, fb::CreateSegmentAnnounce(to, announce.slot, announce.segment, announce.generation, announce.bytes), out);
}

void decode_data_request(std::span<const std::byte> bytes, DataRequest& out) {
  const Verified<fb::DataRequest> table(bytes, max_data_message_bytes, "request for data");
  out.clear();
  out.id = table->id();
  out.region = table->region();
  out.slot = table->slot();
  const auto* points = aligned(table->points());
  const std::uint64_t point_count = points == nullptr ? 0 : points->size();
  if (point_count > max_read_points) bad_piece("too many points");
  for (std::uint64_t i = 0; i < point_count; ++i) {
    const std::uint64_t point = points->Get(static_cast<flatbuffers::uoffset_t>(i));
    if (point > std::uint64_t{1} << 62) bad_piece("an impossible point");
    out.points.push_back(point);
  }
  DimsReader dims(aligned(table->dims()));
  std::uint64_t points_taken = 0;
  std::uint64_t total = 0;
  const auto* pieces = aligned(table->pieces());
  if (pieces == nullptr || pieces->size() == 0) bad_piece("no pieces");
  if (pieces->size() > max_read_pieces) bad_piece("too many pieces");
  for (const fb::DataPiece* piece : *pieces) {
    out.pieces.push_back(piece_of(*piece, dims, points_taken, point_count));
    const std::uint64_t size = bytes_of(out.pieces.back());
    if (size > max_read_bytes - total) bad_piece("more bytes than may be asked for at once");
    total += size;
  }
  if (!dims.at_end() || points_taken != point_count) bad_piece("dimensions or points to spare");
}

DataReply decode_data_reply(std::span<const std::byte> bytes) {
  const Verified<fb::DataReply> table(bytes, max_data_message_bytes, "reply with data");
  DataReply reply;
  reply.id = table->id();
  reply.status = static_cast<Errc>(table->status());
  if (table->message() != nullptr) reply.message = table->message()->str().substr(0, max_reply_text_bytes);
  reply.bytes = table->bytes();
  if (name_of(reply.status) == "unknown") throw Error(Errc::protocol, "a reply with an unknown status");
  if (reply.bytes > max_read_bytes) throw Error(Errc::protocol, "a reply of impossible size");
  return reply;
}

SegmentAnnounce decode_segment_announce(std::span<const std::byte> bytes) {
  const Verified<fb::SegmentAnnounce> table(bytes, max_data_message_bytes, "segment announcement");
  SegmentAnnounce announce{table->slot(), table->segment(), table->generation(), table->bytes()};
  if (announce.slot >= 1u << 16 || announce.segment >= 64 || announce.bytes > std::uint64_t{1} << 46)
    throw Error(Errc::protocol, "a segment announcement with impossible numbers");
  return announce;
}

}  // namespace penstock::wire
