// Messages of the handshake. The client says hello, the server proves that it knows the token and challenges, the client
// proves it too, the server welcomes; or either side stops, the server with a reason.
//
//   client: hello(nonce)   server: challenge(nonce, mac)   client: proof(mac)   server: welcome | refused(reason)
//
// decode_* verify the bytes and every field's range and return owned values; they throw Error(protocol).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::wire {

// Frame kinds of the handshake; other messages use other ranges.
enum class HandshakeKind : std::uint16_t {
  hello = 0x8001,
  challenge = 0x8002,
  proof = 0x8003,
  welcome = 0x8004,
  refused = 0x8005,
};

// rpc: the control connection of a channel of remote calls; bulk: its second connection, for memory.
enum class Purpose : std::uint8_t { join = 1, tree = 2, data = 3, segments = 4, inspect = 5, rpc = 6, bulk = 7 };
const char* name_of(Purpose);
const char* name_of(HandshakeKind);

// Of one message of the handshake.
inline constexpr std::size_t max_handshake_bytes = 4096;

using Nonce = std::array<std::uint8_t, 32>;
using Mac = std::array<std::uint8_t, 32>;

struct Hello {
  std::uint32_t version = 0;  // of its purpose's protocol (wire/versions.hpp); 0: this build's, filled by the handshake
  Purpose purpose = Purpose::join;
  std::uint32_t rank = 0;  // of the connecting side, in its own cohort
  std::string stream;      // at most 128 bytes
  std::string name;        // "host:pid" of the connecting process, for messages; at most 256 bytes
  Nonce nonce{};           // filled by the handshake
  // The plane (transport/planes.hpp) of a connection of purpose data or bulk; of purpose rpc: of the channel's bulk memory, ""
  // for the best. At most 16 bytes.
  std::string plane;
};
struct Challenge {
  std::string name;  // "host:pid" of the answering process
  Nonce nonce{};
  Mac mac{};
};

void encode(const Hello&, std::vector<std::byte>& out);
void encode(const Challenge&, std::vector<std::byte>& out);
void encode_proof(const Mac&, std::vector<std::byte>& out);
// code: what the other end throws: unsupported, overloaded (try again), or else authentication.
struct Refused {
  std::string reason;
  Errc code = Errc::authentication;
};
void encode(const Refused&, std::vector<std::byte>& out);

Hello decode_hello(std::span<const std::byte> bytes);
Challenge decode_challenge(std::span<const std::byte> bytes);
Mac decode_proof(std::span<const std::byte> bytes);
Refused decode_refused(std::span<const std::byte> bytes);

}  // namespace penstock::wire
