// The handshake: its messages, and both state machines fed with frames of any kind.
#include "fabric/handshake.hpp"
#include "fuzz.hpp"
#include "wire/handshake.hpp"
#include "wire/versions.hpp"

using namespace penstock;
using fuzz::Bytes;

namespace {

enum Target : std::uint8_t { hello, challenge, proof, refused, server, client, targets };

const fabric::Token token{};

// One frame: a byte for its kind, and the rest. Nothing made up may pass.
template <class Machine>
void feed(Machine& machine, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto kind = static_cast<std::uint16_t>(0x8000 + std::to_integer<std::uint16_t>(bytes[0]));
  fuzz::refuses_with({Errc::protocol, Errc::authentication, Errc::unsupported, Errc::overloaded},
                     [&] { machine.receive(kind, bytes.subspan(1)); });
  fuzz::check(!machine.done());
}

wire::Hello some_hello(std::uint32_t version = wire::stream_protocol) {
  wire::Hello h;
  h.version = version;
  h.stream = "heat";
  h.name = "node:17";
  return h;
}

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<Bytes> all;
  Bytes bytes;
  wire::encode(some_hello(), bytes);
  all.push_back(choose(hello, bytes));
  all.push_back(choose(server, choose(1, bytes)));
  bytes.clear();
  wire::encode(some_hello(wire::stream_protocol + 1), bytes);
  all.push_back(choose(server, choose(1, bytes)));
  bytes.clear();
  wire::encode(wire::Challenge{.name = "node:18", .nonce = {}, .mac = {}}, bytes);
  all.push_back(choose(challenge, bytes));
  all.push_back(choose(client, choose(2, bytes)));
  bytes.clear();
  wire::encode_proof({}, bytes);
  all.push_back(choose(proof, bytes));
  all.push_back(choose(server, choose(3, bytes)));
  bytes.clear();
  encode(wire::Refused{"no such stream"}, bytes);
  all.push_back(choose(refused, bytes));
  all.push_back(choose(client, choose(5, bytes)));
  bytes.clear();
  encode(wire::Refused{"try again", Errc::overloaded}, bytes);
  all.push_back(choose(client, choose(5, bytes)));
  bytes.clear();
  encode(wire::Refused{"another version", Errc::unsupported}, bytes);
  all.push_back(choose(refused, bytes));
  all.push_back(choose(client, choose(5, bytes)));
  all.push_back(choose(client, choose(4, std::string_view())));
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % targets) {
    case hello: fuzz::refuses_with({Errc::protocol}, [&] { wire::decode_hello(bytes); }); break;
    case challenge: fuzz::refuses_with({Errc::protocol}, [&] { wire::decode_challenge(bytes); }); break;
    case proof: fuzz::refuses_with({Errc::protocol}, [&] { wire::decode_proof(bytes); }); break;
    case refused: fuzz::refuses_with({Errc::protocol}, [&] { wire::decode_refused(bytes); }); break;
    case server: {
      fabric::ServerHandshake machine(token, "heat");
      feed(machine, bytes);
      break;
    }
    case client: {
      fabric::ClientHandshake machine(token, some_hello());
      machine.start();
      feed(machine, bytes);
      break;
    }
  }
  return 0;
}
