#include "penstock/types.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "penstock/error.hpp"
#include "penstock/stream.hpp"

namespace penstock {
namespace {

TEST(DType, names_and_sizes_agree_with_the_cpp_types) {
  for (std::size_t i = 1; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
    EXPECT_EQ(size_of(dtype) == 0, dtype == DType::string);
  }
  EXPECT_EQ(size_of(dtype_of<double>()), sizeof(double));
  EXPECT_EQ(size_of(dtype_of<std::complex<double>>()), sizeof(std::complex<double>));
  EXPECT_EQ(size_of(dtype_of<bfloat16>()), sizeof(bfloat16));
  EXPECT_EQ(size_of(dtype_of<long>()), sizeof(long));
  EXPECT_EQ(name_of(dtype_of<bool>()), "bool");
  EXPECT_EQ(name_of(dtype_of<std::uint16_t>()), "uint16");
}

TEST(DType, the_unknown_is_none) {
  EXPECT_EQ(dtype_from_name("float65"), DType::none);
  EXPECT_EQ(dtype_from_name("none"), DType::none);
  EXPECT_EQ(name_of(static_cast<DType>(200)), "none");
  EXPECT_EQ(size_of(static_cast<DType>(200)), 0u);
}

TEST(Dims, holds_up_to_eight) {
  const std::vector<std::uint64_t> eight{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(Dims(eight).size(), 8u);
  EXPECT_EQ(Dims(eight)[7], 8u);
  EXPECT_THROW(Dims(std::vector<std::uint64_t>(9, 1)), Error);
  EXPECT_THROW(Dims::filled(9, 1), Error);
  EXPECT_EQ(Dims::filled(2, 7), (Dims{7, 7}));
  EXPECT_NE((Dims{1}), (Dims{1, 1}));
}

TEST(Dims, counts_elements_and_refuses_overflow) {
  EXPECT_EQ(element_count({}), 1u);
  EXPECT_EQ(element_count({3, 4}), 12u);
  const std::uint64_t huge = std::uint64_t{1} << 40;
  EXPECT_THROW(element_count({huge, huge}), Error);
  EXPECT_EQ(element_count({huge, huge, 0}), 0u);
}

TEST(Dims, prints) {
  EXPECT_EQ(to_string(Dims{64, 64, 32}), "64x64x32");
  EXPECT_EQ(to_string(Dims{}), "scalar");
  EXPECT_EQ(whole({2, 3}), (Box{{0, 0}, {2, 3}}));
}

TEST(Selection, checks_its_form) {
  EXPECT_THROW(Selection::strided({0}, {1}, {0}), Error);
  EXPECT_THROW(Selection::strided({0, 0}, {1, 1}, {1}), Error);
  EXPECT_THROW(Selection::points({1, 2, 3}, 2), Error);
  EXPECT_THROW(Selection::points({}, 0), Error);
  EXPECT_THROW(Selection::points({}, 9), Error);
  EXPECT_EQ(Selection::strided({0, 1}, {2, 3}, {1, 1}), Selection::box({0, 1}, {2, 3}));
  EXPECT_EQ(Selection::block(3).block_number(), 3u);
  EXPECT_EQ(Selection::points({1, 2, 3, 4}, 2).coordinates().size(), 4u);
}

}  // namespace
}  // namespace penstock
