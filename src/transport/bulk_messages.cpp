#include "transport/bulk_messages.hpp"

#include <cstring>

#include "base/known_code.hpp"

namespace penstock::transport {

namespace {

[[noreturn]] void refuse_message(const char* what) { throw Error(Errc::protocol, what); }

}  // namespace

std::vector<std::byte> encode(const BulkMessage& message, std::string_view text) {
  text = text.substr(0, max_failure_bytes);
  std::vector<std::byte> out(sizeof message + text.size());
  std::memcpy(out.data(), &message, sizeof message);
  if (!text.empty()) std::memcpy(out.data() + sizeof message, text.data(), text.size());
  return out;
}

BulkMessage decode_bulk_message(std::span<const std::byte> bytes, std::string_view& text) {
  BulkMessage message;
  if (bytes.size() < sizeof message || bytes.size() > sizeof message + max_failure_bytes)
    refuse_message("a message about bulk memory of an impossible length");
  std::memcpy(&message, bytes.data(), sizeof message);
  const auto rest = bytes.subspan(sizeof message);
  text = {reinterpret_cast<const char*>(rest.data()), rest.size()};
  if (!rest.empty() && message.kind != BulkMessageKind::atomic_failure)
    refuse_message("a message about bulk memory that is longer than it says");
  switch (message.kind) {
    case BulkMessageKind::segment:
      if (message.id == 0 || message.id > ~std::uint32_t{0} || message.a == 0 || message.a > std::uint64_t{1} << 46 ||
          message.code > 1)
        refuse_message("a malformed announcement of memory");
      break;
    case BulkMessageKind::leases:
      if (message.a == 0 || message.a > std::uint64_t{1} << 24 || message.a % 8 != 0)
        refuse_message("a malformed announcement of leases");
      break;
    case BulkMessageKind::atomic_failure:
      message.code = static_cast<std::uint32_t>(base::known_code(message.code));
      break;
    case BulkMessageKind::forget:
    case BulkMessageKind::welcome:
    case BulkMessageKind::want_link:
    case BulkMessageKind::fetch_add:
    case BulkMessageKind::compare_swap:
    case BulkMessageKind::atomic_reply: break;
    default: refuse_message("a message about bulk memory of an unknown kind");
  }
  return message;
}

Ticket decode_ticket(std::span<const std::byte> bytes) {
  Ticket ticket;
  if (bytes.size() != sizeof ticket) refuse_message("a malformed ticket");
  std::memcpy(&ticket, bytes.data(), sizeof ticket);
  return ticket;
}

}  // namespace penstock::transport
