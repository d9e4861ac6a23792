#include "pool/store/object_record.hpp"

#include <gtest/gtest.h>

#include "penstock/error.hpp"
#include "pool/store/object_table.hpp"

namespace penstock::pool {
namespace {

TEST(ObjectRecord, WhatIsWrittenIsReadBack) {
  for (const bool keep_older : {false, true})
    for (const std::optional<std::uint64_t> tag : {std::optional<std::uint64_t>{}, {0}, {~std::uint64_t{0}}})
      for (const std::string_view metadata : {"", "{}", "text that ends in \1"}) {
        const auto bytes = encode_record({-7, tag, keep_older, metadata});
        EXPECT_TRUE(bytes.starts_with(metadata)) << "a tier may look at how it begins";
        EXPECT_LE(bytes.size(), metadata.size() + max_record_trailer_bytes);
        const auto record = decode_record(bytes);
        EXPECT_EQ(record.put_us, -7);
        EXPECT_EQ(record.tag, tag);
        EXPECT_EQ(record.keep_older, keep_older);
        EXPECT_EQ(record.metadata, metadata);
      }
}

TEST(ObjectRecord, RefusesWhatItDoesNotKnow) {
  const auto good = encode_record({1, 2, false, ""});
  for (std::size_t length = 0; length < good.size(); ++length) {
    // Without its beginning: the tag is missing.
    EXPECT_THROW(decode_record(std::string_view(good).substr(good.size() - length)), Error) << length;
  }
  auto other = good;
  other.back() = 2;
  EXPECT_THROW(decode_record(other), Error);
  other = good;
  other[other.size() - 2] = 4;
  EXPECT_THROW(decode_record(other), Error);
}

TEST(ObjectRecord, VersionsOfAKeySortByNumber) {
  const auto packed = pack_key({}, "row", "column");
  EXPECT_LT(tier_key(packed, 255), tier_key(packed, 256));
  EXPECT_LT(tier_key(packed, 1), tier_key(packed, std::uint64_t{1} << 63));
  const auto key = tier_key(packed, 0x0102030405060708);
  const auto parts = split_tier_key(key);
  EXPECT_EQ(parts.packed_key, packed);
  EXPECT_EQ(parts.version, 0x0102030405060708u);
  EXPECT_THROW(split_tier_key("1234567"), Error);
}

}  // namespace
}  // namespace penstock::pool
