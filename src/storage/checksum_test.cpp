#include "storage/checksum.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "storage/checksum_kernels.hpp"

namespace penstock::storage {
namespace {

std::vector<std::byte> some_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(Checksum, IsXxh3) {
  EXPECT_EQ(checksum({}), 0x2d06800538d394c2u);  // XXH3_64bits("", 0), from its specification
}

TEST(Checksum, EveryInstructionSetGivesTheSame) {
  for (const std::size_t size : {0u, 1u, 16u, 240u, 241u, 1023u, 1024u, 1025u, 65536u, 1000003u}) {
    const auto bytes = some_bytes(size, static_cast<unsigned>(size));
    const auto expected = baseline_kernel.whole(bytes.data(), bytes.size());
    EXPECT_EQ(checksum(bytes), expected) << size;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
      EXPECT_EQ(avx2_kernel.whole(bytes.data(), bytes.size()), expected) << size;
    }
#endif
  }
}

TEST(Checksum, PartByPartIsTheSameAsInOneGo) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const auto bytes = some_bytes(random() % 300'000, random());
    RunningChecksum running;
    for (std::size_t at = 0; at < bytes.size();) {
      const auto part = std::min<std::size_t>(bytes.size() - at, random() % 70'000);
      running.add(std::span(bytes).subspan(at, part));
      at += part;
    }
    EXPECT_EQ(running.value(), checksum(bytes)) << round;
  }
}

}  // namespace
}  // namespace penstock::storage
