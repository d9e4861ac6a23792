#include "trace/stream_text.hpp"

#include <gtest/gtest.h>

namespace penstock::trace {
namespace {

std::string text_of(const Selection& selection) {
  std::string text;
  append_selection(text, selection);
  return text;
}

TEST(StreamText, what_texts_look_like) {
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

}  // namespace
}  // namespace penstock::trace
