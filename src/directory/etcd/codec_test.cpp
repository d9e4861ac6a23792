#include "directory/etcd/codec.hpp"

#include <gtest/gtest.h>

#include "penstock/error.hpp"

namespace penstock::directory::etcd {
namespace {

TEST(EtcdCodec, Base64OfAnyBytes) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes.push_back(static_cast<char>(i * 37));
  }
  for (const std::string text : {"A", "AAA", "=AAA", "A=AA", "AA-A", "====", "AAAA="})
    EXPECT_THROW(from_base64(text), Error) << text;
}

TEST(EtcdCodec, StrangeAnswersAreRefused) {
  for (const std::string text : {"", "{", "[]", "{\"header\":1}", "{\"header\":{\"revision\":\"x\"}}",
                                 "{\"kvs\":[{\"key\":1}]}", "{\"kvs\":[{\"key\":\"L290aGVy\"}]}", "{\"result\":[]}"}) {
    EXPECT_THROW(decode_put("/root", text, true), Error) << text;
    EXPECT_THROW(decode_grant(text), Error) << text;
    EXPECT_THROW(decode_keepalive(text), Error) << text;
  }
  EXPECT_THROW(decode_range("/root", "{\"kvs\":[{\"key\":\"L290aGVy\"}]}"), Error);
  EXPECT_EQ(decode_refusal("<html>").code, 0);
  EXPECT_EQ(decode_refusal("{\"message\":\"no\",\"code\":5}").code, 5);
}

TEST(EtcdCodec, WatchMessages) {
  const auto events = decode_watched(
      "/r", R"({"result":{"header":{"revision":"9"},"events":[{"kv":{"key":")" + to_base64("/r/a") +
                R"(","mod_revision":"8","create_revision":"3","value":"eA=="}},{"type":"DELETE","kv":{"key":")" +
                to_base64("/r/b") + R"(","mod_revision":"9"}}]}})");
  ASSERT_EQ(events.events.size(), 2U);
  EXPECT_EQ(events.events[0].entry.path, "/a");
  EXPECT_EQ(events.events[0].entry.value, "x");
  EXPECT_TRUE(events.events[1].removed);
  EXPECT_EQ(events.revision, 9U);
  const auto gone = decode_watched("/r", R"({"result":{"canceled":true,"compact_revision":"7"}})");
  EXPECT_TRUE(gone.cancelled && gone.compacted);
  EXPECT_EQ(decode_watched("/r", R"({"result":{"header":{"revision":"9"},"created":true}})").revision, 0U);
  EXPECT_EQ(decode_watched("/r", R"({"result":{"header":{"revision":"9"}}})").revision, 9U);
}

}  // namespace
}  // namespace penstock::directory::etcd
