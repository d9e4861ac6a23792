#include "storage/index_entry.hpp"

#include "storage/little_endian.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {

namespace {

constexpr std::uint8_t format = 1;
constexpr std::size_t head_bytes = 32;

[[noreturn]] void refuse() { throw Error(Errc::protocol, "an entry of the index is damaged"); }

}  // namespace

std::string encode_index_head(const IndexEntry& entry) {
  std::string out;
  out.reserve(head_bytes);
  append_little(out, format);
  append_little(out, static_cast<std::uint8_t>(entry.where));
  append_little(out, static_cast<std::uint8_t>(entry.synced));
  append_little(out, std::uint8_t{0});
  append_little(out, static_cast<std::uint32_t>(entry.metadata.size()));
  append_little(out, entry.number);
  append_little(out, entry.data_bytes);
  append_little(out, entry.checksum);
  return out;
}

IndexEntry decode_index_entry(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  if (bytes.size() < head_bytes || read_little<std::uint8_t>(bytes, 0) != format) refuse();
  IndexEntry entry;
  const auto where = read_little<std::uint8_t>(bytes, 1), synced = read_little<std::uint8_t>(bytes, 2);
  const auto metadata_bytes = read_little<std::uint32_t>(bytes, 4);
  if (where > static_cast<std::uint8_t>(IndexEntry::Where::file) || synced > 1) refuse();
  entry.where = static_cast<IndexEntry::Where>(where);
  entry.synced = synced == 1;
  entry.number = read_little<std::uint64_t>(bytes, 8);
  entry.data_bytes = read_little<std::uint64_t>(bytes, 16);
  entry.checksum = read_little<std::uint64_t>(bytes, 24);
  if (metadata_bytes > max_metadata_bytes || metadata_bytes > bytes.size() - head_bytes ||
      entry.data_bytes > max_data_bytes)
    refuse();
  entry.metadata = text.substr(head_bytes, metadata_bytes);
  entry.data = text.substr(head_bytes + metadata_bytes);
  if (entry.data.size() != (entry.where == IndexEntry::Where::here ? entry.data_bytes : 0)) refuse();
  return entry;
}

}  // namespace penstock::storage
