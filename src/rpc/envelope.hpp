// What travels on the control connection of a channel: frames of items. An item is a call, a reply, an error, a cancellation,
// or control of bulk memory; those of one turn share a frame, in order. Frames that carry a descriptor hold one thing each.
//
// An item: header, fields of its type, body; little-endian, padded to 8 bytes. ItemReader checks lengths, types and ranges
// (throws Error(protocol)) and copies nothing. Pure; no I/O.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::rpc {

static_assert(std::endian::native == std::endian::little, "the wire's byte order is this machine's");

enum class FrameKind : std::uint16_t {
  items = 0x0101,
  segment = 0x0102,   // SegmentFrame, with the descriptor of a memory file
  leases = 0x0103,    // LeasesFrame, with the descriptor of the words that say who uses what
  ticket = 0x0104,    // Ticket: first on a bulk connection, from the side that connects
  admitted = 0x0105,  // empty: the answer to it; what follows is bulk (rpc/bulk_wire.hpp)
};

enum class ItemType : std::uint16_t {
  call = 1,
  reply = 2,
  failure = 3,    // of a call or an atomic
  cancel = 4,     // of a call
  release = 5,    // the body of a long reply has been pulled
  welcome = 6,    // the listening side's ticket for a bulk connection
  want_bulk = 7,  // the listening side needs the bulk connection; the connecting side has it
  atomic = 8,
  atomic_reply = 9,
  forget = 10,  // a segment, by its number: it is no more
};

using Ticket = std::array<std::uint8_t, 16>;

// A descriptor as it travels outside of a FlatBuffer.
struct WireBulk {
  std::uint64_t id = 0, bytes = 0, offset = 0;
  std::uint32_t segment = 0;
  std::uint32_t access = 0;
};
static_assert(sizeof(WireBulk) == 32);

enum class AtomicOp : std::uint32_t { fetch_add = 1, compare_swap = 2 };
struct WireAtomic {
  std::uint64_t exposure = 0, offset = 0;
  std::uint64_t a = 0, b = 0;  // add: a; compare-and-swap: expected, desired
  AtomicOp op = AtomicOp::fetch_add;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(WireAtomic) == 40);

struct SegmentFrame {
  std::uint64_t bytes = 0;
  std::uint32_t segment = 0;   // never 0
  std::uint32_t writable = 0;  // 0 or 1
};
static_assert(sizeof(SegmentFrame) == 16);
struct LeasesFrame {
  std::uint64_t bytes = 0;
};

inline constexpr std::uint32_t no_deadline = 0xffffffff;
inline constexpr std::size_t max_where_bytes = 512;
inline constexpr std::size_t max_message_bytes = 8192;

// One item, as decoded; views into the frame. Which fields mean something follows from the type.
struct Item {
  ItemType type = ItemType::cancel;
  std::uint64_t id = 0;               // of the call or atomic, chosen by who makes it; forget: the segment
  std::uint64_t service = 0;          // call: service_id of its name
  std::uint32_t method = 0;           // call
  std::uint32_t deadline_ms = 0;      // call: what is left of it
  std::span<const std::byte> body;    // call, reply: unless it is long
  std::optional<WireBulk> long_body;  // call, reply: where the receiver can pull it
  Errc code = Errc::ok;               // failure
  std::string_view where, message;    // failure
  Ticket ticket{};                    // welcome
  WireAtomic atomic;                  // atomic
  std::uint64_t value = 0;            // atomic_reply
};

class ItemReader {
 public:
  explicit ItemReader(std::span<const std::byte> frame) : rest_(frame) {}
  // Nothing at the end of the frame. Throws Error(protocol).
  std::optional<Item> next();

 private:
  std::span<const std::byte> rest_;
};

void append_call(std::vector<std::byte>& out, std::uint64_t id, std::uint64_t service, std::uint32_t method,
                 std::uint32_t deadline_ms, std::span<const std::byte> body);
void append_long_call(std::vector<std::byte>& out, std::uint64_t id, std::uint64_t service, std::uint32_t method,
                      std::uint32_t deadline_ms, const WireBulk& body);
void append_reply(std::vector<std::byte>& out, std::uint64_t id, std::span<const std::byte> body);
void append_long_reply(std::vector<std::byte>& out, std::uint64_t id, const WireBulk& body);
// Texts that are too long are cut.
void append_failure(std::vector<std::byte>& out, std::uint64_t id, Errc code, std::string_view where,
                    std::string_view message);
void append_plain(std::vector<std::byte>& out, ItemType type, std::uint64_t id);  // cancel, release, want_bulk, forget
void append_welcome(std::vector<std::byte>& out, const Ticket& ticket);
void append_atomic(std::vector<std::byte>& out, std::uint64_t id, const WireAtomic& atomic);
void append_atomic_reply(std::vector<std::byte>& out, std::uint64_t id, std::uint64_t before);

// Frames that are not items. Throw Error(protocol).
SegmentFrame decode_segment(std::span<const std::byte> bytes);
LeasesFrame decode_leases(std::span<const std::byte> bytes);
Ticket decode_ticket(std::span<const std::byte> bytes);

// Codes that this side does not know become internal; ok is no failure.
Errc checked_code(std::int64_t code);

}  // namespace penstock::rpc
