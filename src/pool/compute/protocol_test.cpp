// Messages between server and workers: what is encoded decodes to the same, and nothing else decodes.
#include "pool/compute/protocol.hpp"

#include <gtest/gtest.h>

namespace penstock::pool::compute {

namespace {

CallMessage example_call() {
  CallMessage call;
  call.id = 7;
  call.result_bytes = 1 << 20;
  call.module = "/opt/functions.py";
  call.function = "energy";
  call.arguments = R"({"bins": 3})";
  call.inputs.push_back({std::string("a\0b", 3), DType::float64, {4, 8}, Dims{1, 2}, 0, 4096, 256});
  call.inputs.push_back({"raw", DType::none, {}, std::nullopt, 1, 0, 99});
  return call;
}

Reply example_reply() {
  Reply reply;
  reply.id = 7;
  reply.dtype = DType::int64;
  reply.shape = {2};
  reply.bytes = 16;
  reply.info = "{}";
  reply.data.resize(16, std::byte{3});
  return reply;
}

template <class F>
bool refuses(F decode) {
  try {
    decode();
    return false;
  } catch (const Error& error) {
    return error.code() == Errc::protocol;
  }
}

TEST(ComputeProtocol, RoundTrips) {
  const auto call = decode_call(encode(example_call()));
  EXPECT_EQ(encode(call), encode(example_call()));
  EXPECT_EQ(call.inputs[0].name, std::string("a\0b", 3));
  EXPECT_EQ(call.inputs[0].start, (Dims{1, 2}));
  EXPECT_EQ(call.inputs[1].bytes, 99u);
  const auto reply = decode_reply(encode(example_reply()));
  EXPECT_EQ(encode(reply), encode(example_reply()));
  EXPECT_EQ(reply.data.size(), 16u);
  const Hello hello{WorkerKind::python, {"a", "b"}, {"c: broken"}};
  EXPECT_EQ(decode_hello(encode(hello)).problems, hello.problems);
  EXPECT_EQ(decode_segment(encode(SegmentMessage{3, 4096})).file_bytes, 4096u);
  EXPECT_EQ(decode_file(encode(FileMessage{1, 2})).bytes, 2u);
}

TEST(ComputeProtocol, EveryTruncationIsRefused) {
  const auto call = encode(example_call());
  for (std::size_t size = 0; size < call.size(); ++size)
    EXPECT_TRUE(refuses([&] { decode_call(std::span(call).first(size)); })) << size;
  const auto reply = encode(example_reply());
  for (std::size_t size = 0; size < reply.size(); ++size)
    EXPECT_TRUE(refuses([&] { decode_reply(std::span(reply).first(size)); })) << size;
  const auto hello = encode(Hello{WorkerKind::native, {"a"}, {"b"}});
  for (std::size_t size = 0; size < hello.size(); ++size)
    EXPECT_TRUE(refuses([&] { decode_hello(std::span(hello).first(size)); })) << size;
  auto longer = reply;
  longer.push_back({});
  EXPECT_TRUE(refuses([&] { decode_reply(longer); }));
}

TEST(ComputeProtocol, RangesAreChecked) {
  auto reply = example_reply();
  reply.shape = {std::uint64_t{1} << 61, 8};
  EXPECT_TRUE(refuses([&] { decode_reply(encode(reply)); }));
  reply = example_reply();
  reply.status = Errc::stale_view;
  EXPECT_TRUE(refuses([&] { decode_reply(encode(reply)); }));
  reply = example_reply();
  reply.dtype = DType::string;
  reply.shape = {};
  EXPECT_TRUE(refuses([&] { decode_reply(encode(reply)); }));
  auto call = example_call();
  call.inputs[0].offset = ~std::uint64_t{0};
  EXPECT_TRUE(refuses([&] { decode_call(encode(call)); }));
}

TEST(ComputeProtocol, TextForPeople) {
  EXPECT_EQ(printable("a\x1b[31mb\nc\x7f", 100), "a [31mb\nc ");
  EXPECT_EQ(printable("abcdef", 3), "abc");
}

}  // namespace
}  // namespace penstock::pool::compute
