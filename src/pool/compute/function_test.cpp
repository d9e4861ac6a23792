// The built-ins' edges: types, emptiness, NaN, arguments that make no sense.
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "penstock/error.hpp"
#include "pool/compute/arguments.hpp"
#include "pool/compute/function.hpp"

namespace penstock::pool::compute {

namespace {

struct Result {
  std::vector<std::byte> bytes;
  DType dtype = DType::none;
  Dims shape;
  std::string info;
  template <class T>
  std::vector<T> as() const {
    EXPECT_EQ(dtype, dtype_of<T>());
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
};

template <class T>
Input input_of(const std::vector<T>& values, Dims shape, std::optional<Box> box = {}) {
  return {"x", dtype_of<T>(), shape, box, std::as_bytes(std::span(values))};
}

Result call(const std::string& function, const std::vector<Input>& inputs, const std::string& arguments = "",
            std::uint64_t most = 1u << 20) {
  Result result;
  Output output([&](std::uint64_t bytes) {
    if (bytes > most) throw Error(Errc::memory, "too large");
    result.bytes.assign(bytes, std::byte{});
    return result.bytes.data();
  });
  for (const auto& input : inputs) check(input);
  find_builtin(function)->function(inputs, arguments, output, Stop());
  result.dtype = output.dtype;
  result.shape = output.shape;
  result.info = output.info;
  return result;
}

Errc code_of(const std::string& function, const std::vector<Input>& inputs, const std::string& arguments = "") {
  try {
    call(function, inputs, arguments);
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::ok;
}

const std::vector<float> empty;
constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
constexpr auto inf = std::numeric_limits<float>::infinity();

TEST(ComputeFunction, NanAndEmptiness) {
  EXPECT_EQ(call("min", {input_of<float>({nan, 2, -1}, {3})}).as<float>()[0], -1);
  EXPECT_TRUE(std::isnan(call("max", {input_of<float>({nan, nan}, {2})}).as<float>()[0]));
  EXPECT_TRUE(std::isnan(call("sum", {input_of<float>({nan, 1}, {2})}).as<double>()[0]));
  EXPECT_EQ(call("sum", {input_of<float>({inf, 1}, {2})}).as<double>()[0], inf);
  EXPECT_TRUE(std::isnan(call("sum", {input_of<float>({inf, -inf}, {2})}).as<double>()[0]));
  EXPECT_EQ(call("sum", {input_of(empty, {0})}).as<double>()[0], 0);
  EXPECT_EQ(code_of("min", {input_of(empty, {0})}), Errc::invalid_argument);
  EXPECT_EQ(call("min", {input_of(empty, {0}), input_of<float>({3}, {1})}).as<float>()[0], 3);
  EXPECT_EQ(code_of("sum", {}), Errc::invalid_argument);
}

TEST(ComputeFunction, SumsAreExactEnough) {
  // Ten million times 0.1 and a large value that comes and goes.
  std::vector<double> values(1'000'000, 0.1);
  values.front() = 1e16;
  values.back() = -1e16;
  EXPECT_NEAR(call("sum", {input_of(values, {values.size()})}).as<double>()[0], 0.1 * 999'998, 200);
  EXPECT_EQ(call("sum", {input_of<std::int8_t>({-128, -128}, {2})}).as<std::int64_t>()[0], -256);
  EXPECT_EQ(call("sum", {input_of<std::uint8_t>({255, 255}, {2})}).as<std::uint64_t>()[0], 510u);
}

TEST(ComputeFunction, Types) {
  const std::vector<float16> half(2);
  const std::vector<bfloat16> brain(2);
  for (const char* function : {"min", "max", "sum", "histogram"}) {
    EXPECT_EQ(code_of(function, {input_of(half, {2})}), Errc::unsupported) << function;
    EXPECT_EQ(code_of(function, {input_of(brain, {2})}), Errc::unsupported) << function;
    EXPECT_EQ(code_of(function, {Input{"raw", DType::none, {}, {}, {}}}), Errc::unsupported) << function;
    EXPECT_EQ(code_of(function, {input_of<float>({1}, {1}), input_of<double>({1}, {1})}), Errc::invalid_argument);
  }
  EXPECT_EQ(code_of("min", {input_of<std::complex<float>>({1}, {1})}), Errc::unsupported);
  EXPECT_EQ(call("downsample", {input_of(half, {2})}).dtype, DType::float16);  // moved, not computed with
  EXPECT_EQ(call("first", {Input{"raw", DType::none, {}, {}, {}}}).dtype, DType::none);
}

TEST(ComputeFunction, Histogram) {
  const auto result = call("histogram", {input_of<float>({0, 0.5, 1, nan, 5}, {5})}, R"({"bins": 2, "range": [0, 1]})");
  EXPECT_EQ(result.as<std::int64_t>(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(result.info, R"({"range": [0, 1], "counted": 3, "left_out": 2})");
  EXPECT_EQ(call("histogram", {input_of<float>({2, 2}, {2})}).info,
            R"({"range": [1.5, 2.5], "counted": 2, "left_out": 0})");
  for (const char* wrong : {R"({"bins": 0})", R"({"bins": 2000000})", R"({"range": [1, 0]})", R"({"range": [0]})",
                            R"({"range": ["a", 1]})", R"({"bins": -1})", R"({"bins": 1.5})", "[]", "{"})
    EXPECT_EQ(code_of("histogram", {input_of<float>({2}, {1})}, wrong), Errc::invalid_argument) << wrong;
  EXPECT_EQ(code_of("histogram", {input_of<float>({2}, {1})}, R"({"bin": 3})"), Errc::unknown_option);
  const auto big = std::numeric_limits<double>::max();
  EXPECT_EQ(code_of("histogram", {input_of<double>({-big, big}, {2})}), Errc::invalid_argument);
}

TEST(ComputeFunction, Selections) {
  const std::vector<int> a{0, 1, 2, 3}, b{4, 5, 6, 7};
  const std::vector<Input> blocks{input_of(a, {2, 2}, Box{{0, 0}, {2, 2}}), input_of(b, {2, 2}, Box{{2, 0}, {2, 2}})};
  EXPECT_EQ(call("subset", blocks, R"({"box": {"start": [1, 1], "count": [2, 1]}})").as<int>(), (std::vector{3, 5}));
  EXPECT_EQ(code_of("subset", blocks, R"({"box": {"start": [3, 1], "count": [2, 1]}})"), Errc::invalid_argument);
  EXPECT_EQ(code_of("subset", blocks, R"({"box": {"start": [3], "count": [1]}})"), Errc::invalid_argument);
  EXPECT_EQ(code_of("subset", blocks), Errc::invalid_argument);
  EXPECT_EQ(code_of("subset", blocks, R"({"box": {"start": [18446744073709551615, 0], "count": [2, 1]}})"),
            Errc::invalid_argument);
  EXPECT_TRUE(call("subset", blocks, R"({"box": {"start": [0, 0], "count": [0, 2]}})").bytes.empty());
  EXPECT_EQ(call("downsample", blocks, R"({"factor": [3, 1]})").as<int>(), (std::vector{0, 1, 6, 7}));
  EXPECT_EQ(code_of("downsample", blocks, R"({"factor": 0})"), Errc::invalid_argument);
  EXPECT_EQ(code_of("downsample", blocks, R"({"factor": [1, 2, 3]})"), Errc::invalid_argument);
  EXPECT_EQ(call("downsample", blocks, R"({"factor": 18446744073709551615})").as<int>(), (std::vector{0}));
  EXPECT_EQ(code_of("subset", {input_of(a, {4}), input_of(b, {4})}, R"({"box": {"start": [0], "count": [1]}})"),
            Errc::invalid_argument);
  EXPECT_EQ(call("subset", {input_of<int>({9}, {})}, R"({"box": {"start": [], "count": []}})").as<int>()[0], 9);
}

TEST(ComputeFunction, InputsAreChecked) {
  const std::vector<int> a{0, 1};
  EXPECT_THROW(check(input_of(a, {3})), Error);
  EXPECT_THROW(check(input_of(a, {2}, Box{{0}, {3}})), Error);
  EXPECT_THROW(check(input_of(a, {2}, Box{{std::numeric_limits<std::uint64_t>::max()}, {2}})), Error);
  EXPECT_THROW(check(input_of(a, {std::uint64_t{1} << 63, 2})), Error);
  EXPECT_THROW(check(Input{"raw", DType::none, {1}, {}, {}}), Error);
}

TEST(ComputeFunction, Arguments) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  EXPECT_THROW(check_arguments(deep), Error);
  EXPECT_NO_THROW(check_arguments(""));
  EXPECT_NO_THROW(check_arguments(R"({"anything": [1, "two", null]})"));
  EXPECT_THROW(check_arguments("3"), Error);
}

}  // namespace
}  // namespace penstock::pool::compute
