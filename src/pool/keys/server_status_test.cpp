#include "pool/keys/server_status.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace penstock::pool {
namespace {

using nlohmann::json;

json whole() {
  return json::parse(R"({"objects": 3, "memory": {"used": 1, "limit": 18446744073709551615},
      "tiers": [{"bytes": 5, "free": 7, "journal": 11}, {"bytes": 6, "free": 8, "journal": 12}],
      "puts": 1, "gets": 2, "evictions": 3, "recalls": 4, "waiting": 5, "bytes_in": 6, "bytes_out": 7})");
}

Errc code_of(const std::string& text) {
  try {
    ServerStatus status;
    read_status(text, status);
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::ok;
}

TEST(ServerStatusText, IsRead) {
  ServerStatus status;
  read_status(whole().dump(), status);
  EXPECT_EQ(status.objects, 3u);
  EXPECT_EQ(status.memory_limit, ~std::uint64_t{0});
  EXPECT_EQ(status.disk_bytes, 11u);
  EXPECT_EQ(status.disk_free, 8u);
  EXPECT_EQ(status.journal_bytes, 23u);
  EXPECT_EQ(status.bytes_out, 7u);
}

// Calls use with the value, changed in one place, for each place: there is something else, or nothing.
void each_change(const json& value, const std::function<void(const json&)>& use) {
  const std::vector<json> others{nullptr, true, -1, 1e300, 0.5, "3", json::parse("{}"), json::parse("[[]]")};
  for (const json& other : others)
    if (other.type() != value.type()) use(other);
  if (!value.is_structured()) return;
  for (const auto& [key, inner] : value.items()) {
    const json::json_pointer at("/" + key);
    each_change(inner, [&](const json& changed) {
      json copy = value;
      copy[at] = changed;
      use(copy);
    });
    if (!value.is_object()) continue;
    json less = value;
    less.erase(key);
    use(less);
  }
}

TEST(ServerStatusText, OtherTypesAreRefused) {
  int tried = 0;
  each_change(whole(), [&](const json& changed) {
    ++tried;
    EXPECT_EQ(code_of(changed.dump()), Errc::protocol) << changed;
  });
  EXPECT_GT(tried, 100);
  for (const std::string text : {"", "{", "[]", "nonsense", "\xff\xfe", "{\"objects\": 1e999}"})
    EXPECT_EQ(code_of(text), Errc::protocol) << text;
  EXPECT_EQ(code_of(std::string(100'000, '[')), Errc::protocol);
}

}  // namespace
}  // namespace penstock::pool
