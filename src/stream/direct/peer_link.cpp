#include "stream/direct/peer_link.hpp"

#include "penstock/error.hpp"

namespace penstock::stream {
namespace {

using wire::Kind;

// Fixed size, and harmless if it overtakes what is on the connection (reader_protocol.hpp waits for a step's epoch).
bool fits_ring(Kind kind) {
  switch (kind) {
    case Kind::announce:
    case Kind::dropped:
    case Kind::goodbye:
    case Kind::want:
    case Kind::release: return true;
    default: return false;
  }
}

}  // namespace

void PeerLink::connect(std::shared_ptr<fabric::Connection> connection) {
  connection_ = std::move(connection);
  for (const auto& message : kept_) send_on_connection(message);
  kept_.clear();
}

void PeerLink::offer_ring(const memory::Doorbell& own_bell) {
  if (!ring_) ring_ = std::make_unique<memory::RingEnd>();
  connection_->send(static_cast<std::uint16_t>(Kind::mailbox), "mailbox", {}, ring_->fd());
  connection_->send(static_cast<std::uint16_t>(Kind::doorbell), "doorbell", {}, own_bell.fd());
}

void PeerLink::accept_mailbox(int fd) {
  if (!ring_) ring_ = std::make_unique<memory::RingEnd>();
  if (ring_->attached()) throw Error(Errc::protocol, "a second mailbox");
  ring_->attach(fd);
}

void PeerLink::accept_doorbell(int fd) { peer_bell_ = memory::Doorbell::attach(fd); }

void PeerLink::send(const wire::Message& message) {
  if (!connection_) {
    kept_.push_back(message);
    return;
  }
  if (!ring_ready() || !fits_ring(message.kind)) {
    send_on_connection(message);
    return;
  }
  memory::Record record;
  record.kind = static_cast<std::uint32_t>(message.kind);
  record.a = message.slot;
  record.b = message.step;
  record.c = message.epoch;
  record.d = message.value;
  bool pushed = false;
  try {
    pushed = ring_->push(record);
  } catch (const Error&) {
  }
  if (!pushed) {  // only a broken peer lets its ring fill: records in flight are bounded by the number of slots
    failed_ = true;
    return;
  }
  if (message.kind == Kind::announce) announcement_bytes_ += sizeof(record);
  peer_bell_.ring();
  // On-demand delivery, and the end, need an answer even while the peer's application is busy elsewhere.
  if (poke_ || message.kind == Kind::want || message.kind == Kind::goodbye)
    send_on_connection(wire::Message{.kind = Kind::poke});
}

void PeerLink::send_on_connection(const wire::Message& message) {
  scratch_.clear();
  wire::encode(message, scratch_);
  if (message.kind == Kind::announce) announcement_bytes_ += sizeof(fabric::FrameHeader) + scratch_.size();
  // A large cohort's layouts may come to more than a connection queues at once. They are as many as there are slots, for
  // each goes before a step that the peer has still to answer.
  const bool owed = !message.layouts.empty();
  connection_->send(static_cast<std::uint16_t>(message.kind), wire::name_of(message.kind), scratch_, -1, owed);
}

bool PeerLink::pop(wire::Message& message) {
  if (!ring_ || !ring_->attached()) return false;
  memory::Record record;
  if (!ring_->pop(record)) return false;
  if (record.kind == 0 || record.kind >= wire::kind_count || !fits_ring(static_cast<Kind>(record.kind)) ||
      record.a > wire::max_slots)
    throw Error(Errc::protocol, "a ring record of kind " + std::to_string(record.kind));
  message.kind = static_cast<Kind>(record.kind);
  message.slot = record.a;
  message.step = record.b;
  message.epoch = record.c;
  message.value = record.d;
  return true;
}

}  // namespace penstock::stream
