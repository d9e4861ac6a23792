#include "memory/kind.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/test_support.hpp"
#include "memory/device_fixture.hpp"

namespace penstock::memory {
namespace {

TEST(MemoryKind, IsKnownOfEveryAddressInside) {
  std::vector<std::byte> plain(100);
  EXPECT_EQ(kind_of(plain.data()), Kind::host);  // before CUDA is loaded, if this test runs alone
  const DeviceMemory device(1000), pooled(1000, "cuMemAllocAsync"), managed(1000, "cuMemAllocManaged"),
      pinned(1000, "cuMemHostAlloc");
  EXPECT_EQ(kind_of(device.data()), Kind::device);
  EXPECT_EQ(kind_of(device.data() + 999), Kind::device);
  EXPECT_EQ(kind_of(pooled.data()), Kind::device);
  EXPECT_EQ(kind_of(managed.data()), Kind::host);
  EXPECT_EQ(kind_of(pinned.data()), Kind::pinned);
  EXPECT_EQ(kind_of(plain.data()), Kind::host);
  EXPECT_EQ(kind_of(nullptr), Kind::host);
}

TEST(MemoryKind, CopiesInAndOutOfEach) {
  std::vector<std::byte> bytes(1000), back(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  for (const char* how : {"cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocManaged", "cuMemHostAlloc"}) {
    const DeviceMemory memory(1000, how);
    copy_out(memory.data(), bytes.data(), 1000);
    EXPECT_EQ(memory.read(), bytes) << how << ": other streams see it";
    back.assign(1000, std::byte{});
    copy_in(back.data(), memory.data(), 1000);
    EXPECT_EQ(back, bytes) << how;
    copy_in(back.data(), memory.data() + 500, 0);
  }
  back.assign(1000, std::byte{});
  copy_in(back.data(), bytes.data(), 1000);
  EXPECT_EQ(back, bytes);
}

TEST(MemoryKind, WhatTheDeviceRefusesIsAnErrorThatSaysSo) {
  const DeviceMemory memory(1000);
  std::vector<std::byte> host(2000);
  const auto [code, what] = error_of([&] { copy_in(host.data(), memory.data(), 2000); });
  EXPECT_EQ(code, Errc::system);
  EXPECT_NE(what.find("CUDA: memory could not be copied from the device: error 1"), std::string::npos) << what;
  EXPECT_EQ(code_of([&] { copy_out(memory.data() + 1, host.data(), 1000); }), Errc::system);
}

}  // namespace
}  // namespace penstock::memory
