#include "wire/data.hpp"

#include <gtest/gtest.h>

#include <random>

namespace penstock::wire {
namespace {

DataRequest sample_request() {
  DataRequest request;
  request.id = 3;
  request.region = 1ull << 40;
  request.slot = 2;
  DataPiece box{.segment = 1, .elem_size = 8, .offset = 4096, .ndims = 2};
  box.count = {10, 20};
  box.strides = {-160, 8};
  DataPiece points{.segment = 0, .elem_size = 4, .is_points = true, .first_point = 0, .point_count = 3};
  request.pieces = {box, points};
  request.points = {100, 40, 2000};
  return request;
}

TEST(DataRequest, RoundTrips) {
  std::vector<std::byte> bytes;
  encode(sample_request(), bytes);
  DataRequest out;
  decode_data_request(bytes, out);
  EXPECT_EQ(out.id, 3u);
  EXPECT_EQ(out.region, 1ull << 40);
  EXPECT_EQ(out.slot, 2u);
  ASSERT_EQ(out.pieces.size(), 2u);
  EXPECT_EQ(out.pieces[0].count[1], 20u);
  EXPECT_EQ(out.pieces[0].strides[0], -160);
  EXPECT_EQ(bytes_of(out.pieces[0]), 1600u);
  const Reach box = reach(out.pieces[0], out.points);
  EXPECT_EQ(box.first, 4096u - 9 * 160);
  EXPECT_EQ(box.last, 4096u + 160);
  EXPECT_EQ(out.points, sample_request().points);
  const Reach points = reach(out.pieces[1], out.points);
  EXPECT_EQ(points.first, 40u);
  EXPECT_EQ(points.last, 2004u);
  EXPECT_EQ(bytes_of(out.pieces[1]), 12u);
}

Errc decode_code(const DataRequest& request) {
  std::vector<std::byte> bytes;
  encode(request, bytes);
  DataRequest out;
  try {
    decode_data_request(bytes, out);
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::ok;
}

TEST(DataRequest, NonsenseIsRefused) {
  auto request = sample_request();
  request.pieces[0].count[0] = 0;
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request = sample_request();
  request.pieces[0].count = {1ull << 40, 1ull << 40};
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request = sample_request();
  request.pieces[0].strides[0] = -1'000'000;
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request = sample_request();
  request.pieces[0].strides[0] = INT64_MIN;
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request = sample_request();
  request.pieces[0].strides[0] = 0;  // the same bytes again and again
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request = sample_request();
  request.pieces[0].elem_size = 3;
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request = sample_request();
  request.pieces[0].offset = ~0ull;
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request = sample_request();
  request.pieces[1].point_count = 4;
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request = sample_request();
  request.pieces[1].point_count = 2;
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request = sample_request();
  request.points[1] = ~0ull;
  EXPECT_EQ(decode_code(request), Errc::protocol);
  request.pieces.clear();
  request.points.clear();
  EXPECT_EQ(decode_code(request), Errc::protocol);
}

TEST(DataReply, RoundTrips) {
  std::vector<std::byte> bytes;
  encode(DataReply{.id = 9, .status = Errc::step_gone, .message = "gone", .bytes = 5}, bytes);
  const DataReply reply = decode_data_reply(bytes);
  EXPECT_EQ(reply.id, 9u);
  EXPECT_EQ(reply.status, Errc::step_gone);
  EXPECT_EQ(reply.message, "gone");
  EXPECT_EQ(reply.bytes, 5u);
  bytes.clear();
  encode(DataReply{.status = static_cast<Errc>(999)}, bytes);
  EXPECT_THROW(decode_data_reply(bytes), Error);
}

TEST(SegmentAnnounce, RoundTripsAndIsChecked) {
  std::vector<std::byte> bytes;
  encode(SegmentAnnounce{1, 2, 3, 4096}, bytes);
  const auto announce = decode_segment_announce(bytes);
  EXPECT_EQ(announce.slot, 1u);
  EXPECT_EQ(announce.segment, 2u);
  EXPECT_EQ(announce.generation, 3u);
  EXPECT_EQ(announce.bytes, 4096u);
  bytes.clear();
  encode(SegmentAnnounce{1, 64, 3, 4096}, bytes);
  EXPECT_THROW(decode_segment_announce(bytes), Error);
}

TEST(DataMessages, DamagedBytesThrowOrDecode) {
  std::vector<std::byte> request, reply, announce;
  encode(sample_request(), request);
  encode(DataReply{.id = 9, .status = Errc::step_gone, .message = "gone", .bytes = 5}, reply);
  encode(SegmentAnnounce{1, 2, 3, 4096}, announce);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  DataRequest out;
  for (int i = 0; i < 60'000; ++i) {
    auto bytes = i % 3 == 0 ? request : i % 3 == 1 ? reply : announce;
    for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 2 == 0) bytes.resize(random() % (bytes.size() + 1));
    try {
      if (i % 3 == 0) {
        decode_data_request(bytes, out);
        for (const auto& piece : out.pieces) EXPECT_LE(reach(piece, out.points).first, reach(piece, out.points).last);
      } else if (i % 3 == 1) {
        decode_data_reply(bytes);
      } else {
        decode_segment_announce(bytes);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::protocol);
    }
  }
}

}  // namespace
}  // namespace penstock::wire
