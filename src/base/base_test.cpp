// The small parts: errors, bytes, deadlines, the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "penstock/error.hpp"
#include "penstock/version.hpp"

namespace penstock::base {
namespace {

using namespace std::chrono_literals;

TEST(ErrorTest, NamesItsCodeAndTakesContext) {
  const Error error(Errc::step_too_large, "9 bytes");
  EXPECT_EQ(penstock::name_of(error.code()), "step_too_large");
  const Error outer = error.in("stream heat");
  EXPECT_EQ(outer.code(), Errc::step_too_large);
  EXPECT_STREQ(outer.what(), "stream heat: 9 bytes");
  EXPECT_EQ(penstock::name_of(static_cast<Errc>(1000)), "unknown");
}

TEST(VersionTest, HasThreeNumbers) { EXPECT_THAT(version, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")); }

TEST(BytesTest, HexGoesThereAndBack) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  EXPECT_EQ(from_hex(to_hex(all)), all);
  EXPECT_EQ(to_hex("\x0f\xa0"), "0fa0");
  EXPECT_EQ(from_hex("0FA0"), "\x0f\xa0");
  EXPECT_EQ(from_hex("abc"), std::nullopt);
  EXPECT_EQ(from_hex("zz"), std::nullopt);
}

TEST(BytesTest, RandomBytesDiffer) {
  EXPECT_EQ(random_bytes(1000).size(), 1000u);
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

TEST(DeadlineTest, ZeroHasPassedAndForeverNeverDoes) {
  EXPECT_TRUE(Deadline(0ms).passed());
  EXPECT_EQ(Deadline(0ms).remaining(), 0ms);
  EXPECT_TRUE(Deadline(-5ms).passed());
  EXPECT_FALSE(Deadline(forever).passed());
  EXPECT_EQ(Deadline(forever).remaining(), forever);
  EXPECT_TRUE(Deadline(forever).is_never());
}

TEST(DeadlineTest, TooLongForTheClockIsForever) { EXPECT_TRUE(Deadline(Timeout::max() - 1ms).is_never()); }

TEST(DeadlineTest, RemainingRoundsUp) {
  const Deadline deadline(1h);
  EXPECT_FALSE(deadline.passed());
  EXPECT_LE(deadline.remaining(), 1h);
  EXPECT_GT(deadline.remaining(), 59min);
  EXPECT_EQ(Deadline::at(Clock::now() + 1h + 1us).remaining() > 1h - 1s, true);
  EXPECT_EQ(earlier(deadline, Deadline::never()).when(), deadline.when());
}

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](Level level, std::string_view line) {
      lines_.push_back(std::string(name_of(level)) + " " + std::string(line));
    });
    set_log_level(Level::info);
  }
  void TearDown() override {
    set_log_sink({});
    set_log_level(Level::warn);
  }
  std::vector<std::string> lines_;
};

TEST_F(LogTest, WritesFields) {
  log(Level::info, "stream opened", {{"stream", "heat 2"}, {"rank", 3}, {"late", false}, {"said", "a\"b"}});
  EXPECT_THAT(lines_, testing::ElementsAre("info stream opened stream=\"heat 2\" rank=3 late=false said=\"a\\\"b\""));
}

TEST_F(LogTest, LevelsBelowAreSilent) {
  log(Level::debug, "nothing");
  EXPECT_FALSE(log_enabled(Level::debug));
  EXPECT_TRUE(log_enabled(Level::error));
  set_log_level(Level::off);
  log(Level::error, "nothing");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(LogTest, ASinkThatThrowsIsNobodysProblem) {
  set_log_sink([](Level, std::string_view) { throw std::runtime_error("full"); });
  log(Level::error, "still fine");
}

TEST(LogLevelTest, NamesGoThereAndBack) {
  for (Level level : {Level::trace, Level::debug, Level::info, Level::warn, Level::error, Level::off})
    EXPECT_EQ(parse_level(name_of(level)), level);
  EXPECT_THROW(parse_level("loud"), Error);
}

}  // namespace
}  // namespace penstock::base
