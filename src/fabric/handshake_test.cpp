#include "fabric/handshake.hpp"
#include "base/test_support.hpp"
#include "wire/versions.hpp"

#include <gtest/gtest.h>

namespace penstock::fabric {
namespace {

using wire::HandshakeKind;
using wire::Purpose;

std::uint16_t kind(HandshakeKind k) { return static_cast<std::uint16_t>(k); }

wire::Hello hello() { return {.purpose = Purpose::data, .rank = 3, .stream = "heat"}; }

TEST(Handshake, BothSidesProveTheToken) {
  const Token token = Token::random();
  ClientHandshake client(token, hello());
  ServerHandshake server(token, "heat");
  const auto first = client.start();
  const auto challenge = server.receive(kind(first.kind), first.bytes);
  ASSERT_TRUE(challenge);
  EXPECT_FALSE(server.done());
  const auto proof = client.receive(kind(challenge->kind), challenge->bytes);
  ASSERT_TRUE(proof);
  const auto welcome = server.receive(kind(proof->kind), proof->bytes);
  ASSERT_TRUE(welcome);
  EXPECT_TRUE(server.done());
  EXPECT_FALSE(client.done());
  EXPECT_FALSE(client.receive(kind(welcome->kind), welcome->bytes));
  EXPECT_TRUE(client.done());
  EXPECT_EQ(server.hello().rank, 3u);
  EXPECT_EQ(server.hello().purpose, Purpose::data);
  EXPECT_EQ(server.hello().name, process_name());
  EXPECT_EQ(client.server_name(), process_name());
}

TEST(Handshake, WrongTokensAreRefusedByBothSides) {
  const Token right = Token::random();
  ClientHandshake client(Token::random(), hello());
  ServerHandshake server(right, "heat");
  const auto first = client.start();
  const auto challenge = server.receive(kind(first.kind), first.bytes);
  EXPECT_EQ(code_of([&] { client.receive(kind(challenge->kind), challenge->bytes); }), Errc::authentication);
  std::vector<std::byte> proof;
  wire::encode_proof({}, proof);
  EXPECT_EQ(code_of([&] { server.receive(kind(HandshakeKind::proof), proof); }), Errc::authentication);
}

TEST(Handshake, ProofsCannotBeReplayedReflectedOrMoved) {
  const Token token = Token::random();
  ClientHandshake client(token, hello());
  ServerHandshake server(token, "heat");
  auto first = client.start();
  const auto challenge = server.receive(kind(first.kind), first.bytes);
  const auto proof = client.receive(kind(challenge->kind), challenge->bytes);
  // The server's own mac, sent back.
  std::vector<std::byte> reflected;
  wire::encode_proof(wire::decode_challenge(challenge->bytes).mac, reflected);
  ServerHandshake same = server;
  EXPECT_EQ(code_of([&] { same.receive(kind(HandshakeKind::proof), reflected); }), Errc::authentication);
  // An earlier proof, to a server with a new nonce.
  ServerHandshake other(token, "heat");
  other.receive(kind(first.kind), first.bytes);
  EXPECT_EQ(code_of([&] { other.receive(kind(proof->kind), proof->bytes); }), Errc::authentication);
  // A hello changed on the way.
  auto changed = wire::decode_hello(first.bytes);
  changed.purpose = Purpose::join;
  std::vector<std::byte> bytes;
  encode(changed, bytes);
  ClientHandshake victim(token, hello());
  victim.start();
  ServerHandshake third(token, "heat");
  const auto answer = third.receive(kind(HandshakeKind::hello), bytes);
  EXPECT_EQ(code_of([&] { victim.receive(kind(answer->kind), answer->bytes); }), Errc::authentication);
}

TEST(Handshake, NonsenseIsRefused) {
  const Token token = Token::random();
  ServerHandshake server(token, "heat");
  EXPECT_EQ(code_of([&] { server.receive(5, {}); }), Errc::protocol);
  EXPECT_EQ(code_of([&] { server.receive(kind(HandshakeKind::hello), {}); }), Errc::protocol);
  EXPECT_EQ(code_of([&] { server.receive(kind(HandshakeKind::proof), {}); }), Errc::protocol);
  ServerHandshake elsewhere(token, "other");
  ClientHandshake client(token, hello());
  const auto first = client.start();
  Error failure(Errc::ok, "");
  try {
    elsewhere.receive(kind(first.kind), first.bytes);
    FAIL();
  } catch (const Error& error) {
    failure = error;
  }
  EXPECT_EQ(failure.code(), Errc::authentication);
  const auto refusal = ServerHandshake::refusal(failure);
  try {
    client.receive(kind(refusal.kind), refusal.bytes);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::authentication);
    EXPECT_NE(std::string(error.what()).find("heat"), std::string::npos);
  }
}

// A double of another build, on either side: what it says is all that is known of it.
TEST(Handshake, AnotherVersionIsRefusedAndBothAreNamed) {
  const Token token = Token::random();
  for (const auto purpose : {Purpose::join, Purpose::data, Purpose::rpc, Purpose::bulk}) {
    const auto ours = wire::protocol_of(purpose);
    auto newer = hello();
    newer.purpose = purpose;
    newer.version = ours.version + 1;
    newer.name = "node1:42";
    ClientHandshake client(token, newer);
    ServerHandshake server(token, "heat");
    const auto first = client.start();
    Error refused(Errc::ok, "");
    try {
      server.receive(kind(first.kind), first.bytes);
      FAIL();
    } catch (const Error& error) {
      refused = error;
    }
    EXPECT_EQ(refused.code(), Errc::unsupported);
    const auto refusal = ServerHandshake::refusal(refused);
    try {
      client.receive(kind(refusal.kind), refusal.bytes);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::unsupported);
      const std::string text = error.what(), name(ours.name);
      EXPECT_NE(text.find("node1:42 speaks version " + std::to_string(ours.version + 1) + " of the " + name),
                std::string::npos)
          << text;
      EXPECT_NE(text.find(process_name() + " version " + std::to_string(ours.version)), std::string::npos) << text;
      EXPECT_NE(text.find("the same release"), std::string::npos) << text;
    }
  }
  // The version is part of what is proved: nobody between can change it.
  ClientHandshake client(token, hello());
  auto changed = wire::decode_hello(client.start().bytes);
  EXPECT_EQ(changed.version, wire::stream_protocol);
}

TEST(Token, HexRoundTrips) {
  const Token token = Token::random();
  EXPECT_EQ(Token::from_hex(token.hex()), token);
  EXPECT_NE(Token::random(), token);
  EXPECT_EQ(code_of([] { Token::from_hex("abc"); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { Token::from_hex(std::string(64, 'x')); }), Errc::invalid_argument);
}

}  // namespace
}  // namespace penstock::fabric
