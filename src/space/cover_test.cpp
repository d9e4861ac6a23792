#include "space/cover.hpp"

#include <gtest/gtest.h>

#include "model/box.hpp"
#include "model/random_test_support.hpp"

namespace penstock::space {
namespace {

using model::Random;

TEST(Cover, says_what_is_missing_exactly) {
  for (std::uint64_t round = 0; round < 2000; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    Random random(41'000 + round);
    const Dims shape = random.shape();
    const Box wanted = random.box_in(shape, 5);
    std::vector<Box> there(random.from(0, 12));
    for (auto& box : there) box = random.box_in(shape, 5);
    if (random.chance(10)) there.push_back({{1}, {1}});
    const auto most = random.one_of<std::size_t>({0, 1, 3, 1'000'000});
    const auto found = missing(wanted, there, most);
    std::uint64_t times_too_many = 0, uncovered = 0, reported = 0;
    model::for_each_index(shape, [&](const Dims& at) {
      const auto holds = [&](const Box& box) {
        return box.start.size() == shape.size() && model::contains(box, at.begin());
      };
      const auto hits = static_cast<std::uint64_t>(std::ranges::count_if(found.boxes, holds));
      const bool is_missing = holds(wanted) && std::ranges::none_of(there, holds);
      uncovered += is_missing;
      reported += hits;
      times_too_many += hits > (is_missing ? 1u : 0u);
    });
    ASSERT_EQ(times_too_many, 0u);
    ASSERT_LE(found.boxes.size(), most);
    ASSERT_EQ(found.complete, reported == uncovered);
  }
}

// One block of a hundred thousand is missing; the others are in no order.
TEST(Cover, finds_the_gap_in_a_large_grid) {
  std::vector<Box> there;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const auto block = i * 77'777 % 100'000;
    if (block != 31'415) there.push_back({{block / 1000 * 7, block % 1000 * 3}, {7, 3}});
  }
  const auto found = missing({{0, 0}, {700, 3000}}, there);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.boxes, (std::vector<Box>{{{31 * 7, 415 * 3}, {7, 3}}}));
}

TEST(Cover, joins_neighbours) {
  // What is left of a row whose ends are there: one box, although each of them cuts it.
  const std::vector<Box> there{{{0, 0}, {1, 9}}, {{3, 0}, {1, 9}}, {{1, 0}, {2, 1}}};
  EXPECT_EQ(missing({{0, 0}, {4, 9}}, there).boxes, (std::vector<Box>{{{1, 1}, {2, 8}}}));
}

TEST(Cover, without_a_budget_promises_nothing) {
  const std::vector<Box> there{{{3}, {1}}};
  EXPECT_FALSE(missing({{0}, {9}}, there, 10, 0).complete);
  EXPECT_TRUE(missing({{3}, {1}}, there, 10, 0).complete);
}

TEST(Cover, scalars_and_huge_boxes) {
  const std::vector<Box> scalar{{{}, {}}};
  EXPECT_TRUE(missing({}, scalar).boxes.empty());
  EXPECT_EQ(missing({}, {}).boxes, scalar);
  const std::uint64_t huge = ~std::uint64_t{0};
  const std::vector<Box> there{{{1}, {huge - 2}}};
  EXPECT_EQ(missing({{0}, {huge}}, there).boxes, (std::vector<Box>{{{0}, {1}}, {{huge - 1}, {1}}}));
}

}  // namespace
}  // namespace penstock::space
