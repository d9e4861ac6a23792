#include "pool/server/compute_service.hpp"

#include <gtest/gtest.h>

#include "base/test_support.hpp"

namespace penstock::pool {
namespace {

// Of an object of 16 bytes.
compute::ComputeInput input_of(const std::string& metadata) {
  static const auto memory = ObjectMemory::create(1 << 20, [] {});
  StoredObject object;
  object.bytes = 16;
  object.blob = memory->try_allocate(object.bytes);
  object.metadata = std::make_shared<const std::string>(metadata);
  return described_input({"row", "column"}, object);
}

TEST(DescribedInput, IsWhatTheMetadataSays) {
  const auto plain = input_of(R"({"dtype": "float64", "shape": [2]})");
  EXPECT_EQ(plain.dtype, DType::float64);
  EXPECT_EQ(plain.shape, (Dims{2}));
  EXPECT_FALSE(plain.box);
  const auto placed = input_of(R"({"dtype": "float32", "shape": [2, 2], "start": [4, 6]})");
  ASSERT_TRUE(placed.box);
  EXPECT_EQ(placed.box->start, (Dims{4, 6}));
}

TEST(DescribedInput, MetadataOfTheUsersOwnDescribesNothing) {
  for (const char* metadata :
       {"", "text", "{", "{}", R"({"dtype": 7})", R"({"dtype": "float64", "shape": 2})",
        R"({"dtype": "float64", "shape": [2.0]})", R"({"dtype": "float64", "shape": [1e40]})",
        R"({"dtype": "float64", "shape": [-2]})", R"({"dtype": "float64", "shape": ["2"]})",
        R"({"dtype": "float64", "shape": [2], "start": [0.5]})", R"({"dtype": "float64", "shape": [2], "start": 0})"}) {
    const auto input = input_of(metadata);
    EXPECT_EQ(input.dtype, DType::none) << metadata;
    EXPECT_TRUE(input.shape.empty() && !input.box) << metadata;
    EXPECT_EQ(input.bytes.size(), 16u);
  }
}

TEST(DescribedInput, MetadataThatContradictsTheBytesIsRefused) {
  for (const char* metadata : {R"({"dtype": "float64"})", R"({"dtype": "float64", "shape": [3]})",
                               R"({"dtype": "float64", "shape": [2], "start": [0, 0]})",
                               R"({"dtype": "float64", "shape": [1,1,1,1,1,1,1,1,2]})",
                               R"({"dtype": "float64", "shape": [18446744073709551615, 2]})"})
    EXPECT_EQ(code_of([&] { input_of(metadata); }), Errc::invalid_argument) << metadata;
}

}  // namespace
}  // namespace penstock::pool
