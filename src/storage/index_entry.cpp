#include "storage/index_entry.hpp"

#include "storage/little_endian.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {

namespace {

constexpr std::uint8_t entry_format = 1;
constexpr std::size_t head_bytes = std::tuple_size_v<IndexHead>;

[[noreturn]] void refuse_entry() { throw Error(Errc::protocol, "an entry of the index is damaged"); }

}  // namespace

IndexHead encode_index_head(const IndexEntry& entry) {
  IndexHead out{};
  write_little(out.data(), entry_format);
  write_little(out.data() + 1, static_cast<std::uint8_t>(entry.where));
  write_little(out.data() + 2, static_cast<std::uint8_t>(entry.synced));
  write_little(out.data() + 4, static_cast<std::uint32_t>(entry.metadata.size()));
  write_little(out.data() + 8, entry.number);
  write_little(out.data() + 16, entry.data_bytes);
  write_little(out.data() + 24, entry.checksum);
  return out;
}

IndexEntry decode_index_entry(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  if (bytes.size() < head_bytes || read_little<std::uint8_t>(bytes, 0) != entry_format) refuse_entry();
  IndexEntry entry;
  const auto where = read_little<std::uint8_t>(bytes, 1), synced = read_little<std::uint8_t>(bytes, 2);
  const auto metadata_bytes = read_little<std::uint32_t>(bytes, 4);
  if (where > static_cast<std::uint8_t>(IndexEntry::Where::file) || synced > 1) refuse_entry();
  entry.where = static_cast<IndexEntry::Where>(where);
  entry.synced = synced == 1;
  entry.number = read_little<std::uint64_t>(bytes, 8);
  entry.data_bytes = read_little<std::uint64_t>(bytes, 16);
  entry.checksum = read_little<std::uint64_t>(bytes, 24);
  if (metadata_bytes > max_metadata_bytes || metadata_bytes > bytes.size() - head_bytes ||
      entry.data_bytes > max_data_bytes)
    refuse_entry();
  entry.metadata = text.substr(head_bytes, metadata_bytes);
  entry.data = text.substr(head_bytes + metadata_bytes);
  if (entry.data.size() != (entry.where == IndexEntry::Where::here ? entry.data_bytes : 0)) refuse_entry();
  return entry;
}

}  // namespace penstock::storage
