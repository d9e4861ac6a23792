#include "pool/store/object_record.hpp"

#include "penstock/error.hpp"

namespace penstock::pool {

namespace {

constexpr std::uint8_t format = 1;
enum Flags : std::uint8_t { tagged = 1, keeps_older = 2, known = 3 };

void append_little(std::string& out, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

std::uint64_t read_little(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(bytes[i]);
  return value;
}

// Cuts `count` bytes off the end.
std::string_view take_back(std::string_view& bytes, std::size_t count) {
  if (bytes.size() < count) throw Error(Errc::protocol, "the record of an object on disk is too short");
  const auto part = bytes.substr(bytes.size() - count);
  bytes.remove_suffix(count);
  return part;
}

}  // namespace

std::string encode_record(const ObjectRecord& record) {
  std::string out;
  out.reserve(record.metadata.size() + max_record_trailer_bytes - (record.tag ? 0 : 8));  // or no memory of its own
  out.append(record.metadata);
  if (record.tag) append_little(out, *record.tag);
  append_little(out, static_cast<std::uint64_t>(record.put_us));
  out.push_back(static_cast<char>((record.tag ? tagged : 0) | (record.keep_older ? keeps_older : 0)));
  out.push_back(static_cast<char>(format));
  return out;
}

ObjectRecord decode_record(std::string_view bytes) {
  ObjectRecord record;
  const auto head = take_back(bytes, 2);
  const auto flags = static_cast<std::uint8_t>(head[0]);
  if (static_cast<std::uint8_t>(head[1]) != format || (flags & ~known) != 0)
    throw Error(Errc::protocol, "the record of an object on disk has a format that is not known here");
  record.put_us = static_cast<std::int64_t>(read_little(take_back(bytes, 8)));
  if ((flags & tagged) != 0) record.tag = read_little(take_back(bytes, 8));
  record.keep_older = (flags & keeps_older) != 0;
  record.metadata = bytes;
  return record;
}

std::string tier_key(std::string_view packed_key, std::uint64_t version) {
  std::string key(packed_key.size() + 8, '\0');
  packed_key.copy(key.data(), packed_key.size());
  write_version(key.data() + packed_key.size(), version);
  return key;
}

void write_version(char* to, std::uint64_t version) {
  for (int shift = 56; shift >= 0; shift -= 8) *to++ = static_cast<char>(version >> shift);
}

TierKey split_tier_key(std::string_view key) {
  if (key.size() < 8) throw Error(Errc::protocol, "a key on disk is too short");
  TierKey parts{key.substr(0, key.size() - 8), 0};
  for (const char byte : key.substr(key.size() - 8))
    parts.version = parts.version << 8 | static_cast<std::uint8_t>(byte);
  return parts;
}

}  // namespace penstock::pool
