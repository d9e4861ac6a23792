#include "wire/handshake.hpp"

#include <algorithm>

#include "wire/handshake_generated.h"
#include "wire/verified.hpp"

namespace penstock::wire {

namespace {

constexpr std::size_t max_stream_bytes = 128;
constexpr std::size_t max_name_bytes = 256;
constexpr std::size_t max_plane_bytes = 16;
constexpr std::size_t max_reason_bytes = 1024;

using Builder = flatbuffers::FlatBufferBuilder;

std::string limited_text(const flatbuffers::String* text, std::size_t limit, const char* what) {
  if (text == nullptr) return {};
  if (text->size() > limit) throw Error(Errc::protocol, std::string(what) + " is too long");
  return text->str();
}

std::array<std::uint8_t, 32> key_of(const flatbuffers::Vector<std::uint8_t>* bytes, const char* what) {
  std::array<std::uint8_t, 32> out{};
  if (bytes == nullptr || bytes->size() != out.size())
    throw Error(Errc::protocol, std::string(what) + " is not 32 bytes long");
  std::copy_n(bytes->data(), out.size(), out.begin());
  return out;
}

}  // namespace

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::join: return "join";
    case Purpose::tree: return "tree";
    case Purpose::data: return "data";
    case Purpose::segments: return "segments";
    case Purpose::inspect: return "inspect";
    case Purpose::rpc: return "rpc";
    case Purpose::bulk: return "bulk";
  }
  return "unknown";
}

const char* name_of(HandshakeKind kind) {
  switch (kind) {
    case HandshakeKind::hello: return "hello";
    case HandshakeKind::challenge: return "challenge";
    case HandshakeKind::proof: return "proof";
    case HandshakeKind::welcome: return "welcome";
    case HandshakeKind::refused: return "refused";
  }
  return "unknown";
}

void encode(const Hello& hello, std::vector<std::byte>& out) {
  Builder builder(512);
  const auto stream = builder.CreateString(hello.stream);
  const auto name = builder.CreateString(hello.name);
  const auto nonce = builder.CreateVector(hello.nonce.data(), hello.nonce.size());
  const auto plane = hello.plane.empty() ? 0 : builder.CreateString(hello.plane);
  append(builder,
         fb::CreateHello(builder, hello.version, static_cast<std::uint8_t>(hello.purpose), hello.rank, stream, name,
                         nonce, plane),
         out);
}

void encode(const Challenge& challenge, std::vector<std::byte>& out) {
  Builder builder(512);
  const auto name = builder.CreateString(challenge.name);
  const auto nonce = builder.CreateVector(challenge.nonce.data(), challenge.nonce.size());
  const auto mac = builder.CreateVector(challenge.mac.data(), challenge.mac.size());
  append(builder, fb::CreateChallenge(builder, name, nonce, mac), out);
}

void encode_proof(const Mac& mac, std::vector<std::byte>& out) {
  Builder builder(128);
  append(builder, fb::CreateProof(builder, builder.CreateVector(mac.data(), mac.size())), out);
}

void encode(const Refused& refused, std::vector<std::byte>& out) {
  Builder builder(256);
  const auto reason = builder.CreateString(refused.reason.substr(0, max_reason_bytes));
  append(builder, fb::CreateRefused(builder, reason, static_cast<std::uint16_t>(refused.code)), out);
}

Hello decode_hello(std::span<const std::byte> bytes) {
  const Verified<fb::Hello> table(bytes, max_handshake_bytes, "hello");
  if (table->purpose() < static_cast<std::uint8_t>(Purpose::join) ||
      table->purpose() > static_cast<std::uint8_t>(Purpose::bulk))
    throw Error(Errc::protocol, "a hello with unknown purpose " + std::to_string(table->purpose()));
  Hello hello;
  hello.version = table->protocol_version();
  hello.purpose = static_cast<Purpose>(table->purpose());
  hello.rank = table->rank();
  hello.stream = limited_text(table->stream(), max_stream_bytes, "a hello's stream name");
  hello.name = limited_text(table->name(), max_name_bytes, "a hello's process name");
  hello.nonce = key_of(table->nonce(), "a hello's nonce");
  hello.plane = limited_text(table->plane(), max_plane_bytes, "a hello's plane");
  return hello;
}

Challenge decode_challenge(std::span<const std::byte> bytes) {
  const Verified<fb::Challenge> table(bytes, max_handshake_bytes, "challenge");
  Challenge challenge;
  challenge.name = limited_text(table->name(), max_name_bytes, "a challenge's process name");
  challenge.nonce = key_of(table->nonce(), "a challenge's nonce");
  challenge.mac = key_of(table->mac(), "a challenge's proof");
  return challenge;
}

Mac decode_proof(std::span<const std::byte> bytes) {
  return key_of(Verified<fb::Proof>(bytes, max_handshake_bytes, "proof")->mac(), "a proof");
}

Refused decode_refused(std::span<const std::byte> bytes) {
  const Verified<fb::Refused> table(bytes, max_handshake_bytes, "refusal");
  Refused refused;
  refused.reason = limited_text(table->reason(), max_reason_bytes, "a refusal's reason");
  for (const Errc code : {Errc::unsupported, Errc::overloaded})
    if (table->code() == static_cast<std::uint16_t>(code)) refused.code = code;
  return refused;
}

}  // namespace penstock::wire
