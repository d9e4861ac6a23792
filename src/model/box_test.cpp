#include "model/box.hpp"

#include <gtest/gtest.h>

#include "model/box_index.hpp"
#include "model/random_test_support.hpp"

namespace penstock::model {
namespace {

constexpr std::uint64_t top = ~std::uint64_t{0};

TEST(Box, validity) {
  EXPECT_TRUE(is_valid({{}, {}}));
  EXPECT_TRUE(is_valid({{1, 2}, {3, 0}}));
  EXPECT_FALSE(is_valid({{1}, {3, 4}}));
  EXPECT_FALSE(is_valid({{top}, {1}}));
  EXPECT_FALSE(is_valid({{0, 0}, {top, 2}}));
  EXPECT_TRUE(is_within({{2}, {3}}, {5}));
  EXPECT_TRUE(is_within({{5}, {0}}, {5}));
  EXPECT_FALSE(is_within({{3}, {3}}, {5}));
  EXPECT_FALSE(is_within({{3}, {3}}, {5, 5}));
  EXPECT_FALSE(is_within({{top}, {2}}, {5}));
}

TEST(Box, intersection) {
  EXPECT_EQ(intersect({{0, 0}, {4, 4}}, {{2, 3}, {9, 9}}), (Box{{2, 3}, {2, 1}}));
  EXPECT_EQ(intersect({{0}, {4}}, {{4}, {1}}), std::nullopt);
  EXPECT_EQ(intersect({{0}, {4}}, {{1}, {0}}), std::nullopt);
  EXPECT_EQ(intersect({{0}, {4}}, {{0, 0}, {1, 1}}), std::nullopt);
  EXPECT_EQ(intersect({}, {}), (Box{}));
}

TEST(Box, containment) {
  EXPECT_TRUE(contains({{1, 1}, {4, 4}}, {{2, 2}, {3, 3}}));
  EXPECT_FALSE(contains({{1, 1}, {4, 4}}, {{2, 2}, {4, 3}}));
  EXPECT_TRUE(contains({{1}, {1}}, Box{{9}, {0}}));
  const std::uint64_t inside[] = {1, 4}, outside[] = {0, 4};
  EXPECT_TRUE(contains({{1, 1}, {4, 4}}, inside));
  EXPECT_FALSE(contains({{1, 1}, {4, 4}}, outside));
  EXPECT_TRUE(is_empty({{1, 1}, {4, 0}}));
  EXPECT_FALSE(is_empty({}));
  EXPECT_EQ(to_string(Box{{0, 8}, {4, 8}}), "[0, 4) x [8, 16)");
}

TEST(BoxIndex, answers_as_a_search_through_all_boxes_does) {
  for (std::uint64_t round = 0; round < 300; ++round) {
    SCOPED_TRACE(seed_text(round));
    Random random(30'000 + round);
    const Dims shape = random.shape();
    std::vector<Box> boxes(random.one_of<std::uint64_t>({0, 1, 15, 16, 17, 300, 1000}));
    for (auto& box : boxes) {
      box = random.box_in(shape);
      if (random.chance(80))
        for (std::size_t d = 0; d < shape.size(); ++d) box.count[d] = 1 + box.count[d] / 4;
    }
    const BoxIndex index(boxes);
    for (int query = 0; query < 10; ++query) {
      const Box box = random.box_in(shape, 10);
      std::vector<std::uint32_t> expected, found;
      for (std::uint32_t i = 0; i < boxes.size(); ++i)
        if (intersect(box, boxes[i])) expected.push_back(i);
      index.query(box, found);
      ASSERT_EQ(found, expected);
      std::vector<Box> seen, expected_boxes;
      for (const auto i : expected) expected_boxes.push_back(boxes[i]);
      index.for_each(box, [&](const Box& b) { return seen.push_back(b), true; });
      ASSERT_TRUE(std::ranges::is_permutation(seen, expected_boxes));
      std::int64_t last = -1;
      for (std::uint32_t i = 0; i < boxes.size(); ++i)
        if (contains(boxes[i], box.start.begin())) last = i;
      ASSERT_EQ(index.last_holding(box.start.begin()), last);
    }
    bool overlap = false;
    for (std::size_t i = 0; i < std::min<std::size_t>(boxes.size(), 300) && !overlap; ++i)
      for (std::size_t j = 0; j < i && !overlap; ++j) overlap = intersect(boxes[i], boxes[j]).has_value();
    if (boxes.size() <= 300) {
      ASSERT_EQ(index.any_overlap(), overlap);
    }
  }
}

TEST(BoxIndex, a_grid_of_huge_coordinates) {
  std::vector<Box> boxes;
  const std::uint64_t step = std::uint64_t{1} << 40;
  for (std::uint64_t i = 0; i < 20; ++i)
    for (std::uint64_t j = 0; j < 20; ++j) boxes.push_back({{i * step, j * step}, {step, step}});
  const BoxIndex index(boxes);
  EXPECT_FALSE(index.any_overlap());
  std::vector<std::uint32_t> found;
  index.query({{3 * step - 1, 7 * step}, {2, 1}}, found);
  EXPECT_EQ(found, (std::vector<std::uint32_t>{2 * 20 + 7, 3 * 20 + 7}));
  EXPECT_TRUE(index.any_overlap(0)) << "without a budget it must assume the worst";
}

}  // namespace
}  // namespace penstock::model
