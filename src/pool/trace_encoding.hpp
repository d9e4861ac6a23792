// How a trace's entries lie in bytes; shared by writer and reader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pool/trace.hpp"

namespace penstock::pool {

inline constexpr std::string_view trace_magic = "PNSTRACE";
inline constexpr std::uint32_t trace_block_magic = 0x31425450;  // "PTB1"
inline constexpr std::size_t trace_prefix_bytes = 24;           // magic, version, length, checksum
inline constexpr std::size_t trace_block_prefix_bytes = 16;     // magic, length, checksum

enum class TraceEntry : std::uint8_t { text = 1, forget = 2, client = 3, record = 4 };

namespace trace_flags {
inline constexpr std::uint64_t batch = 1, asynchronous = 2, existing = 4, wait = 8;
inline constexpr std::uint64_t tag = 16, version = 32, part = 64, sizes = 128, one_size = 256, text = 512,
                               limits = 1024;
inline constexpr unsigned if_exists_shift = 11, acknowledge_shift = 13;  // two bits each
inline constexpr std::uint64_t all = (std::uint64_t{1} << 15) - 1;
}  // namespace trace_flags

inline void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}
// Small numbers of either sign.
inline std::uint64_t zigzag(std::int64_t value) {
  return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
}
inline std::int64_t unzigzag(std::uint64_t value) { return static_cast<std::int64_t>(value >> 1 ^ (~(value & 1) + 1)); }
inline void append_text(std::string& to, std::string_view text) {
  append_varint(to, text.size());
  to += text;
}

}  // namespace penstock::pool
