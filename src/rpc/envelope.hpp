// What travels on the control connection of a channel: frames of items. An item is a call, a reply, an error, a cancellation,
// or a message of the channel's bulk memory; those of one turn share a frame, in order. A message with a descriptor is a frame.
//
// An item: header, fields of its type, body; little-endian, padded to 8 bytes. ItemReader checks lengths, types and ranges
// (throws Error(protocol)) and copies nothing. Pure; no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/error.hpp"
#include "transport/bulk_messages.hpp"

namespace penstock::rpc {

enum class FrameKind : std::uint16_t {
  items = 0x0101,
  link = 0x0102,  // a message of the bulk memory (transport/bulk_messages.hpp) with a descriptor
};

enum class ItemType : std::uint16_t {
  call = 1,
  reply = 2,
  failure = 3,  // of a call
  cancel = 4,   // of a call
  release = 5,  // the body of a long reply has been pulled
  link = 6,     // a message of the bulk memory
};

inline constexpr std::uint32_t no_deadline = 0xffffffff;
inline constexpr std::size_t max_where_bytes = 512;
inline constexpr std::size_t max_message_bytes = 8192;

using transport::WireBulk;

// One item, as decoded; views into the frame. Which fields mean something follows from the type.
struct Item {
  ItemType type = ItemType::cancel;
  std::uint64_t id = 0;               // of the call, chosen by who makes it
  std::uint64_t service = 0;          // call: service_id of its name
  std::uint32_t method = 0;           // call
  std::uint32_t deadline_ms = 0;      // call: what is left of it
  std::span<const std::byte> body;    // call, reply: unless it is long; link
  std::optional<WireBulk> long_body;  // call, reply: where the receiver can pull it
  Errc code = Errc::ok;               // failure
  std::string_view where, message;    // failure
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
void append_plain(std::vector<std::byte>& out, ItemType type, std::uint64_t id);  // cancel, release
void append_link(std::vector<std::byte>& out, std::span<const std::byte> message);

}  // namespace penstock::rpc
