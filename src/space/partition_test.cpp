#include "space/partition.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/test_support.hpp"
#include "model/box.hpp"
#include "model/curve.hpp"
#include "model/random_test_support.hpp"

namespace penstock::space {
namespace {

using model::Random;

TEST(Curve, hilbert_goes_through_each_place_by_single_steps) {
  for (const auto& [dims, bits] : {std::pair{1, 6}, {2, 1}, {2, 5}, {3, 3}, {4, 2}, {5, 2}, {8, 1}}) {
    const std::uint64_t side = std::uint64_t{1} << bits;
    std::vector<Dims> path(std::size_t{1} << dims * bits);
    std::size_t seen = 0;
    model::for_each_index(Dims::filled(dims, side), [&](const Dims& at) {
      model::GridPlace place{};
      std::copy(at.begin(), at.end(), place.begin());
      auto& there = path.at(model::hilbert(place, dims, bits));
      seen += there.empty();
      there = at;
    });
    ASSERT_EQ(seen, path.size()) << dims << " dimensions of " << bits << " bits";
    for (std::size_t i = 1; i < path.size(); ++i) {
      std::uint64_t steps = 0;
      for (int d = 0; d < dims; ++d)
        steps += std::max(path[i][d], path[i - 1][d]) - std::min(path[i][d], path[i - 1][d]);
      ASSERT_EQ(steps, 1u) << "at " << i << " of " << dims << " dimensions of " << bits << " bits";
    }
  }
}

TEST(Partition, parts_are_disjoint_and_cover_the_array) {
  for (std::uint64_t round = 0; round < 300; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    Random random(42'000 + round);
    const Dims shape = random.shape();
    const auto asked = static_cast<std::uint32_t>(random.from(0, 100));
    const Partition partition(shape, asked);
    EXPECT_LE(partition.parts(), std::max(1u, std::bit_ceil(asked)));
    EXPECT_LE(partition.parts(), element_count(shape));
    for (std::uint32_t part = 0; part < partition.parts(); ++part) {
      const Box box = partition.box_of(part);
      ASSERT_FALSE(model::is_empty(box));
      ASSERT_TRUE(model::is_within(box, shape));
    }
    const Box box = random.box_in(shape, 10);
    std::set<std::uint32_t> met;
    for (std::uint32_t part = 0; part < partition.parts(); ++part)
      if (!model::is_empty(box) && model::intersect(box, partition.box_of(part))) met.insert(part);
    std::set<std::uint32_t> cut;
    std::uint64_t elements = 0;
    for (const auto& piece : partition.cut(box)) {
      cut.insert(piece.part);
      elements += element_count(piece.box.count);
      ASSERT_TRUE(model::contains(partition.box_of(piece.part), piece.box));
      ASSERT_TRUE(model::contains(box, piece.box));
    }
    ASSERT_EQ(cut, met);
    ASSERT_EQ(elements, element_count(box.count));
  }
}

// Of the planes through a grid of parts: how many times its share of a plane's parts the busiest server has, at worst.
double worst_plane(const std::vector<std::uint64_t>& along, std::uint64_t side, std::size_t dims,
                   std::uint64_t servers) {
  double worst = 0;
  for (std::size_t across = 0; across < dims; ++across)
    for (std::uint64_t at = 0; at < side; ++at) {
      std::vector<std::size_t> loads(servers);
      std::size_t i = 0, all = 0;
      model::for_each_index(Dims::filled(dims, side), [&](const Dims& place) {
        const auto number = along[i++];
        if (place[across] != at) return;
        ++loads[number % servers];
        ++all;
      });
      const auto most = static_cast<double>(*std::ranges::max_element(loads));
      worst = std::max(worst, most / static_cast<double>((all + servers - 1) / servers));
    }
  return worst;
}

TEST(Partition, planes_are_shared_by_servers) {
  for (const std::size_t dims : {2, 3}) {
    const std::uint64_t side = dims == 2 ? 16 : 8;
    const Dims grid = Dims::filled(dims, side);
    const Partition partition(grid, static_cast<std::uint32_t>(element_count(grid)));
    std::vector<std::uint64_t> hilbert(partition.parts()), morton;
    ASSERT_EQ(partition.parts(), element_count(grid));
    for (std::uint32_t part = 0; part < partition.parts(); ++part) {
      std::uint64_t place = 0;
      for (const auto at : partition.box_of(part).start) place = place * side + at;
      hilbert[place] = part;
    }
    model::for_each_index(grid, [&](const Dims& at) {
      model::GridPlace place{};
      std::copy(at.begin(), at.end(), place.begin());
      morton.push_back(model::morton(place, dims, dims == 2 ? 4 : 3));
    });
    EXPECT_EQ(worst_plane(hilbert, side, dims, 2), 1.0);
    EXPECT_EQ(worst_plane(morton, side, dims, 2), 2.0) << "all of a plane on one of two servers";
    for (std::uint64_t servers = 2; servers <= 8; ++servers)
      EXPECT_LE(worst_plane(hilbert, side, dims, servers), 2.0) << servers << " servers, " << dims << " dimensions";
  }
}

TEST(Partition, the_longest_dimension_is_cut) {
  const Partition partition({1'000'000, 2, 3}, 64);
  EXPECT_EQ(partition.parts(), 64u);
  EXPECT_EQ(partition.box_of(63), (Box{{984'375, 0, 0}, {15'625, 2, 3}}));
}

TEST(Partition, scalars_empty_arrays_and_sizes_of_sixty_four_bits) {
  EXPECT_EQ(Partition({}, 64).parts(), 1u);
  EXPECT_EQ(Partition({}, 64).cut({}).size(), 1u);
  EXPECT_EQ(Partition({0, 4}, 1).cut({{0, 0}, {0, 4}}).size(), 0u);
  EXPECT_TRUE(Partition({4}, 2).cut({{2}, {0}}).empty());
  const std::uint64_t huge = ~std::uint64_t{0};
  const Partition partition({huge}, 4096);
  EXPECT_EQ(partition.parts(), 4096u);
  EXPECT_EQ(partition.cut({{huge - 1}, {1}}).front().part, 4095u);
  EXPECT_EQ(partition.cut({{0}, {huge}}).size(), 4096u);
  EXPECT_EQ(code_of([] { Partition({huge, 2}, 4); }), Errc::invalid_argument);
}

}  // namespace
}  // namespace penstock::space
