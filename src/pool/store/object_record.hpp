// How an object is written to a tier: its key there, and what is kept beside its bytes. Pure; any thread.
//
// A tier's key is the packed key and the version, 8 bytes, big-endian: every version is an entry of its own, so that a newer
// one never replaces an older one before it is whole, and a scan gives the versions of a key in order.
// The metadata of an entry is the user's metadata and, behind it, a trailer (a tier may look at how the user's begins):
//   [tag u64, if there is one] [put_us i64] [flags u8] [format u8], little-endian
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::pool {

struct ObjectRecord {
  std::int64_t put_us = 0;
  std::optional<std::uint64_t> tag;
  bool keep_older = false;  // older versions stay valid; else they are void once this one is there
  std::string_view metadata;
};
// Of the bytes behind the user's metadata.
inline constexpr std::size_t max_record_trailer_bytes = 18;

std::string encode_record(const ObjectRecord& record);
// metadata points into `bytes`. Throws Error(protocol).
ObjectRecord decode_record(std::string_view bytes);

std::string tier_key(std::string_view packed_key, std::uint64_t version);
// The 8 bytes behind the packed key.
void write_version(char* to, std::uint64_t version);
struct TierKey {
  std::string_view packed_key;
  std::uint64_t version = 0;
};
// Points into `key`. Throws Error(protocol).
TierKey split_tier_key(std::string_view key);

}  // namespace penstock::pool
