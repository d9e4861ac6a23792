#include "base/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "penstock/error.hpp"

namespace penstock::base {
namespace {

TEST(EditDistanceTest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("queue", "quuee"), 1u);  // neighbours swapped
}

constexpr std::array<std::string_view, 4> names{"queue_steps", "queue_bytes", "when_full", "engine"};

TEST(NearestNameTest, FindsWhatWasMeant) {
  EXPECT_EQ(nearest_name("queu_steps", names), "queue_steps");
  EXPECT_EQ(nearest_name("QUEUE_BYTES", names), "queue_bytes");
  EXPECT_EQ(nearest_name("wehn_full", names), "when_full");
  EXPECT_EQ(nearest_name("colour", names), "");
  const std::vector<std::string> strings{"temperature", "pressure"};
  EXPECT_EQ(nearest_name("presure", strings), "pressure");
}

TEST(NearestNameTest, SuggestsOrLists) {
  EXPECT_EQ(unknown_name("option", "queue_step", names), "unknown option 'queue_step'; did you mean 'queue_steps'?");
  EXPECT_EQ(unknown_name("option", "x", names),
            "unknown option 'x'; there are: queue_steps, queue_bytes, when_full, engine");
}

TEST(SplitTest, TrimsParts) {
  EXPECT_THAT(split(" a , b=1,", ','), testing::ElementsAre("a", "b=1", ""));
  EXPECT_THAT(split("", ','), testing::ElementsAre(""));
}

TEST(NumberTest, KeepsToItsBounds) {
  EXPECT_EQ(parse_integer(" 7 ", 0, 10), 7u);
  EXPECT_EQ(parse_integer("18446744073709551615", 0, UINT64_MAX), UINT64_MAX);
  for (const char* bad : {"", "-1", "11", "0x3", "3.5", "7 8", "18446744073709551616"})
    EXPECT_THROW(parse_integer(bad, 0, 10), Error) << bad;
}

TEST(BooleanTest, TakesTheUsualWords) {
  for (const char* yes : {"true", "Yes", "ON", "1"}) EXPECT_TRUE(parse_boolean(yes)) << yes;
  for (const char* no : {"false", "No", "OFF", "0"}) EXPECT_FALSE(parse_boolean(no)) << no;
  EXPECT_THROW(parse_boolean("maybe"), Error);
}

TEST(SizeTest, HasUnits) {
  EXPECT_EQ(parse_size("65536"), 65536u);
  EXPECT_EQ(parse_size("64MiB"), std::uint64_t{64} << 20);
  EXPECT_EQ(parse_size("2 gib"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_size("1.5GiB"), 1610612736u);
  EXPECT_EQ(parse_size("3kB"), 3000u);
  EXPECT_EQ(parse_size("0"), 0u);
  for (const char* bad : {"", "MiB", "1.2.3", "-1", "12 parsecs", "1e3", "99999999999TiB", "17179869184.5GiB"})
    EXPECT_THROW(parse_size(bad), Error) << bad;
}

TEST(SizeTest, FormatsExactly) {
  EXPECT_EQ(format_size(0), "0");
  EXPECT_EQ(format_size(1000), "1000");
  EXPECT_EQ(format_size(1536), "1536");
  EXPECT_EQ(format_size(std::uint64_t{64} << 20), "64MiB");
  EXPECT_EQ(format_size(std::uint64_t{1} << 50), "1024TiB");
  for (int shift = 0; shift < 64; ++shift)
    for (std::uint64_t bytes : {std::uint64_t{1} << shift, (std::uint64_t{1} << shift) - 1})
      EXPECT_EQ(parse_size(format_size(bytes)), bytes);
}

}  // namespace
}  // namespace penstock::base
