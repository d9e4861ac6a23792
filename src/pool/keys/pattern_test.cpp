#include "pool/keys/pattern.hpp"

#include <gtest/gtest.h>

#include "model/random_test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::pool {
namespace {

using namespace std::string_literals;

bool matches(const std::string& pattern, std::string_view text) { return TextPattern(pattern).matches(text); }

TEST(Pattern, ExactText) {
  EXPECT_TRUE(matches("heat", "heat"));
  EXPECT_FALSE(matches("heat", "heater"));
  EXPECT_FALSE(matches("heat", "hea"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "x"));
  EXPECT_TRUE(TextPattern("heat").exact());
  EXPECT_EQ(TextPattern("heat").prefix(), "heat");
}

TEST(Pattern, Prefix) {
  EXPECT_TRUE(matches("heat*", "heat"));
  EXPECT_TRUE(matches("heat*", "heat/7"));
  EXPECT_FALSE(matches("heat*", "hea"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("**", "anything"));
  EXPECT_FALSE(TextPattern("heat*").exact());
  EXPECT_EQ(TextPattern("heat*").prefix(), "heat");
}

TEST(Pattern, Glob) {
  EXPECT_TRUE(matches("h?at", "heat"));
  EXPECT_FALSE(matches("h?at", "hat"));
  EXPECT_TRUE(matches("*/T", "rank/00001/T"));
  EXPECT_FALSE(matches("*/T", "rank/00001/U"));
  EXPECT_TRUE(matches("a*b*c", "axxbyybzzc"));
  EXPECT_FALSE(matches("a*b*c", "axxcyyb"));
  EXPECT_TRUE(matches("*aab", "aaaab"));
  EXPECT_TRUE(matches("?*", "x"));
  EXPECT_FALSE(matches("?*", ""));
  EXPECT_EQ(TextPattern("rank/*/T").prefix(), "rank/");
}

TEST(Pattern, Sets) {
  EXPECT_TRUE(matches("[a-c]x", "bx"));
  EXPECT_FALSE(matches("[a-c]x", "dx"));
  EXPECT_TRUE(matches("[!a-c]x", "dx"));
  EXPECT_FALSE(matches("[!a-c]x", "ax"));
  EXPECT_TRUE(matches("[]x]", "]"));
  EXPECT_TRUE(matches("[a\\]]", "]"));
  EXPECT_TRUE(matches("[a-]", "-"));
  EXPECT_TRUE(matches("[\x01-\xff]", "\xfe"));
  EXPECT_FALSE(matches("[\x01-\xff]", "\0"s));
}

TEST(Pattern, BackslashTakesTheNextCharacterAsItIs) {
  EXPECT_TRUE(matches("a\\*", "a*"));
  EXPECT_FALSE(matches("a\\*", "ab"));
  EXPECT_TRUE(matches("\\[\\?\\\\", "[?\\"));
  EXPECT_TRUE(TextPattern("a\\*").exact());
  EXPECT_EQ(TextPattern("a\\*b*").prefix(), "a*b");
  const std::string odd = "a*[b]?\\\0c"s;
  EXPECT_TRUE(TextPattern::exactly(odd).exact());
  EXPECT_TRUE(TextPattern::exactly(odd).matches(odd));
}

TEST(Pattern, AnyBytes) {
  EXPECT_TRUE(matches("a\0*"s, "a\0\xff"s));
  EXPECT_FALSE(matches("a\0*"s, "a"));
  EXPECT_TRUE(matches("?\xff"s, "\0\xff"s));
}

TEST(Pattern, WhatIsNone) {
  for (const std::string text : {"[a", "[", "[!", "[]", "a\\", "[z-a]", "[a\\"}) {
    try {
      TextPattern pattern(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument) << text;
    }
  }
  EXPECT_NO_THROW(TextPattern(std::string(2 * max_key_bytes, 'a')));
  EXPECT_THROW(TextPattern(std::string(2 * max_key_bytes + 1, 'a')), Error);
}

// A dynamic programme that is right by inspection.
bool reference(std::string_view pattern, std::string_view text) {
  std::vector<std::vector<bool>> fits(pattern.size() + 1, std::vector<bool>(text.size() + 1));
  fits[0][0] = true;
  for (std::size_t p = 1; p <= pattern.size(); ++p) {
    fits[p][0] = fits[p - 1][0] && pattern[p - 1] == '*';
    for (std::size_t t = 1; t <= text.size(); ++t) {
      if (pattern[p - 1] == '*') fits[p][t] = fits[p - 1][t] || fits[p][t - 1];
      else fits[p][t] = fits[p - 1][t - 1] && (pattern[p - 1] == '?' || pattern[p - 1] == text[t - 1]);
    }
  }
  return fits[pattern.size()][text.size()];
}

TEST(Pattern, AgreesWithTheReference) {
  SCOPED_TRACE("PENSTOCK_TEST_SEED=" + std::to_string(model::test_seed()));
  model::Random random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string pattern, text;
    for (auto left = random.from(0, 8); left > 0; --left) pattern.push_back(random.one_of({'a', 'b', '*', '?'}));
    for (auto left = random.from(0, 10); left > 0; --left) text.push_back(random.one_of({'a', 'b'}));
    ASSERT_EQ(matches(pattern, text), reference(pattern, text)) << pattern << " on " << text;
    const TextPattern compiled(pattern);
    if (compiled.matches(text)) {
      ASSERT_TRUE(text.starts_with(compiled.prefix()));
    }
  }
}

// What makes matchers that try every star take longer than the universe lasts.
TEST(Pattern, ManyStarsOnALongTextEnd) {
  std::string pattern;
  for (std::size_t i = 0; i < max_key_bytes; ++i) pattern += "a*";
  pattern.back() = 'b';
  EXPECT_FALSE(matches(pattern, std::string(max_key_bytes, 'a')));
  EXPECT_FALSE(matches("*" + std::string(max_key_bytes / 2, 'a') + "b", std::string(max_key_bytes, 'a')));
}

}  // namespace
}  // namespace penstock::pool
