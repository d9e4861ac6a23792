#include "fabric/handshake.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "wire/versions.hpp"

namespace penstock::fabric {

namespace {

using wire::HandshakeKind;

// Everything that the proofs are about, with lengths, so that no two transcripts have the same bytes.
std::string transcript(std::string_view role, const wire::Hello& hello, const std::string& server_name,
                       const wire::Nonce& server_nonce) {
  std::string out;
  const auto add = [&out](std::string_view part) {
    const auto size = static_cast<std::uint32_t>(part.size());
    for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(size >> shift));
    out.append(part);
  };
  const auto add_nonce = [&add](const wire::Nonce& nonce) {
    add({reinterpret_cast<const char*>(nonce.data()), nonce.size()});
  };
  add("penstock handshake");
  add(role);
  add(std::to_string(hello.version));
  add(wire::name_of(hello.purpose));
  add(std::to_string(hello.rank));
  add(hello.stream);
  add(hello.plane);
  add(hello.name);
  add_nonce(hello.nonce);
  add(server_name);
  add_nonce(server_nonce);
  return out;
}

wire::Mac mac_of(const Token& token, const std::string& text) {
  wire::Mac mac{};
  unsigned int size = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  if (HMAC(EVP_sha256(), token.bytes.data(), static_cast<int>(token.bytes.size()), data, text.size(), mac.data(),
           &size) == nullptr ||
      size != mac.size())
    throw Error(Errc::internal, "HMAC-SHA256 is not available");
  return mac;
}

bool equal(const wire::Mac& a, const wire::Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

wire::Nonce new_nonce() {
  wire::Nonce nonce{};
  const std::string bytes = base::random_bytes(nonce.size());
  std::copy(bytes.begin(), bytes.end(), nonce.begin());
  return nonce;
}

// The hello's reader may be a build of years later.
void require_version(const wire::Hello& hello) {
  const auto ours = wire::protocol_of(hello.purpose);
  if (hello.version == ours.version) return;
  throw Error(Errc::unsupported, hello.name + " speaks version " + std::to_string(hello.version) + " of the " +
                                     std::string(ours.name) + ", " + process_name() + " version " +
                                     std::to_string(ours.version) +
                                     ": run programs and servers of the same release of Penstock");
}

void require(std::uint16_t kind, HandshakeKind expected, const char* what) {
  if (kind != static_cast<std::uint16_t>(expected))
    throw Error(Errc::protocol, std::string("expected a ") + what + ", got message kind " + std::to_string(kind));
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string process_name() {
  std::string name = host_name();
  if (name.size() > 200) name.resize(200);
  return name + ":" + std::to_string(::getpid());
}

ClientHandshake::ClientHandshake(const Token& token, wire::Hello hello) : token_(token), hello_(std::move(hello)) {
  hello_.nonce = new_nonce();
  if (hello_.name.empty()) hello_.name = process_name();
  if (hello_.version == 0) hello_.version = wire::protocol_of(hello_.purpose).version;
}

HandshakeFrame ClientHandshake::start() {
  HandshakeFrame frame{HandshakeKind::hello, {}};
  encode(hello_, frame.bytes);
  return frame;
}

std::optional<HandshakeFrame> ClientHandshake::receive(std::uint16_t kind, std::span<const std::byte> bytes) {
  if (kind == static_cast<std::uint16_t>(HandshakeKind::refused)) {
    const auto refused = wire::decode_refused(bytes);
    throw Error(refused.code, "refused: " + refused.reason);
  }
  switch (state_) {
    case State::hello: {
      require(kind, HandshakeKind::challenge, "challenge");
      challenge_ = wire::decode_challenge(bytes);
      if (!equal(challenge_.mac, mac_of(token_, transcript("server", hello_, challenge_.name, challenge_.nonce))))
        throw Error(Errc::authentication,
                    "the process at the other end does not know this token: it is wrong or out of date");
      HandshakeFrame frame{HandshakeKind::proof, {}};
      wire::encode_proof(mac_of(token_, transcript("client", hello_, challenge_.name, challenge_.nonce)), frame.bytes);
      state_ = State::proof;
      return frame;
    }
    case State::proof:
      require(kind, HandshakeKind::welcome, "welcome");
      state_ = State::done;
      return std::nullopt;
    case State::done: break;
  }
  throw Error(Errc::protocol, "a handshake message after the handshake");
}

ServerHandshake::ServerHandshake(const Token& token, std::string stream) : token_(token), stream_(std::move(stream)) {}

std::optional<HandshakeFrame> ServerHandshake::receive(std::uint16_t kind, std::span<const std::byte> bytes) {
  switch (state_) {
    case State::hello: {
      require(kind, HandshakeKind::hello, "hello");
      hello_ = wire::decode_hello(bytes);
      require_version(hello_);
      if (token_of_) {
        const auto token = token_of_(hello_.stream);
        if (!token) throw Error(Errc::authentication, "nothing named '" + hello_.stream + "' is offered here");
        token_ = *token;
        stream_ = hello_.stream;
      }
      if (hello_.stream != stream_)
        throw Error(Errc::authentication, "no stream '" + hello_.stream + "' is written here");
      challenge_.name = process_name();
      challenge_.nonce = new_nonce();
      challenge_.mac = mac_of(token_, transcript("server", hello_, challenge_.name, challenge_.nonce));
      HandshakeFrame frame{HandshakeKind::challenge, {}};
      encode(challenge_, frame.bytes);
      state_ = State::proof;
      return frame;
    }
    case State::proof: {
      require(kind, HandshakeKind::proof, "proof");
      const wire::Mac expected = mac_of(token_, transcript("client", hello_, challenge_.name, challenge_.nonce));
      if (!equal(wire::decode_proof(bytes), expected))
        throw Error(Errc::authentication, "the token of '" + stream_ + "' was not proved");
      state_ = State::done;
      return HandshakeFrame{HandshakeKind::welcome, {}};
    }
    case State::done: break;
  }
  throw Error(Errc::protocol, "a handshake message after the handshake");
}

HandshakeFrame ServerHandshake::refusal(const Error& error) {
  HandshakeFrame frame{HandshakeKind::refused, {}};
  encode(wire::Refused{error.what(), error.code()}, frame.bytes);
  return frame;
}

}  // namespace penstock::fabric
