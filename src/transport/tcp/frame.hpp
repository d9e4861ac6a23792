// Pieces of what a link sends: a message with its frame's header, and bytes in place of those that are gone. This module's own.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "fabric/connection.hpp"
#include "transport/transfer_limits.hpp"
#include "wire/data.hpp"

namespace penstock::transport {

template <class Message>
void encode_frame(wire::DataKind kind, const Message& message, std::vector<std::byte>& out) {
  out.assign(sizeof(fabric::FrameHeader), std::byte{0});
  encode(message, out);
  const fabric::FrameHeader header{static_cast<std::uint32_t>(out.size() - sizeof(fabric::FrameHeader)),
                                   static_cast<std::uint16_t>(kind), 0};
  std::memcpy(out.data(), &header, sizeof header);
}

// Sent in place of bytes that are gone: batch_bytes of them, never written, so they take no memory.
inline std::span<std::byte> nothing() {
  static std::byte bytes[batch_bytes];
  return bytes;
}
// A sink for the bytes of dropped transfers. Used by one thread: the links that need it belong to the SocketLoop.
inline std::span<std::byte> waste() {
  static std::byte bytes[64 << 10];
  return bytes;
}

// Puts zeros in place of all parts that lie neither in the frame nor in the trailer. False when there were none.
inline bool replace_body(std::span<iovec> parts, std::span<const std::byte> frame, const std::uint64_t& trailer) {
  const auto inside = [](const void* at, std::span<const std::byte> of) {
    return at >= of.data() && at < of.data() + of.size();
  };
  bool any = false;
  for (iovec& part : parts) {
    if (inside(part.iov_base, frame) || inside(part.iov_base, std::as_bytes(std::span(&trailer, 1)))) continue;
    part.iov_base = nothing().data();
    any = true;
  }
  return any;
}

}  // namespace penstock::transport
