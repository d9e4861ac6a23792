#include "wire/handshake.hpp"

#include <gtest/gtest.h>

#include <random>

#include "penstock/error.hpp"

namespace penstock::wire {
namespace {

Hello sample_hello() {
  Hello hello{
      .version = 3, .purpose = Purpose::segments, .rank = 7, .stream = "heat", .name = "node1:42", .plane = "tcp"};
  for (std::size_t i = 0; i < hello.nonce.size(); ++i) hello.nonce[i] = static_cast<std::uint8_t>(i);
  return hello;
}

TEST(HandshakeMessages, RoundTrip) {
  std::vector<std::byte> bytes;
  encode(sample_hello(), bytes);
  const Hello hello = decode_hello(bytes);
  EXPECT_EQ(hello.version, 3u);
  EXPECT_EQ(hello.purpose, Purpose::segments);
  EXPECT_EQ(hello.rank, 7u);
  EXPECT_EQ(hello.stream, "heat");
  EXPECT_EQ(hello.name, "node1:42");
  EXPECT_EQ(hello.nonce, sample_hello().nonce);

  Challenge challenge{.name = "node2:1"};
  challenge.nonce[3] = 9;
  challenge.mac[31] = 8;
  bytes.clear();
  encode(challenge, bytes);
  EXPECT_EQ(decode_challenge(bytes).nonce, challenge.nonce);
  EXPECT_EQ(decode_challenge(bytes).mac, challenge.mac);

  bytes.clear();
  encode_proof(challenge.mac, bytes);
  EXPECT_EQ(decode_proof(bytes), challenge.mac);

  bytes.clear();
  encode(Refused{"not you"}, bytes);
  EXPECT_EQ(decode_refused(bytes).reason, "not you");
  EXPECT_EQ(decode_refused(bytes).code, Errc::authentication);
  bytes.clear();
  encode(Refused{"too old", Errc::unsupported}, bytes);
  EXPECT_EQ(decode_refused(bytes).code, Errc::unsupported);
  bytes.clear();
  encode(Refused{"odd", Errc::memory}, bytes);
  EXPECT_EQ(decode_refused(bytes).code, Errc::authentication) << "a peer chooses no other error";
}

TEST(HandshakeMessages, FieldsAreChecked) {
  std::vector<std::byte> bytes;
  Hello hello = sample_hello();
  hello.stream.assign(200, 'x');
  encode(hello, bytes);
  EXPECT_THROW(decode_hello(bytes), Error);
  hello = sample_hello();
  hello.purpose = static_cast<Purpose>(99);
  bytes.clear();
  encode(hello, bytes);
  EXPECT_THROW(decode_hello(bytes), Error);
  EXPECT_THROW(decode_hello({}), Error);
}

TEST(HandshakeMessages, DamagedBytesThrowOrDecode) {
  std::vector<std::byte> good;
  encode(sample_hello(), good);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = good;
    for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    bytes.resize(random() % (bytes.size() + 1));
    // At every alignment, as they come out of a socket's buffer.
    std::vector<std::byte> shifted(bytes.size() + 8);
    const std::size_t shift = random() % 8;
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + static_cast<std::ptrdiff_t>(shift));
    const std::span<const std::byte> span(shifted.data() + shift, bytes.size());
    try {
      decode_hello(span);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::protocol);
    }
  }
}

}  // namespace
}  // namespace penstock::wire
