#include "model/minmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "model/random_test_support.hpp"

namespace penstock::model {
namespace {

template <class T>
void expect_range(const std::vector<T>& values, T low, T high) {
  const auto range = compute_min_max(dtype_of<T>(), values.data(), values.size());
  ASSERT_TRUE(range);
  EXPECT_EQ(range->template as<T>(), std::make_pair(low, high));
}

template <class T>
void compare_with_a_plain_loop() {
  for (std::uint64_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(seed_text(round));
    Random random(40'000 + round);
    std::vector<T> values(random.from(1, 300));
    for (auto& value : values)
      value = std::is_floating_point_v<T> ? static_cast<T>(random.from(0, 2'000'000)) / 1000 - 1000
                                          : static_cast<T>(random.from(0, ~std::uint64_t{0}));
    expect_range(values, *std::min_element(values.begin(), values.end()),
                 *std::max_element(values.begin(), values.end()));
  }
}

TEST(MinMax, equals_a_plain_loop) {
  compare_with_a_plain_loop<std::int8_t>();
  compare_with_a_plain_loop<std::int16_t>();
  compare_with_a_plain_loop<std::int32_t>();
  compare_with_a_plain_loop<std::int64_t>();
  compare_with_a_plain_loop<std::uint8_t>();
  compare_with_a_plain_loop<std::uint16_t>();
  compare_with_a_plain_loop<std::uint32_t>();
  compare_with_a_plain_loop<std::uint64_t>();
  compare_with_a_plain_loop<float>();
  compare_with_a_plain_loop<double>();
}

TEST(MinMax, ignores_nan) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> values(100, nan);
  EXPECT_FALSE(compute_min_max(DType::float64, values.data(), values.size()));
  values[77] = 3;
  expect_range(values, 3.0, 3.0);
  values[3] = -infinity;
  expect_range(values, -infinity, 3.0);
  expect_range(std::vector<double>(20, infinity), infinity, infinity);
}

TEST(MinMax, orders_small_floats) {
  // 1.5, -2, NaN, 0.5, -0.5
  expect_range<float16>({{0x3e00}, {0xc000}, {0x7e00}, {0x3800}, {0xb800}}, {0xc000}, {0x3e00});
  expect_range<bfloat16>({{0x3fc0}, {0xc000}, {0xffc0}, {0x3f00}, {0xbf00}}, {0xc000}, {0x3fc0});
  const float16 nan{0xfe00};
  EXPECT_FALSE(compute_min_max(DType::float16, &nan, 1));
}

TEST(MinMax, has_no_range_where_there_is_no_order) {
  const std::complex<double> number(1, 2);
  EXPECT_FALSE(compute_min_max(DType::complex128, &number, 1));
  EXPECT_FALSE(compute_min_max(DType::string, &number, 1));
  EXPECT_FALSE(compute_min_max(DType::float64, nullptr, 0));
  const bool flags[] = {true, false};
  EXPECT_EQ(compute_min_max(DType::boolean, flags, 2)->as<bool>(), std::make_pair(false, true));
}

TEST(MinMax, merges) {
  const float a[] = {1, 5}, b[] = {-3, 2};
  std::optional<MinMax> range;
  merge(range, compute_min_max(DType::float32, a, 2));
  merge(range, std::nullopt);
  merge(range, compute_min_max(DType::float32, b, 2));
  EXPECT_EQ(range->as<float>(), std::make_pair(-3.0f, 5.0f));
}

}  // namespace
}  // namespace penstock::model
