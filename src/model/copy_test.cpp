#include "model/copy.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "model/random_test_support.hpp"

namespace penstock::model {
namespace {

struct Array {
  Strides strides{};
  std::int64_t first = 0;
  std::vector<std::byte> bytes;
  Array(Random& random, const Dims& count, std::size_t elem_size) {
    std::size_t size = 0;
    strides = random.strides(count, elem_size, first, size);
    bytes.resize(size + 64);
    random.fill(bytes);
  }
};

void copy_by_element(Array& dst, const Array& src, const Dims& count, std::size_t elem_size) {
  for_each_index(count, [&](const Dims& index) {
    std::memcpy(dst.bytes.data() + dst.first + offset_of(index, dst.strides),
                src.bytes.data() + src.first + offset_of(index, src.strides), elem_size);
  });
}

TEST(Copy, equals_a_copy_element_by_element) {
  for (std::uint64_t round = 0; round < 4000; ++round) {
    SCOPED_TRACE(seed_text(round));
    Random random(round);
    Dims count = random.shape();
    if (random.chance(5)) count[0] = 0;
    const std::size_t elem_size = random.one_of<std::size_t>({1, 2, 4, 8, 16, 3, 12, 24});
    const Array src(random, count, elem_size);
    Array dst(random, count, elem_size);
    Array expected = dst;
    copy_by_element(expected, src, count, elem_size);
    copy_nd(dst.bytes.data() + dst.first, dst.strides.data(), src.bytes.data() + src.first, src.strides.data(),
            count.begin(), count.size(), elem_size);
    ASSERT_EQ(dst.bytes, expected.bytes);
  }
}

TEST(Copy, pack_and_unpack_are_the_copy_in_two_halves) {
  for (std::uint64_t round = 0; round < 2000; ++round) {
    SCOPED_TRACE(seed_text(round));
    Random random(10'000 + round);
    const Dims count = random.shape();
    const std::size_t elem_size = random.one_of<std::size_t>({1, 2, 4, 8, 16, 3});
    const Array src(random, count, elem_size);
    Array dst(random, count, elem_size);
    Array expected = dst;
    copy_by_element(expected, src, count, elem_size);
    const auto copy = normalise(dst.strides.data(), src.strides.data(), count.begin(), count.size(), elem_size);
    ASSERT_EQ(copy.bytes(), element_count(count) * elem_size);
    std::vector<std::byte> packed(copy.bytes());
    run_pack(copy, packed.data(), src.bytes.data() + src.first);
    if (copy.src_contiguous()) {
      ASSERT_EQ(std::memcmp(packed.data(), src.bytes.data() + src.first + copy.src_offset, packed.size()), 0);
    }
    if (copy.dst_contiguous()) {
      std::memcpy(dst.bytes.data() + dst.first + copy.dst_offset, packed.data(), packed.size());
    } else {
      run_unpack(copy, dst.bytes.data() + dst.first, packed.data());
    }
    ASSERT_EQ(dst.bytes, expected.bytes);
  }
}

// Large enough for tiles and for the stores that bypass caches. Sizes are no multiples of anything, or rows are whole lines.
TEST(Copy, converts_large_arrays_between_orders) {
  for (const std::size_t elem_size : {1, 2, 4, 8, 16}) {
    for (const Dims& count : {Dims{131, 67, 203}, Dims{3, 300'007}, Dims{300'007, 3}, Dims{1501, 1203},
                              Dims{2, 65'537, 5}, Dims{64, 32, 48, 16}}) {
      SCOPED_TRACE(to_string(count) + " of " + std::to_string(elem_size));
      Random random(20'000);
      const std::size_t bytes = element_count(count) * elem_size;
      const std::size_t shift = count.size() == 4 ? 48 : 1;  // of the destination
      std::vector<std::byte> src(bytes), dst(bytes + shift), back(bytes);
      std::uint64_t state = 1;
      for (auto& byte : src) byte = static_cast<std::byte>((state = state * 6364136223846793005u + 1) >> 56);
      const auto row = packed_strides(count, elem_size, Order::row);
      const auto column = packed_strides(count, elem_size, Order::column);
      copy_nd(dst.data() + shift, column.data(), src.data(), row.data(), count.begin(), count.size(), elem_size);
      std::uint64_t wrong = 0;
      for_each_index(count, [&](const Dims& index) {
        wrong += std::memcmp(dst.data() + shift + offset_of(index, column), src.data() + offset_of(index, row),
                             elem_size) != 0;
      });
      EXPECT_EQ(wrong, 0u);
      copy_nd(back.data(), row.data(), dst.data() + shift, column.data(), count.begin(), count.size(), elem_size);
      EXPECT_TRUE(back == src);
    }
  }
}

TEST(Copy, copies_large_runs) {
  const Dims count{70, 300, 129};  // of a 70 x 300 x 257 array: 21 MiB in runs of 1032 bytes
  std::vector<std::byte> src(70 * 300 * 257 * 8), dst(70 * 300 * 129 * 8 + 3);
  for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<std::byte>(i * 7 + i / 1000);
  const auto from = packed_strides({70, 300, 257}, 8, Order::row);
  const auto to = packed_strides(count, 8, Order::row);
  copy_nd(dst.data() + 3, to.data(), src.data(), from.data(), count.begin(), 3, 8);
  for (std::uint64_t line = 0; line < 70 * 300; ++line)
    ASSERT_EQ(std::memcmp(dst.data() + 3 + line * 129 * 8, src.data() + line * 257 * 8, 129 * 8), 0) << line;
}

TEST(Copy, normal_form_merges_what_is_contiguous) {
  const Dims count{4, 5, 6};
  const auto row = packed_strides(count, 8, Order::row);
  const auto same = normalise(row.data(), row.data(), count.begin(), 3, 8);
  EXPECT_EQ(same.ndims, 1u);
  EXPECT_EQ(same.count[0], 120u);
  EXPECT_TRUE(same.dst_contiguous() && same.src_contiguous());
  // Both reversed: still one run, from the other end.
  const std::int64_t backwards[] = {-8};
  const std::uint64_t ten[] = {10};
  const auto reversed = normalise(backwards, backwards, ten, 1, 8);
  EXPECT_TRUE(reversed.dst_contiguous() && reversed.src_contiguous());
  EXPECT_EQ(reversed.dst_offset, -72);
}

TEST(Copy, a_zero_stride_spreads_one_element) {
  const std::int64_t zero[] = {0}, four[] = {4};
  const std::uint64_t count[] = {5};
  const std::uint32_t value = 77;
  std::uint32_t out[5] = {};
  copy_nd(out, four, &value, zero, count, 1, 4);
  for (const auto element : out) EXPECT_EQ(element, 77u);
}

TEST(Copy, knows_packed_arrays) {
  const Dims count{3, 1, 4};
  const auto row = packed_strides(count, 4, Order::row);
  EXPECT_EQ(row, (Strides{16, 16, 4}));
  const auto column = packed_strides(count, 4, Order::column);
  EXPECT_EQ(column, (Strides{4, 12, 12}));
  EXPECT_TRUE(is_contiguous(count, row.data(), 4, Order::row));
  EXPECT_FALSE(is_contiguous(count, row.data(), 4, Order::column));
  const Strides odd_in_the_middle{16, 999, 4};
  EXPECT_TRUE(is_contiguous(count, odd_in_the_middle.data(), 4, Order::row));
}

}  // namespace
}  // namespace penstock::model
