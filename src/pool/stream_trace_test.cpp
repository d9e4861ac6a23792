#include "pool/stream_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/random_test_support.hpp"

namespace penstock::pool {
namespace {

std::string text_of(const Selection& selection) {
  std::string text;
  append_selection(text, selection);
  return text;
}

TEST(StreamTrace, what_texts_look_like) {
  EXPECT_EQ(text_of(Selection::all()), "all");
  EXPECT_EQ(text_of(Selection::box({0, 1}, {64, 2})), "box 0,1+64,2");
  EXPECT_EQ(text_of(Selection::strided({0, 1}, {3, 2}, {2, 1})), "box 0,1+3,2/2,1");
  EXPECT_EQ(text_of(Selection::block(7)), "block 7");
  EXPECT_EQ(text_of(Selection::points({1, 2, 3, 4, 5, 6}, 3)), "points 2x3");
  std::string box;
  append_box(box, {});
  EXPECT_EQ(box, "+");
  EXPECT_EQ(describe_variable({DType::float64, {64, 2}, {.min_max = true}}), "float64 global_array row 64,2 min_max");
  EXPECT_EQ(describe_variable({DType::string, {}, {.kind = Kind::global_value}}), "string global_value row ");
  EXPECT_EQ(describe_attribute(Attribute::of(1.5)), "float64 scalar");
  EXPECT_EQ(describe_attribute(Attribute::of(std::vector<std::string>{"a", "b"})), "string 2");
}

TEST(StreamTrace, both_ways) {
  SCOPED_TRACE("PENSTOCK_TEST_SEED=" + std::to_string(model::test_seed()));
  model::Random random(5);
  const auto dims = [&](std::size_t count) {
    Dims dims = Dims::filled(count, 0);
    for (auto& value : dims) value = random.from(0, 1) == 0 ? random.from(0, 9) : ~std::uint64_t{0} - random.from(0, 9);
    return dims;
  };
  for (int i = 0; i < 1000; ++i) {
    const auto count = static_cast<std::size_t>(random.from(0, max_dims));
    const Box box{dims(count), dims(count)};
    std::string text;
    append_box(text, box);
    ASSERT_EQ(parse_box(text), box) << text;
    ASSERT_EQ(parse_shape(describe_shape(box.count)), box.count);
    Dims strides = Dims::filled(count, 1);
    for (auto& stride : strides) stride = random.from(1, 5);
    for (const auto& selection :
         {Selection::all(), Selection::box(box), Selection::strided(box.start, box.count, strides),
          Selection::block(static_cast<std::uint64_t>(i)), Selection::points(std::vector<std::uint64_t>(6), 3)})
      ASSERT_EQ(parse_selection(text_of(selection)), selection) << text_of(selection);
    DescribedVariable variable;
    variable.dtype = static_cast<DType>(random.from(1, dtype_count - 1));
    variable.shape = dims(count);
    variable.options = {static_cast<Kind>(random.from(0, 3)), static_cast<Order>(random.from(0, 1)),
                        random.from(0, 1) == 1};
    ASSERT_EQ(parse_variable(describe_variable(variable)), variable);
  }
  for (const auto& attribute :
       {Attribute::of(0.0), Attribute::of(std::string()), Attribute::of(std::vector<std::string>(3)),
        Attribute::of(std::span<const int>(std::vector<int>(4)))})
    EXPECT_EQ(parse_attribute(describe_attribute(attribute)), attribute);
}

TEST(StreamTrace, other_texts_are_refused) {
  const auto refused = [](auto parse, std::string_view text) {
    try {
      parse(text);
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::protocol) << text;
    }
  };
  for (const char* text : {"", "1,2", "1+", "1,+1", ",1+1", "-1+1", "1+1,2", "a+b", "1 +1", "1+18446744073709551616",
                           "1,1,1,1,1,1,1,1,1+1,1,1,1,1,1,1,1,1"})
    refused(&parse_box, text);
  for (const char* text : {"", "al", "all x", "box", "box 1", "box 1+1/0", "box 1+1/1,1", "block", "block x",
                           "points 1", "points 1x0", "points 1x9", "points x1"})
    refused(&parse_selection, text);
  for (const char* text :
       {"", "float64", "float65 global_array row 1", "float64 array row 1", "none global_array row 1",
        "float64 global_array diagonal 1", "float64 global_array row x", "float64 global_array row 1 max"})
    refused(&parse_variable, text);
  for (const char* text : {"", "float64", "float64 x", "none 1", "float64 99999999999"})
    refused(&parse_attribute, text);
  EXPECT_EQ(parse_selection("points 99999999x1").coordinates().size(), 65536u);
}

}  // namespace
}  // namespace penstock::pool
