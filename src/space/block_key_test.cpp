#include "space/block_key.hpp"

#include <gtest/gtest.h>

#include "model/random_test_support.hpp"

namespace penstock::space {
namespace {

using model::Random;

constexpr std::uint64_t top = ~std::uint64_t{0};

TEST(BlockKey, comes_back) {
  for (std::uint64_t round = 0; round < 1000; ++round) {
    SCOPED_TRACE(model::seed_text(round));
    Random random(44'000 + round);
    const BlockRow row{random.from(0, top), random.from(0, top), static_cast<std::uint32_t>(random.from(0, 4095))};
    ASSERT_EQ(block_row_of(block_row(row)), row);
    const Box box = random.box_in(random.shape());
    ASSERT_EQ(block_box_of(block_column(box)), box);
  }
}

TEST(BlockKey, an_entry_has_at_most_56_bytes) {
  // The sizes that take most: each just needs a further byte, and the elements of the array are just counted in 64 bits.
  std::size_t most = 0;
  for (std::uint64_t round = 0; round < 20'000; ++round) {
    Random random(45'000 + round);
    const std::size_t dims = random.from(1, max_dims);
    Dims shape = Dims::filled(dims, 1);
    std::uint64_t left = top;
    for (std::size_t d = 0; d < dims; ++d) {
      shape[d] = std::min(left, (std::uint64_t{1} << 7 * random.from(0, 9)) + 1);
      if (d + 1 == dims && random.chance(50)) shape[d] = left;
      left /= shape[d];
      if (left == 0) left = 1;
    }
    Box box = whole(shape);
    most = std::max(most, block_row({top, top, 4095}).size() + block_column(box).size());
    for (std::size_t d = 0; d < dims; ++d) box.start[d] = shape[d] - 1, box.count[d] = 1;
    most = std::max(most, block_row({top, top, 4095}).size() + block_column(box).size());
    for (auto& start : box.start) start /= 2;  // both large
    for (std::size_t d = 0; d < dims; ++d) box.count[d] = shape[d] - box.start[d];
    most = std::max(most, block_row({top, top, 4095}).size() + block_column(box).size());
  }
  EXPECT_LE(most, 56u);
  EXPECT_GE(most, 50u) << "the test has not met the worst cases";
}

TEST(BlockKey, rows_are_in_the_order_of_version_and_part) {
  EXPECT_LT(block_row({1, 255, 9}), block_row({1, 256, 0}));
  EXPECT_LT(block_row({1, 256, 255}), block_row({1, 256, 256}));
}

TEST(BlockKey, other_bytes_are_no_key) {
  const auto row = block_row({1, 2, 3});
  EXPECT_FALSE(block_row_of(row.substr(1)));
  EXPECT_FALSE(block_row_of('c' + row.substr(1)));
  EXPECT_FALSE(block_row_of(""));
  const auto text = [](std::initializer_list<int> bytes) {
    std::string out;
    for (const int byte : bytes) out.push_back(static_cast<char>(byte));
    return out;
  };
  EXPECT_EQ(block_box_of(text({0})), (Box{}));
  EXPECT_EQ(block_box_of(text({1, 0x80, 1, 5})), (Box{{128}, {5}}));
  EXPECT_FALSE(block_box_of(""));
  EXPECT_FALSE(block_box_of(text({9})));
  EXPECT_FALSE(block_box_of(text({0, 0}))) << "bytes after the box";
  EXPECT_FALSE(block_box_of(text({1, 1}))) << "no count";
  EXPECT_FALSE(block_box_of(text({1, 1, 0}))) << "empty";
  EXPECT_FALSE(block_box_of(text({1, 0x80, 0, 5}))) << "longer than it needs to be";
  EXPECT_FALSE(block_box_of(text({1, 0x80}))) << "cut off";
  const auto nine = text({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff});
  EXPECT_EQ(block_box_of(text({1, 0}) + nine + text({1})), (Box{{0}, {top}}));
  EXPECT_FALSE(block_box_of(text({1, 0}) + nine + text({2}))) << "beyond 64 bits";
  EXPECT_FALSE(block_box_of(text({1, 1}) + nine + text({1}))) << "its end is beyond 64 bits";
}

// Whatever is decoded is what would be encoded so: a box has one key.
TEST(BlockKey, random_bytes_decode_to_nothing_or_to_a_box_with_these_bytes) {
  std::size_t decoded = 0;
  for (std::uint64_t round = 0; round < 20'000; ++round) {
    Random random(46'000 + round);
    std::string bytes(random.from(0, 8), '\0');
    for (auto& byte : bytes) byte = static_cast<char>(random.chance(70) ? random.from(0, 3) : random.from(0, 255));
    const auto box = block_box_of(bytes);
    if (!box) continue;
    ++decoded;
    ASSERT_EQ(block_column(*box), bytes) << model::seed_text(round);
  }
  EXPECT_GT(decoded, 100u);
}

}  // namespace
}  // namespace penstock::space
