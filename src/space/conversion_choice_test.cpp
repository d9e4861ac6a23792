#include "space/conversion_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::space {
namespace {

using testing::HasSubstr;
using testing::Not;
using enum ConvertAt;

// 64 MiB at a server that converts 1 GB/s, readers that do the same, and a link of 2 GB/s.
ConversionCosts costs() {
  ConversionCosts costs;
  costs.bytes = costs.whole_bytes = 64 << 20;
  costs.server_bytes_per_s = costs.reader_bytes_per_s = 1e9;
  costs.link_bytes_per_s = 2e9;
  costs.memory_left = std::uint64_t{1} << 30;
  return costs;
}

TEST(ConversionChoice, one_reader_converts_for_itself_and_many_share) {
  auto c = costs();
  EXPECT_EQ(choose_conversion(c).place, at_reader) << "the same time, less memory";
  c.requests = 2;
  EXPECT_EQ(choose_conversion(c).place, on_request);
  c.queue_s = 10;
  EXPECT_EQ(choose_conversion(c).place, at_reader) << "the server is busy";
}

TEST(ConversionChoice, a_faster_side_converts) {
  auto c = costs();
  c.server_bytes_per_s = 3e9;
  EXPECT_EQ(choose_conversion(c).place, on_request);
  c.fused_at_reader = true;
  EXPECT_EQ(choose_conversion(c).place, on_request) << "22 + 34 ms against 67";
  c.link_bytes_per_s = 1e9;
  EXPECT_EQ(choose_conversion(c).place, at_reader) << "22 + 67 ms against 67";
}

TEST(ConversionChoice, in_advance_where_idle_time_hides_it) {
  auto c = costs();
  c.on_put = true;
  c.requests = 2;
  EXPECT_EQ(choose_conversion(c).place, on_request) << "no idle time: nothing is gained by haste";
  c.idle_s = 0.05;
  EXPECT_EQ(choose_conversion(c).place, in_advance);
  c.bytes /= 64;
  EXPECT_EQ(choose_conversion(c).place, on_request) << "readers want a small part of what would be converted";
  c = costs();
  c.idle_s = 10;
  c.requests = 2;
  EXPECT_EQ(choose_conversion(c).place, on_request) << "a request comes too late for it";
}

TEST(ConversionChoice, what_nobody_wants_is_not_converted) {
  auto c = costs();
  c.on_put = true;
  c.idle_s = 10;
  c.requests = 4;
  c.bytes /= 8;
  EXPECT_EQ(choose_conversion(c).place, on_request) << "each wants the same eighth";
  c.wanted_bytes = 8 * c.bytes;
  EXPECT_EQ(choose_conversion(c).place, in_advance) << "an eighth each, and all of it in the end";
  c.requests = 0;
  EXPECT_NE(choose_conversion(c).place, in_advance) << "nobody has asked for this part";
}

TEST(ConversionChoice, memory_bounds_it) {
  auto c = costs();
  c.on_put = true;
  c.requests = 8;
  c.idle_s = 1;
  c.whole_bytes *= 8;
  c.memory_left = 100 << 20;
  auto choice = choose_conversion(c);
  EXPECT_EQ(choice.place, on_request);
  EXPECT_THAT(choice.why, HasSubstr("in_advance needs 512MiB of 100MiB left"));
  c.memory_left = 1 << 20;
  EXPECT_EQ(choose_conversion(c).place, at_reader);
}

TEST(ConversionChoice, what_was_not_measured_does_not_decide) {
  ConversionCosts c;
  c.bytes = c.whole_bytes = 1 << 20;
  c.memory_left = 1 << 30;
  c.requests = 3;
  EXPECT_EQ(choose_conversion(c).place, on_request);
  c.reader_bytes_per_s = 5e6;
  const auto choice = choose_conversion(c);
  EXPECT_EQ(choice.place, on_request) << "the server is taken for as slow";
  EXPECT_NEAR(choice.seconds[1], 0.213, 0.001);
}

TEST(ConversionChoice, explains_itself) {
  auto c = costs();
  c.requests = 3;
  const auto choice = choose_conversion(c);
  EXPECT_EQ(choice.why, "on_request for 3 expected request(s) of 64MiB: at_reader 302 ms, on_request 168 ms");
  c.on_put = true;
  c.idle_s = 1;
  EXPECT_THAT(choose_conversion(c).why, HasSubstr("in_advance 101 ms"));
}

// The choice is never dearer than a fixed placement that has room.
TEST(ConversionChoice, is_never_dearer_than_a_fixed_placement) {
  for (const double requests : {1.0, 1.5, 8.0})
    for (const double queue : {0.0, 0.3})
      for (const double server : {0.0, 2e8, 4e9})
        for (const double link : {1e8, 5e9})
          for (const std::uint64_t memory : {0, 32 << 20, 1 << 30})
            for (const bool put : {false, true}) {
              auto c = costs();
              c.requests = requests;
              c.queue_s = queue;
              c.server_bytes_per_s = server;
              c.link_bytes_per_s = link;
              c.memory_left = memory;
              c.on_put = put;
              c.idle_s = 0.1;
              c.bytes /= 4;
              const auto choice = choose_conversion(c);
              const auto chosen = choice.seconds[static_cast<std::size_t>(choice.place)];
              EXPECT_EQ(chosen, *std::ranges::min_element(choice.seconds));
              EXPECT_TRUE(memory > 0 || choice.place == at_reader);
              EXPECT_TRUE(choice.place != in_advance || (put && memory >= 64 << 20));
              EXPECT_EQ(choice.why.find(name_of(choice.place)), 0u) << choice.why;
              EXPECT_THAT(choice.why, Not(HasSubstr("inf")));
            }
}

}  // namespace
}  // namespace penstock::space
