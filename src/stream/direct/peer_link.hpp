// The way to one neighbour: a control connection and, to the other cohort's root on the same node, a pair of rings.
//
// Small messages of the steady state go through the rings and wake the peer's caller directly; everything else, and
// everything off the node, goes over the connection. Before a connection is there messages are kept in order.
// Used with the engine's lock held.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "fabric/connection.hpp"
#include "memory/doorbell.hpp"
#include "memory/ring.hpp"
#include "wire/control.hpp"

namespace penstock::stream {

class PeerLink {
 public:
  PeerLink() = default;
  explicit PeerLink(std::shared_ptr<fabric::Connection> connection) : connection_(std::move(connection)) {}

  void connect(std::shared_ptr<fabric::Connection> connection);
  const std::shared_ptr<fabric::Connection>& connection() const { return connection_; }
  bool connected() const { return connection_ != nullptr; }

  // Sends our mailbox and doorbell. Throws Error(memory).
  void offer_ring(const memory::Doorbell& own_bell);
  // Takes the peer's. Throws Error(protocol).
  void accept_mailbox(int fd);
  void accept_doorbell(int fd);
  bool has_mailbox() const { return ring_ && ring_->attached(); }
  bool ring_ready() const { return ring_ && ring_->attached() && peer_bell_; }
  // The peer's engine thread must look at every record at once: it has ranks to pass it on to.
  void set_poke(bool poke) { poke_ = poke; }

  void send(const wire::Message& message);
  // The peer broke the rules of its ring: drop it.
  bool failed() const { return failed_; }
  // The next message from the peer's ring. Throws Error(protocol).
  bool pop(wire::Message& message);

  // Sent for announcements of steps.
  std::uint64_t announcement_bytes() const { return announcement_bytes_; }

 private:
  void send_on_connection(const wire::Message& message);

  std::shared_ptr<fabric::Connection> connection_;
  std::unique_ptr<memory::RingEnd> ring_;
  memory::Doorbell peer_bell_;
  bool poke_ = false;
  bool failed_ = false;
  std::uint64_t announcement_bytes_ = 0;
  std::vector<wire::Message> kept_;
  std::vector<std::byte> scratch_;
};

}  // namespace penstock::stream
