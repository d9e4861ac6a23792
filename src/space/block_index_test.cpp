#include "space/block_index.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/box.hpp"
#include "model/random_test_support.hpp"

namespace penstock::space {
namespace {

using model::Random;

void cut_at_random(Random& random, const Box& box, std::size_t pieces, std::vector<Box>& out) {
  const std::size_t d = box.start.empty() ? 0 : random.from(0, box.start.size() - 1);
  if (pieces < 2 || box.start.empty() || box.count[d] < 2) {
    out.push_back(box);
    return;
  }
  Box half = box;
  half.count[d] = random.from(1, box.count[d] - 1);
  cut_at_random(random, half, pieces / 2, out);
  half.start[d] += half.count[d];
  half.count[d] = box.count[d] - half.count[d];
  cut_at_random(random, half, pieces - pieces / 2, out);
}

TEST(BlockIndex, answers_as_a_search_through_all_blocks_does) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    Random random(47'000 + round);
    const Dims shape = random.shape();
    std::vector<Box> all, blocks;
    cut_at_random(random, whole(shape), random.one_of<std::size_t>({1, 10, 100, 2000}), all);
    std::ranges::rotate(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 3));
    BlockIndex index;
    for (const auto& block : all) {
      if (random.chance(10)) continue;
      ASSERT_FALSE(index.first_met(block));
      index.insert(block);
      blocks.push_back(block);
      if (!random.chance(5)) continue;
      const Box box = random.box_in(shape, 10);
      std::vector<Box> expected, found;
      std::uint64_t elements = 0;
      for (const auto& b : blocks)
        if (const auto shared = model::intersect(b, box)) {
          expected.push_back(b);
          elements += element_count(shared->count);
        }
      index.for_each(box, [&](const Box& b) {
        found.push_back(b);
        return true;
      });
      ASSERT_EQ(found.size(), expected.size());
      ASSERT_TRUE(std::ranges::is_permutation(found, expected));
      ASSERT_EQ(index.covered(box), elements);
      ASSERT_EQ(index.first_met(box).has_value(), !expected.empty());
    }
    ASSERT_EQ(index.size(), blocks.size());
  }
}

TEST(BlockIndex, stops_when_it_is_told_to) {
  BlockIndex index;
  for (std::uint64_t i = 0; i < 1000; ++i) index.insert({{i}, {1}});
  std::size_t seen = 0;
  index.for_each({{0}, {1000}}, [&](const Box&) { return ++seen < 40; });
  EXPECT_EQ(seen, 40u) << "in the first tree, after the list";
}

TEST(BlockIndex, memory_of_a_block) {
  BlockIndex index;
  for (std::uint64_t i = 0; i < 100'000; ++i) index.insert({{i / 1000, i / 10 % 100, i % 10}, {1, 1, 1}});
  EXPECT_LE(static_cast<double>(index.memory_bytes()) / 1e5, 60);
}

}  // namespace
}  // namespace penstock::space
