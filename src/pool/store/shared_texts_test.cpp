#include "pool/store/shared_texts.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace penstock::pool {
namespace {

constexpr std::uint64_t without_bound = ~std::uint64_t{0};

TEST(SharedTexts, EachIsKeptOnceUntilItsLastOwnerIsGone) {
  const auto texts = std::make_shared<SharedTexts>();
  auto a = texts->keep("a", without_bound), b = texts->keep("bb", without_bound);
  auto again = texts->keep(std::string("a"), without_bound);
  EXPECT_EQ(a, again);
  EXPECT_EQ(*b, "bb");
  EXPECT_EQ(texts->bytes(), 3 + 2 * SharedTexts::overhead);
  a.reset();
  EXPECT_EQ(texts->keep("a", 0), again) << "needs no room";
  again.reset();
  EXPECT_EQ(texts->bytes(), 2 + SharedTexts::overhead);
  EXPECT_EQ(*texts->keep("a", without_bound), "a");
  b.reset();
  EXPECT_EQ(texts->bytes(), 0u);
}

TEST(SharedTexts, TheBoundIsOfAllTexts) {
  const auto texts = std::make_shared<SharedTexts>();
  const std::uint64_t most = 3 * (10 + SharedTexts::overhead);
  std::vector<SharedTexts::Text> kept;
  for (const char c : {'a', 'b', 'c'}) kept.push_back(texts->keep(std::string(10, c), most));
  EXPECT_TRUE(kept[0] && kept[1] && kept[2]);
  EXPECT_EQ(texts->bytes(), most);
  EXPECT_FALSE(texts->keep("d", most));
  EXPECT_TRUE(texts->keep(std::string(10, 'b'), most));
  kept.push_back(texts->keep("d", without_bound));
  EXPECT_GT(texts->bytes(), most);
  kept.clear();
  EXPECT_EQ(texts->bytes(), 0u);
}

TEST(SharedTexts, OutliveWhatKeepsThem) {
  auto texts = std::make_shared<SharedTexts>();
  const auto kept = texts->keep("text", without_bound);
  texts.reset();
  EXPECT_EQ(*kept, "text");
}

// A text may be asked for while its last owner lets go of it.
TEST(SharedTexts, ThreadsShareThem) {
  const auto texts = std::make_shared<SharedTexts>();
  std::atomic<bool> good{true};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20'000; ++i) {
        const auto text = "text " + std::to_string((i + t) % 3);
        const auto kept = texts->keep(text, without_bound);
        if (!kept || *kept != text) good = false;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(good);
  EXPECT_EQ(texts->bytes(), 0u);
}

}  // namespace
}  // namespace penstock::pool
