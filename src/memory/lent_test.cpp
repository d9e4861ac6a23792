#include "memory/lent.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/test_support.hpp"
#include "memory/arena.hpp"

namespace penstock::memory {
namespace {

using testing::HasSubstr;

void expect_error(Errc code, const std::string& part, const std::function<void()>& call) {
  const auto [got, text] = error_of(call);
  EXPECT_EQ(got, code) << text;
  EXPECT_THAT(text, HasSubstr(part));
}

TEST(LentMemoryTest, OffsetsFollowFromSizesAlone) {
  const std::byte one[100]{}, other[64]{};
  LentMemory lent;
  EXPECT_EQ(lent.add(one, 100), 0u);
  EXPECT_EQ(lent.add(other, 64), 128u);
  EXPECT_EQ(lent.find(0, 100), one);
  EXPECT_EQ(lent.find(130, 62), other + 2);
  lent.take_back();
  EXPECT_EQ(lent.add(other, 64), 0u);
  EXPECT_EQ(lent.find(0, 64), other);
}

TEST(LentMemoryTest, WhatIsNotInsideOneArrayIsRefused) {
  const std::byte one[100]{}, other[64]{};
  LentMemory lent;
  expect_error(Errc::step_gone, "taken back", [&] { lent.find(0, 1); });
  lent.add(one, 100);
  lent.add(other, 64);
  const std::uint64_t most = ~std::uint64_t{0};
  for (const auto& [offset, bytes] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 101}, {99, 2}, {101, 1}, {128, 65}, {192, 1}, {0, 192}, {most, 1}, {1, most}, {most, most}})
    expect_error(Errc::protocol, "not inside one array", [&] { lent.find(offset, bytes); });
}

TEST(LentMemoryTest, TakingBackWaitsForWhoTouches) {
  const std::byte data[64]{};
  LentMemory lent;
  lent.add(data, 64);
  std::atomic<bool> inside = false, done = false;
  std::atomic<bool> may_end = false;
  std::thread reader([&] {
    lent.touch(0, 64, [&](const std::byte*) {
      inside = true;
      inside.notify_all();
      may_end.wait(false);
      done = true;
    });
  });
  inside.wait(false);
  std::thread ender([&] {
    while (!lent.empty()) std::this_thread::yield();  // it has begun to take back
    may_end = true;
    may_end.notify_all();
  });
  lent.take_back();
  EXPECT_TRUE(done);
  reader.join();
  ender.join();
  expect_error(Errc::step_gone, "", [&] { lent.touch(0, 1, [](const std::byte*) { FAIL(); }); });
}

TEST(LentMemoryTest, AnArenaServesWhatIsLentToItsStep) {
  Arena arena(1, 1 << 20);
  const std::byte data[64]{};
  arena.begin(0, 7, 0);
  const auto place = arena.lend(0, data, 64);
  EXPECT_EQ(place.segment, lent_segment);
  expect_error(Errc::step_gone, "", [&] { arena.read(0, 7, lent_segment, 0, 64); });
  arena.publish(0, 7);
  EXPECT_EQ(arena.read(0, 7, lent_segment, 0, 64).bytes.data(), data);
  EXPECT_FALSE(arena.idle(0));
  arena.take_back(0);
  expect_error(Errc::step_gone, "", [&] { arena.read(0, 7, lent_segment, 0, 64); });
  arena.recycle(0);
  EXPECT_TRUE(arena.idle(0));
}

}  // namespace
}  // namespace penstock::memory
