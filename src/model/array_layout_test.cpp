#include "model/array_layout.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "model/array_test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::model {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
    return error.what();
  }
  return "";
}

ArrayLayout pair_of(std::uint64_t second_offset, std::uint64_t structure_bytes) {
  return {.fields = {{"a", DType::int32}, {"b", DType::float64, second_offset}},
          .structure_bytes = structure_bytes,
          .order = Dims{0, 1}};
}

TEST(ArrayLayout, places_dimensions_in_order_with_padding) {
  ArrayLayout layout = scalar_layout(DType::float32, Dims{2, 0, 1});
  layout.padding = Dims{0, 3, 1};
  const PlacedArray placed = place(layout, whole({4, 5, 6}));
  EXPECT_EQ(placed.fields[0].strides, (Strides{32, 4, 128}));  // dimension 1 is the fastest, padded to 8 elements
  EXPECT_EQ(placed.bytes, 4u * 4 * 8 * 7);
}

TEST(ArrayLayout, places_structures_and_arrays_of_fields) {
  const PlacedArray structures = place(pair_of(8, 24), whole({3, 5}));
  EXPECT_EQ(structures.fields[1].offset, 8);
  EXPECT_EQ(structures.fields[1].strides, (Strides{120, 24}));
  EXPECT_EQ(structures.bytes, 15u * 24);
  const PlacedArray arrays = place(pair_of(0, 0), whole({3, 5}));
  EXPECT_EQ(arrays.fields[0].strides, (Strides{20, 4}));
  EXPECT_EQ(arrays.fields[1].offset, 64);
  EXPECT_EQ(arrays.bytes, 64u + 15 * 8);
}

TEST(ArrayLayout, places_strides_of_any_sign_and_sees_overlap) {
  ArrayLayout layout{.fields = {{"", DType::float64}}, .strides = {-8, 80}};
  const PlacedArray placed = place(layout, whole({10, 4}));
  EXPECT_EQ(placed.begin, -72);
  EXPECT_EQ(placed.bytes, 320u);
  EXPECT_FALSE(placed.overlapping);
  layout.strides = {-8, 72};
  EXPECT_TRUE(place(layout, whole({10, 4})).overlapping);
  EXPECT_FALSE(place(layout, whole({10, 1})).overlapping);
  layout.strides = {0, 8};
  EXPECT_TRUE(place(layout, whole({2, 4})).overlapping);
  EXPECT_EQ(place(layout, whole({0, 4})).bytes, 0u);
}

