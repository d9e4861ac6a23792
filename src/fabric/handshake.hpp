// The handshake's state machines, without I/O: bytes of frames in, frames out. Used by the engine and by blocking code.
//
// Both sides prove that they know the token by an HMAC-SHA256 over a role label, everything said before and both nonces,
// so no proof can be replayed, reflected or used for another purpose, stream or rank. Macs are compared in constant time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/token.hpp"
#include "penstock/error.hpp"
#include "wire/handshake.hpp"

namespace penstock::fabric {

struct HandshakeFrame {
  wire::HandshakeKind kind = wire::HandshakeKind::hello;
  std::vector<std::byte> bytes;
};

// Client: send start(), then feed each frame received to receive() and send what it returns, until done().
class ClientHandshake {
 public:
  // hello.nonce and, if empty, hello.name are filled in.
  ClientHandshake(const Token& token, wire::Hello hello);
  HandshakeFrame start();
  // Throws Error: authentication (the server does not know this token, or refused ours), unsupported (it is of another
  // version), protocol.
  std::optional<HandshakeFrame> receive(std::uint16_t kind, std::span<const std::byte> bytes);
  bool done() const { return state_ == State::done; }
  const std::string& server_name() const { return challenge_.name; }

 private:
  enum class State { hello, proof, done };
  Token token_;
  wire::Hello hello_;
  wire::Challenge challenge_;
  State state_ = State::hello;
};

// Server: feed each frame received to receive() and send what it returns, until done(). When it throws
// Error(authentication, unsupported or protocol), send refusal() and close.
class ServerHandshake {
 public:
  ServerHandshake(const Token& token, std::string stream);
  // One listener for many names, each with a token of its own: the hello's stream says which.
  explicit ServerHandshake(TokenOf token_of) : token_of_(std::move(token_of)) {}
  std::optional<HandshakeFrame> receive(std::uint16_t kind, std::span<const std::byte> bytes);
  bool done() const { return state_ == State::done; }
  const wire::Hello& hello() const { return hello_; }
  static HandshakeFrame refusal(const Error& error);

 private:
  enum class State { hello, proof, done };
  Token token_;
  TokenOf token_of_;  // empty: token_ is for stream_
  std::string stream_;
  wire::Hello hello_;
  wire::Challenge challenge_;
  State state_ = State::hello;
};

// "host:pid" of this process.
std::string process_name();
std::string host_name();  // "unknown" where it has none

}  // namespace penstock::fabric
