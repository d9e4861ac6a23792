// What bulk memory needs of the connection between its two sides: a channel of remote calls, or whatever else connects two
// processes and passes messages of a BulkSpace on. And what that owner does with its side (LinkEnd).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fabric/connect.hpp"
#include "fabric/progress.hpp"
#include "memory/unique_fd.hpp"
#include "penstock/error.hpp"
#include "transport/bulk.hpp"
#include "transport/bulk_messages.hpp"
#include "transport/planes.hpp"

namespace penstock::transport {

class Carrier {
 public:
  virtual ~Carrier() = default;
  // To the peer's side, in order with what else is sent. name: of the fault point. fd: sent along; stays the caller's; -1: none.
  // Nothing is sent after the end. Any thread.
  virtual void pass(std::string_view name, std::span<const std::byte> message, int fd) = 0;
  // Keeps the connection, and with it the BulkSpace, as long as the result lives. Null after the end.
  virtual std::shared_ptr<void> keep() = 0;
  // For those that may outlive the connection.
  virtual std::weak_ptr<Carrier> weak() = 0;
  virtual bool ended() const = 0;
  // Ends the connection. Engine thread.
  virtual void fail(const Error& error) = 0;
  virtual bool local() const = 0;          // to a process on this node, which can receive descriptors
  virtual const Plane* plane() const = 0;  // the one that the connecting side has chosen; null: the best
  virtual const std::string& peer_name() const = 0;
  virtual const std::shared_ptr<fabric::Progress>& engine() const = 0;
};

// How the connecting side opens the bulk connection.
struct BulkDoor {
  fabric::Endpoint endpoint;
  fabric::Token token;
  std::string name;  // what the listener knows the two by
};

// A BulkSpace, as the owner of its carrier sees it. Engine thread.
class LinkEnd : public BulkSpace {
 public:
  // What the peer's side has passed. Throws Error(protocol, memory, system).
  virtual void on_message(std::span<const std::byte> bytes, memory::UniqueFd fd) = 0;
  virtual void end(const Error& error) = 0;
  // The side that accepts: its ticket, and the connection of a peer that had it (blocking mode).
  // refused: the plane that the peer has chosen is not to be had here; the peer ends the channel.
  virtual Ticket make_ticket(bool refused) = 0;
  virtual void attach(memory::UniqueFd socket) = 0;
  // The side that connects.
  virtual void set_door(BulkDoor door) = 0;
};

// The carrier owns it.
std::unique_ptr<LinkEnd> make_link_end(Carrier& carrier);

// The plane of that name, on which bulk memory can be moved here. "": null, the best. Throws Error(unsupported).
const Plane* bulk_plane(std::string_view name);
// Likewise, for a peer that has named it: only the automatic ones, and the one that is offered (or null).
const Plane* bulk_plane(std::string_view named, const Plane* offered);

inline BulkDescriptor to_descriptor(const WireBulk& b) {
  return BulkDescriptor(b.id, b.bytes, b.offset, b.segment, static_cast<std::uint8_t>(b.access));
}
inline WireBulk to_wire(const BulkDescriptor& b) { return {b.id(), b.bytes(), b.offset(), b.segment(), b.access()}; }

}  // namespace penstock::transport