// Every field of every element has bytes of its own, within the array.
TEST(ArrayLayout, elements_of_random_layouts_share_no_byte) {
  for (std::uint64_t round = 0; round < 400; ++round) {
    SCOPED_TRACE(seed_text(round));
    Random random(40'000 + round);
    const Dims shape = random.shape();
    const Box box{Dims::filled(shape.size(), random.from(0, 9)), shape};
    const PlacedArray placed = place(random_layout(random, shape), box);
    std::vector<bool> used(placed.bytes);
    for (const PlacedField& field : placed.fields)
      for_each_index(shape, [&](const Dims& index) {
        const std::int64_t first = field.offset + offset_of(index, field.strides) - placed.begin;
        for (std::size_t i = 0; i < size_of(field.dtype); ++i) {
          const auto byte = static_cast<std::uint64_t>(first) + i;
          ASSERT_LT(byte, placed.bytes);
          ASSERT_FALSE(used[byte]);
          used[byte] = true;
        }
      });
  }
}

TEST(ArrayLayout, refuses_contradictions) {
  const auto what = [](const ArrayLayout& layout) { return error_of([&] { validate(layout); }); };
  using testing::HasSubstr;
  EXPECT_EQ(what(pair_of(8, 16)), "");
  EXPECT_THAT(what(pair_of(2, 16)), HasSubstr("field 'b' overlaps another one"));
  EXPECT_THAT(what(pair_of(9, 16)), HasSubstr("field 'b' reaches over the end of the structure"));
  EXPECT_THAT(what(pair_of(~std::uint64_t{3}, 16)), HasSubstr("reaches over the end"));
  EXPECT_THAT(what(pair_of(8, std::uint64_t{1} << 63)), HasSubstr("too large"));
  EXPECT_THAT(what(pair_of(8, 0)), HasSubstr("there are no structures"));
  EXPECT_THAT(what({.order = Dims{0}}), HasSubstr("0 fields, expected 1 to 1024"));
  EXPECT_THAT(what(scalar_layout(DType::string, Dims{0})), HasSubstr("without a fixed size"));
  EXPECT_THAT(what({.fields = {{"a", DType::int8}, {"a", DType::int8}}, .order = Dims{0}}),
              HasSubstr("'a' appears twice"));
  EXPECT_THAT(what({.fields = {{"a", DType::int8}, {"", DType::int8}}, .order = Dims{0}}), HasSubstr("has no name"));
  EXPECT_THAT(what({.fields = {{std::string(256, 'a'), DType::int8}}}), HasSubstr("name is too long"));
  EXPECT_THAT(what(scalar_layout(DType::int8, Dims{0, 0})), HasSubstr("no permutation of 2 dimensions"));
  EXPECT_THAT(what(scalar_layout(DType::int8, Dims{1, 2})), HasSubstr("no permutation"));
  ArrayLayout layout = scalar_layout(DType::int8, Dims{0, 1});
  layout.padding = Dims{1};
  EXPECT_THAT(what(layout), HasSubstr("padding of 1 dimensions, expected 2"));
  layout.padding = {};
  layout.strides = {8, 1};
  EXPECT_THAT(what(layout), HasSubstr("strides exclude an order and padding"));
  layout.order = {};
  EXPECT_EQ(what(layout), "");
  layout.fields = {{"a", DType::int8}, {"b", DType::int8}};
  EXPECT_THAT(what(layout), HasSubstr("not for several arrays"));
  layout = {.fields = {{"", DType::int8}}, .strides = std::vector<std::int64_t>(9, 1)};
  EXPECT_THAT(what(layout), HasSubstr("more than 8 dimensions"));
}

TEST(ArrayLayout, refuses_arrays_that_63_bits_cannot_address) {
  using testing::HasSubstr;
  const auto what = [](const ArrayLayout& layout, const Dims& shape) {
    return error_of([&] { place(layout, whole(shape)); });
  };
  constexpr std::uint64_t huge = std::uint64_t{1} << 62;
  ArrayLayout layout = scalar_layout(DType::int8, Dims{0, 1});
  EXPECT_EQ(what(layout, {1, huge}), "");
  EXPECT_THAT(what(layout, {2, huge}), HasSubstr("takes 2^63 bytes or more"));
  layout.padding = Dims{0, huge};
  EXPECT_THAT(what(layout, {1, huge}), HasSubstr("takes 2^63 bytes or more"));
  layout.padding = Dims{0, ~std::uint64_t{0}};
  EXPECT_THAT(what(layout, {1, 1}), HasSubstr("takes 2^63 bytes or more"));
  const ArrayLayout two{.fields = {{"a", DType::int8}, {"b", DType::int8}}, .order = Dims{0}};
  EXPECT_THAT(what(two, {huge}), HasSubstr("2^63 bytes or more"));
  const ArrayLayout strided{.fields = {{"", DType::int8}}, .strides = {std::numeric_limits<std::int64_t>::min()}};
  EXPECT_EQ(what(strided, {1}), "");
  EXPECT_THAT(what(strided, {2}), HasSubstr("reaches over 2^63 bytes"));
  EXPECT_THAT(what(strided, {2, 2}), HasSubstr("1 dimensions, but the box [0, 2) x [0, 2) has 2"));
}

}  // namespace
}  // namespace penstock::model
