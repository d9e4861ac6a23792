#include "storage/object_header.hpp"

#include <gtest/gtest.h>

#include "storage/index_entry.hpp"
#include "storage/little_endian.hpp"
#include "storage/tier.hpp"

namespace penstock::storage {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

ObjectHeader some_header() {
  ObjectHeader header;
  header.number = 0x1122334455667788;
  header.synced = true;
  header.data_bytes = 4711;
  header.checksum = 0x99aabbccddeeff00;
  header.key = std::string("a\0b", 3);
  header.metadata = "meta";
  return header;
}

template <class Action>
void expect_protocol(Action action) {
  try {
    action();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::protocol) << error.what();
  }
}

TEST(ObjectHeader, RoundTrip) {
  const ObjectHeader header = some_header();
  const std::string text = encode_header(header);
  EXPECT_EQ(text.size() % 64, 0u);
  const ObjectHeader back = decode_header(bytes_of(text));
  EXPECT_EQ(back.number, header.number);
  EXPECT_EQ(back.synced, header.synced);
  EXPECT_EQ(back.data_bytes, header.data_bytes);
  EXPECT_EQ(back.checksum, header.checksum);
  EXPECT_EQ(back.key, header.key);
  EXPECT_EQ(back.metadata, header.metadata);
  EXPECT_EQ(decode_fixed_header(bytes_of(text)).data_offset(), text.size());
}

TEST(ObjectHeader, SizesBeyondFourGiB) {
  ObjectHeader header = some_header();
  for (const std::uint64_t size : {(std::uint64_t{1} << 32) - 1, (std::uint64_t{1} << 32) + 1, max_data_bytes}) {
    header.data_bytes = size;
    const std::string text = encode_header(header);
    const FixedHeader fixed = decode_fixed_header(bytes_of(text));
    EXPECT_EQ(fixed.data_bytes, size);
    EXPECT_EQ(fixed.file_bytes(), text.size() + size);
  }
  header.data_bytes = max_data_bytes + 1;
  expect_protocol([&] { decode_fixed_header(bytes_of(encode_header(header))); });
}

TEST(ObjectHeader, EveryDamagedByteIsSeen) {
  const std::string text = encode_header(some_header());
  const std::size_t meaningful = fixed_header_bytes + some_header().key.size() + some_header().metadata.size();
  for (std::size_t i = 0; i < meaningful; ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    expect_protocol([&] { decode_header(bytes_of(damaged)); });
  }
  for (std::size_t size = 0; size < meaningful; ++size)
    expect_protocol([&] { decode_header(bytes_of(text).first(size)); });
}

TEST(IndexEntry, RoundTripAndShortBytes) {
  IndexEntry entry;
  entry.where = IndexEntry::Where::here;
  entry.synced = true;
  entry.number = 17;
  entry.data_bytes = 4;
  entry.checksum = 0x8877665544332211;
  entry.metadata = "meta";
  const auto head = encode_index_head(entry);
  const std::string text = std::string(head.data(), head.size()) + "meta" + "data";
  const IndexEntry back = decode_index_entry(text);
  EXPECT_EQ(back.where, entry.where);
  EXPECT_EQ(back.synced, entry.synced);
  EXPECT_EQ(back.number, entry.number);
  EXPECT_EQ(back.data_bytes, entry.data_bytes);
  EXPECT_EQ(back.checksum, entry.checksum);
  EXPECT_EQ(back.metadata, "meta");
  EXPECT_EQ(back.data, "data");
  for (std::size_t size = 0; size < text.size(); ++size)
    expect_protocol([&] { decode_index_entry(std::string_view(text).substr(0, size)); });
  expect_protocol([&] { decode_index_entry(text + "x"); });
}

TEST(LittleEndian, Bytes) {
  std::string out;
  append_little(out, std::uint32_t{0x01020304});
  EXPECT_EQ(out, std::string("\x04\x03\x02\x01", 4));
  EXPECT_EQ(read_little<std::uint32_t>(bytes_of(out), 0), 0x01020304u);
  EXPECT_EQ(read_little<std::uint16_t>(bytes_of(out), 1), 0x0203u);
}

}  // namespace
}  // namespace penstock::storage
