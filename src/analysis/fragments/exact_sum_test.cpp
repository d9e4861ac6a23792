#include "analysis/fragments/exact_sum.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "model/random_test_support.hpp"

namespace penstock::analysis {
namespace {

ExactSum sum_of(std::span<const double> values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

// Whole numbers of up to 52 bits, shifted by up to 60: 128 bits hold their sum, which the compiler rounds to the nearest double.
TEST(ExactSum, IsTheNearestDoubleOfTheSum) {
  model::Random random(1);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    std::vector<double> values;
    __int128 exact = 0;
    for (auto left = random.from(0, 200); left > 0; --left) {
      const auto digits = static_cast<std::int64_t>(random.from(0, (1ull << random.from(1, 52)) - 1));
      const auto shift = static_cast<int>(random.from(0, 60));
      const std::int64_t one = random.chance(50) ? digits : -digits;
      exact += static_cast<__int128>(one) * (static_cast<__int128>(1) << shift);
      values.push_back(std::ldexp(static_cast<double>(one), shift));
      if (random.chance(30)) {  // cancels; what is left may lie just beside the middle between two doubles
        exact -= static_cast<__int128>(one) * (static_cast<__int128>(1) << shift);
        values.push_back(-values.back());
      }
    }
    EXPECT_EQ(sum_of(values).rounded(), static_cast<double>(exact));
  }
}

TEST(ExactSum, DependsOnNoOrderAndNoGrouping) {
  model::Random random(2);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    std::vector<double> values;
    for (auto left = random.from(1, 1000); left > 0; --left) {
      values.push_back(
          std::ldexp(static_cast<double>(random.from(1, 1ull << 53)), static_cast<int>(random.from(0, 1900)) - 1000));
      if (random.chance(50)) values.back() = -values.back();
      if (random.chance(50)) values.push_back(-values[random.from(0, values.size() - 1)]);
    }
    const double expected = sum_of(values).rounded();
    random.shuffle(values);
    std::vector<ExactSum> groups(random.from(1, 9));
    for (const double value : values) groups[random.from(0, groups.size() - 1)].add(value);
    ExactSum all;
    for (const auto& group : groups) all.add(group);
    EXPECT_EQ(all.rounded(), expected);
    EXPECT_EQ(sum_of(all.terms()).rounded(), expected);
    for (const double value : values) all.add(-value);
    EXPECT_EQ(all.rounded(), 0);
    EXPECT_TRUE(all.terms().empty());
  }
}

TEST(ExactSum, RoundsTiesToEvenUnlessMoreFollows) {
  const double half = std::ldexp(1.0, -53), tiny = std::ldexp(1.0, -200);
  EXPECT_EQ(sum_of(std::array{1.0, half}).rounded(), 1.0);
  EXPECT_EQ(sum_of(std::array{1.0, half, tiny}).rounded(), std::nextafter(1.0, 2.0));
  EXPECT_EQ(sum_of(std::array{1.0, half, -tiny}).rounded(), 1.0);
}

TEST(ExactSum, IsNotFiniteWhenAValueIsNot) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(sum_of(std::array{1.0, infinite, 2.0}).rounded(), infinite);
  EXPECT_EQ(sum_of(std::array{1e308, -5.0, 1e308}).rounded(), infinite);
  EXPECT_TRUE(std::isnan(sum_of(std::array{infinite, 1.0, -infinite}).rounded()));
  EXPECT_TRUE(std::isnan(sum_of(std::array{1.0, std::nan(""), 2.0}).rounded()));
}

}  // namespace
}  // namespace penstock::analysis
