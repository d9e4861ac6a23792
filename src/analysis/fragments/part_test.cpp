#include "analysis/fragments/part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "analysis/fragments/merge.hpp"
#include "base/test_support.hpp"
#include "model/random_test_support.hpp"

namespace penstock::analysis {
namespace {

using model::Random;

RegionSums random_sums(Random& random, std::size_t averages) {
  RegionSums region(averages);
  region.cells = random.from(1, 100);
  for (auto& sum : region.sums)
    for (auto left = random.from(1, 5); left > 0; --left)
      sum.add(std::ldexp(static_cast<double>(random.from(1, 1ull << 53)), -static_cast<int>(random.from(0, 200))));
  return region;
}

// Its names and pairs are in order; merged alone it is refused when it touches anything.
Part random_part(Random& random) {
  Part part;
  part.common = {{1, 2, 3}, {0.5, 0.5, 0.5}, 4, 0.5, static_cast<std::uint32_t>(random.from(0, 3)), true};
  const std::size_t averages = part.common.averages;
  part.above = random_sums(random, averages);
  part.below = random_sums(random, averages);
  const auto own = static_cast<std::int32_t>(random.from(1, 5)), foreign = static_cast<std::int32_t>(random.from(0, 3));
  for (std::int32_t i = 0; i < own; ++i) {
    part.components.push_back({random.from(0, 1ull << 60), random_sums(random, averages)});
    part.aliases.push_back({part.components.back().lowest, i});
    part.extremes.push_back({i, random.from(0, 1ull << 63), {0.25, -1, 1e300}});
  }
  for (std::int32_t i = 0; i < foreign; ++i) {
    part.foreign.push_back(part.components[random.from(0, own - 1)].lowest);
    part.pairs.push_back({static_cast<std::int32_t>(random.from(0, own - 1)), own + i});
  }
  return part;
}

TEST(Part, IsTheSameOnceDecoded) {
  Random random(21);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    const Part part = random_part(random);
    const Part again = decode(bytes_of(encode(part)));
    EXPECT_EQ(again.common, part.common);
    EXPECT_EQ(again.extremes, part.extremes);
    EXPECT_EQ(again.pairs, part.pairs);
    EXPECT_EQ(again.foreign, part.foreign);
    EXPECT_EQ(again.size(), part.size());
    const Merged one = merge({{part}}), other = merge({{again}});
    EXPECT_EQ(one.fragment_of, other.fragment_of);
    EXPECT_EQ(one.volume, other.volume);
    EXPECT_EQ(one.second, other.second);
    EXPECT_EQ(one.averages, other.averages);
    EXPECT_EQ(one.below.mass, other.below.mass);
    EXPECT_EQ(one.above.momentum, other.above.momentum);
  }
}

TEST(Part, RefusesBytesThatAreNone) {
  Random random(22);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    const std::string bytes = encode(random_part(random));
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_EQ(code_of([&] { decode(bytes_of(bytes.substr(0, size))); }), Errc::protocol) << size;
    EXPECT_EQ(code_of([&] { decode(bytes_of(bytes + '\0')); }), Errc::protocol);
    for (int i = 0; i < 300; ++i) {
      std::string damaged = bytes;
      for (auto left = random.from(1, 3); left > 0; --left)
        damaged[random.from(0, bytes.size() - 1)] = random.one_of({'\0', '\1', '\x7f', '\xff', '\x80', '\x40'});
      const auto code = code_of([&] { merge({{decode(bytes_of(damaged))}}); });
      EXPECT_TRUE(code == Errc::ok || code == Errc::protocol || code == Errc::invalid_argument);
    }
  }
}

TEST(Part, RefusesNumbersOutOfRange) {
  Random random(23);
  const auto refused = [&](auto&& damage) {
    Part part = random_part(random);
    part.foreign.push_back(0);
    part.pairs.push_back({0, static_cast<std::int32_t>(part.components.size())});
    decode(bytes_of(encode(part)));
    damage(part, static_cast<std::int32_t>(part.components.size()), static_cast<std::int32_t>(part.size()));
    return code_of([&] { decode(bytes_of(encode(part))); }) == Errc::protocol;
  };
  EXPECT_TRUE(refused([](Part& part, int own, int) { part.aliases[0].component = own; }));
  EXPECT_TRUE(refused([](Part& part, int, int) { part.aliases[0].component = -1; }));
  EXPECT_TRUE(refused([](Part& part, int own, int) { part.pairs[0].own = own; }));
  EXPECT_TRUE(refused([](Part& part, int own, int) { part.pairs[0].foreign = own - 1; }));
  EXPECT_TRUE(refused([](Part& part, int, int all) { part.pairs[0].foreign = all; }));
  EXPECT_TRUE(refused([](Part& part, int, int all) { part.extremes[0].component = all; }));
  EXPECT_TRUE(refused([](Part& part, int, int) { part.common.averages = max_averages + 1; }));
}

}  // namespace
}  // namespace penstock::analysis
