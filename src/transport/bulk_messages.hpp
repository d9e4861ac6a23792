// What the two sides of a BulkSpace tell each other about it, over the control connection that carries it (Carrier), and how
// a bulk connection begins. Little-endian. decode_* throw Error(protocol). Pure; no I/O.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::transport {

static_assert(std::endian::native == std::endian::little, "the wire's byte order is this machine's");

// A descriptor as it travels outside of a FlatBuffer.
struct WireBulk {
  std::uint64_t id = 0, bytes = 0, offset = 0;
  std::uint32_t segment = 0;
  std::uint32_t access = 0;
};
static_assert(sizeof(WireBulk) == 32);

// Shown first on a bulk connection.
using Ticket = std::array<std::uint8_t, 16>;

// Frames that open a bulk connection.
enum class LinkFrame : std::uint16_t {
  ticket = 0x0104,    // Ticket: first, from the side that connects
  admitted = 0x0105,  // empty: the answer to it; what follows is a Link (tcp/link.hpp)
};

enum class BulkMessageKind : std::uint32_t {
  segment = 1,    // with the descriptor of a memory file; id: its number (never 0), code: 1 for writing, a: its bytes
  leases = 2,     // with the descriptor of the words that say who uses what; a: their bytes
  forget = 3,     // id: of a segment that is no more
  welcome = 4,    // the listening side's ticket for a bulk connection; code: not 0 where it does not offer the plane
  want_link = 5,  // the listening side needs the bulk connection; the connecting side has it
  fetch_add = 6,  // id: of the request; a: exposure, b: offset, c: value
  compare_swap = 7,    // likewise; c: expected, d: desired
  atomic_reply = 8,    // id: of the request; a: the value before
  atomic_failure = 9,  // id: of the request; code: an Errc; its message follows
};

struct BulkMessage {
  BulkMessageKind kind = BulkMessageKind::segment;
  std::uint32_t code = 0;
  std::uint64_t id = 0;
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
};
static_assert(sizeof(BulkMessage) == 48);

inline constexpr std::size_t max_failure_bytes = 8192;

// text: of a failure, cut when it is too long.
std::vector<std::byte> encode(const BulkMessage& message, std::string_view text = {});
// text: a view into the bytes. A failure's code is an Errc that this side knows.
BulkMessage decode_bulk_message(std::span<const std::byte> bytes, std::string_view& text);
Ticket decode_ticket(std::span<const std::byte> bytes);

}  // namespace penstock::transport
