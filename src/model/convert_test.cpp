#include "model/convert.hpp"

#include <gtest/gtest.h>

#include <complex>

#include "model/convert_test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::model {
namespace {

struct Source {
  DType dtype;
  std::uint64_t count;
  std::vector<std::byte> bytes;
  Source(Random& random, DType type, std::uint64_t elements)
      : dtype(type), count(elements), bytes(elements * size_of(type)) {
    for (std::uint64_t i = 0; i < count; ++i) random_number(random, dtype, bytes.data() + i * size_of(dtype));
  }
  const std::byte* at(std::uint64_t i) const { return bytes.data() + i * size_of(dtype); }
};

void check_pair(DType to, const Source& source) {
  std::vector<std::byte> converted(source.count * size_of(to) + 1);
  std::byte* out = converted.data() + 1;
  EXPECT_TRUE(conversion_between(to, source.dtype).run(out, source.bytes.data(), source.count));
  const Conversion in_range = conversion_between(to, source.dtype, Check::range);
  const Conversion exact = conversion_between(to, source.dtype, Check::exact);
  bool all_in_range = true, all_exact = true;
  for (std::uint64_t i = 0; i < source.count; ++i) {
    const Reference expected = reference_of(to, source.dtype, source.at(i));
    const std::byte* element = out + i * size_of(to);
    ASSERT_TRUE(same_number(to, element, expected.element.data()))
        << text_of_number(source.dtype, source.at(i)) << " became " << text_of_number(to, element) << ", expected "
        << text_of_number(to, expected.element.data());
    std::byte one[16];
    EXPECT_EQ(in_range.run(one, source.at(i), 1), expected.in_range) << text_of_number(source.dtype, source.at(i));
    EXPECT_EQ(exact.run(one, source.at(i), 1), expected.exact) << text_of_number(source.dtype, source.at(i));
    all_in_range &= expected.in_range;
    all_exact &= expected.exact;
  }
  const std::vector<std::byte> unchecked = converted;
  EXPECT_EQ(in_range.run(out, source.bytes.data(), source.count), all_in_range);
  EXPECT_EQ(exact.run(out, source.bytes.data(), source.count), all_exact);
  EXPECT_EQ(converted, unchecked);
}

TEST(Convert, every_pair_of_types_equals_the_reference) {
  for (const DType from : numbers)
    for (const DType to : numbers) {
      if (from == to) continue;
      const auto pair = static_cast<std::uint64_t>(from) * dtype_count + static_cast<std::uint64_t>(to);
      SCOPED_TRACE(std::string(name_of(from)) + " to " + std::string(name_of(to)) + ", " + seed_text(pair));
      Random random(30'000 + pair);
      check_pair(to, Source(random, from, random.from(1, 400)));
    }
}

TEST(Convert, every_16_bit_float_keeps_its_value_on_the_way_through_wider_ones) {
  for (const DType small : {DType::float16, DType::bfloat16})
    for (const DType wide : {DType::float32, DType::float64}) {
      Random random(0);
      Source all(random, small, 65536);
      for (std::uint32_t bits = 0; bits < 65536; ++bits) std::memcpy(all.bytes.data() + 2 * bits, &bits, 2);
      std::vector<std::byte> wider(65536 * size_of(wide)), back(all.bytes.size());
      EXPECT_TRUE(conversion_between(wide, small, Check::exact).run(wider.data(), all.bytes.data(), 65536));
      EXPECT_TRUE(conversion_between(small, wide, Check::exact).run(back.data(), wider.data(), 65536));
      for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        ASSERT_EQ(std::isnan(number_value(wide, wider.data() + bits * size_of(wide))),
                  std::isnan(number_value(small, all.at(bits))));
        ASSERT_TRUE(same_number(small, back.data() + 2 * bits, all.at(bits))) << bits;
      }
    }
}

TEST(Convert, complex_numbers_convert_by_their_parts) {
  const std::complex<double> values[] = {{1.5, -2.25}, {1e300, 0}, {0.1, 4}};
  const auto run = [&](Check check, std::size_t i) {
    std::complex<float> out;
    const bool accepted =
        conversion_between(DType::complex64, DType::complex128, check)
            .run(reinterpret_cast<std::byte*>(&out), reinterpret_cast<const std::byte*>(values + i), 1);
    EXPECT_EQ(out, std::complex<float>(values[i]));
    return accepted;
  };
  EXPECT_TRUE(run(Check::exact, 0));
  EXPECT_TRUE(run(Check::none, 1));
  EXPECT_FALSE(run(Check::range, 1));
  EXPECT_TRUE(run(Check::range, 2));
  EXPECT_FALSE(run(Check::exact, 2));
}

TEST(Convert, refuses_types_that_do_not_convert) {
  const auto code = [](DType to, DType from) {
    try {
      conversion_between(to, from);
      return Errc::ok;
    } catch (const Error& error) {
      return error.code();
    }
  };
  EXPECT_EQ(code(DType::float64, DType::complex64), Errc::unsupported);
  EXPECT_EQ(code(DType::complex64, DType::float32), Errc::unsupported);
  EXPECT_EQ(code(DType::string, DType::string), Errc::unsupported);
  EXPECT_EQ(code(DType::none, DType::int8), Errc::unsupported);
  EXPECT_EQ(conversion_between(DType::int8, DType::int8).run, nullptr);
}

}  // namespace
}  // namespace penstock::model
