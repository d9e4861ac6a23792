#include "pool/keys/protocol.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pool/store/object_info.hpp"

namespace penstock::pool {
namespace {

using namespace std::string_literals;

template <class Action>
void expect_refused(Action action, Errc code = Errc::protocol) {
  try {
    action();
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

Namespace some_namespace() {
  Namespace ns;
  for (std::size_t i = 0; i < ns.bytes.size(); ++i) ns.bytes[i] = static_cast<std::uint8_t>(16 * i);
  return ns;
}

TEST(Protocol, KeysBothWays) {
  const std::vector<Key> keys = {{"row", "column"},
                                 {"", ""},
                                 {"a\0b"s, "\xff\0"s},
                                 {std::string(255, 'x'), std::string(256, 'y')},
                                 {std::string(max_key_bytes, '\0'), std::string(max_key_bytes, 'z')}};
  const auto packed = pack_keys(some_namespace(), keys);
  const auto unpacked = unpack_keys(packed.get());
  EXPECT_EQ(unpacked.ns, some_namespace());
  EXPECT_EQ(unpacked.keys, keys);
  EXPECT_TRUE(unpack_keys(pack_keys({}, {}).get()).keys.empty());
}

TEST(Protocol, KeysThatCannotBeSent) {
  const std::vector<Key> long_row{{std::string(max_key_bytes + 1, 'x'), ""}},
      long_column{{"", std::string(70'000, 'x')}};
  expect_refused([&] { pack_keys({}, long_row); }, Errc::invalid_argument);
  expect_refused([&] { pack_keys({}, long_column); }, Errc::invalid_argument);
  const std::vector<Key> many(max_batch_keys + 1);
  expect_refused([&] { pack_keys({}, many); }, Errc::invalid_argument);
}

TEST(Protocol, KeysThatDoNotAddUp) {
  const std::vector<Key> keys = {{"row", "column"}, {"other", ""}};
  const auto good = pack_keys({}, keys);
  const auto refused = [&](auto change) {
    fb::KeysT bad = *good;
    change(bad);
    expect_refused([&] { unpack_keys(&bad); });
  };
  expect_refused([] { unpack_keys(nullptr); });
  refused([](fb::KeysT& bad) { bad.ns.pop_back(); });
  refused([](fb::KeysT& bad) { bad.ns.clear(); });
  refused([](fb::KeysT& bad) { bad.lengths.pop_back(); });
  refused([](fb::KeysT& bad) { bad.lengths[0] = 4; });
  refused([](fb::KeysT& bad) { bad.lengths[1] = 0xffff; });
  refused([](fb::KeysT& bad) { bad.bytes.pop_back(); });
  refused([](fb::KeysT& bad) { bad.bytes.push_back(0); });
  refused([](fb::KeysT& bad) { bad.lengths.assign(2 * (max_batch_keys + 1), 0); });
}

TEST(Protocol, SizesAddUp) {
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  EXPECT_NO_THROW(check_sizes(3, {1, 0, 2}, 3));
  EXPECT_NO_THROW(check_sizes(0, {}, 0));
  EXPECT_NO_THROW(check_sizes(2, {huge, 0}, huge));
  expect_refused([] { check_sizes(2, {1, 0, 2}, 3); });
  expect_refused([] { check_sizes(3, {1, 0, 2}, 4); });
  expect_refused([] { check_sizes(3, {1, 0, 2}, 2); });
  expect_refused([] { check_sizes(2, {huge, 4}, 3); });  // the sum, modulo 2^64
}

TEST(Protocol, PartsOfAMessage) {
  const std::vector<std::uint8_t> data{1, 2, 3};
  EXPECT_EQ(part_of(data, 1, 2).size(), 2u);
  EXPECT_EQ(part_of(data, 3, 0).size(), 0u);
  expect_refused([&] { part_of(data, 1, 3); });
  expect_refused([&] { part_of(data, 4, 0); });
  expect_refused([&] { part_of(data, 2, ~std::uint64_t{0}); });
}

TEST(Protocol, ReplicatesOfWhichSomethingIsMissing) {
  const UnpackedKeys keys{{}, {{"a", ""}, {"b", ""}}};
  fb::ReplicateRequestT good;
  good.sizes = {0, 3};
  good.versions = {1, 2};
  good.checksums = {1, 2};
  good.put_us = {1, 2};
  good.tags = {0, 0};
  good.tagged = {false, false};
  good.dropped = {true, false};
  good.keep_older = {false, false};
  good.metadata = {"", "text"};
  good.data = {1, 2, 3};
  EXPECT_NO_THROW(check_batch(keys, good));
  const auto refused = [&](auto change) {
    fb::ReplicateRequestT bad;
    bad.sizes = good.sizes, bad.versions = good.versions, bad.checksums = good.checksums, bad.put_us = good.put_us;
    bad.tags = good.tags, bad.tagged = good.tagged, bad.dropped = good.dropped, bad.keep_older = good.keep_older;
    bad.metadata = good.metadata, bad.data = good.data;
    change(bad);
    expect_refused([&] { check_batch(keys, bad); });
  };
  refused([](auto& bad) { bad.sizes.pop_back(); });
  refused([](auto& bad) { bad.versions.pop_back(); });
  refused([](auto& bad) { bad.checksums.push_back(1); });
  refused([](auto& bad) { bad.put_us.clear(); });
  refused([](auto& bad) { bad.tags.clear(); });
  refused([](auto& bad) { bad.tagged.clear(); });
  refused([](auto& bad) { bad.dropped.clear(); });
  refused([](auto& bad) { bad.keep_older.clear(); });
  refused([](auto& bad) { bad.metadata.clear(); });
  refused([](auto& bad) { bad.metadata[1].assign(max_metadata_bytes + 1, 'x'); });
  refused([](auto& bad) { bad.data.push_back(1); });
  refused([](auto& bad) { bad.sizes = {3, 0}; });  // of the dropped one
  refused([](auto& bad) { bad.bulk = transport::fb::Bulk(1, 3, 0, 0, 1); });
}

TEST(Protocol, StripesOfRangesThatAreNotThere) {
  const auto request = [](std::uint32_t first, std::uint32_t count, std::uint64_t bytes, std::uint64_t offset = 0) {
    fb::PullRequestT request;
    for (std::uint64_t size : {10, 20}) {
      request.ranges.push_back(std::make_unique<fb::PullRangeT>());
      request.ranges.back()->offset = offset;
      request.ranges.back()->bytes = size;
    }
    request.stripes.push_back(std::make_unique<fb::PullStripeT>());
    request.stripes.back()->first_range = first;
    request.stripes.back()->ranges = count;
    request.stripes.back()->bytes = bytes;
    return request;
  };
  EXPECT_NO_THROW(check_pull(request(0, 2, 30)));
  EXPECT_NO_THROW(check_pull(request(1, 1, 20)));
  EXPECT_NO_THROW(check_pull(request(2, 0, 0)));
  expect_refused([&] { check_pull(request(0, 2, 29)); });
  expect_refused([&] { check_pull(request(0, 2, 31)); });
  expect_refused([&] { check_pull(request(1, 2, 20)); });
  expect_refused([&] { check_pull(request(3, 0, 0)); });
  expect_refused([&] { check_pull(request(2, 0xffffffff, 0)); });
  expect_refused([&] { check_pull(request(0, 2, 30, ~std::uint64_t{0} - 15)); });
}

TEST(Protocol, InfoBothWays) {
  StoredObject object;
  object.version = 3;
  object.bytes = 1ull << 40;
  object.checksum = 7;
  object.put_us = -5;
  object.on_disk = true;
  object.metadata = std::make_shared<const std::string>("units: K");
  const auto info = unpack_info(*pack_info({"r\0"s, "c"}, object, 9));
  EXPECT_EQ(info.key, (Key{"r\0"s, "c"}));
  EXPECT_EQ(info.version, 3u);
  EXPECT_EQ(info.bytes, 1ull << 40);
  EXPECT_EQ(info.checksum, 7u);
  EXPECT_EQ(info.put_us, -5);
  EXPECT_TRUE(info.on_disk);
  EXPECT_FALSE(info.in_memory);
  EXPECT_EQ(info.waiters, 9u);
  EXPECT_EQ(info.metadata, "units: K");
  fb::InfoT bad;
  bad.row.assign(max_key_bytes + 1, 0);
  expect_refused([&] { unpack_info(bad); });
}

TEST(Protocol, ErrorsBothWays) {
  const auto status = pack_status(Error(Errc::pool_full, "no room"));
  const Error error = unpack_status(status->code, status->message);
  EXPECT_EQ(error.code(), Errc::pool_full);
  EXPECT_STREQ(error.what(), "no room");
  EXPECT_EQ(unpack_status(0, "").code(), Errc::internal);
  EXPECT_EQ(unpack_status(9999, "").code(), Errc::internal);
  EXPECT_EQ(pack_status(Error(Errc::system, std::string(100'000, 'x')))->message.size(), max_message_text);
}

TEST(Protocol, ARowAsAPattern) {
  const std::string odd = "rank/*[1]?\\";
  EXPECT_TRUE(TextPattern(escape_pattern(odd)).matches(odd));
  EXPECT_TRUE(TextPattern(escape_pattern(odd)).exact());
  EXPECT_TRUE(unpack_pattern(pack_bytes("heat*"), pack_bytes("T")).matches("heat/1", "T"));
  expect_refused([] { unpack_pattern(pack_bytes("["), pack_bytes("")); }, Errc::invalid_argument);
}

}  // namespace
}  // namespace penstock::pool
