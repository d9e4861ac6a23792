// Messages of the data planes. A decoded request has sizes and a reach that can be computed without overflow.
#include "fuzz.hpp"
#include "wire/data.hpp"

using namespace penstock;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { request, reply, announce, targets };

void check_request(std::span<const std::byte> bytes) {
  wire::DataRequest r;
  if (!fuzz::refuses_with({Errc::protocol}, [&] { wire::decode_data_request(bytes, r); })) return;
  std::uint64_t total = 0;
  for (const auto& piece : r.pieces) {
    const auto reach = wire::reach(piece, r.points);
    fuzz::check(reach.first <= reach.last);
    total += wire::bytes_of(piece);
  }
  fuzz::check(total <= wire::max_read_bytes && r.pieces.size() <= wire::max_read_pieces &&
              r.points.size() <= wire::max_read_points);
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<Bytes> all;
  wire::DataRequest r{.id = 1, .region = 2, .slot = 3, .pieces = {}, .points = {8, 16, 4096}};
  wire::DataPiece box{.segment = 0, .elem_size = 8, .offset = 64, .ndims = 3};
  box.count = {4, 5, 6};
  box.strides = {4096, 64, -8};
  box.offset = 4096;
  r.pieces.push_back(box);
  r.pieces.push_back({.segment = 1, .elem_size = 4, .is_points = true, .first_point = 0, .point_count = 3});
  Bytes bytes;
  wire::encode(r, bytes);
  all.push_back(choose(request, bytes));
  for (const auto code : {Errc::ok, Errc::step_gone}) {
    bytes.clear();
    wire::encode(wire::DataReply{.id = 1, .status = code, .message = code == Errc::ok ? "" : "gone", .bytes = 960},
                 bytes);
    all.push_back(choose(reply, bytes));
  }
  bytes.clear();
  wire::encode(wire::SegmentAnnounce{.slot = 1, .segment = 2, .generation = 3, .bytes = 1 << 20}, bytes);
  all.push_back(choose(announce, bytes));
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % targets) {
    case request: check_request(bytes); break;
    case reply: fuzz::refuses_with({Errc::protocol}, [&] { wire::decode_data_reply(bytes); }); break;
    case announce: fuzz::refuses_with({Errc::protocol}, [&] { wire::decode_segment_announce(bytes); }); break;
  }
  return 0;
}
