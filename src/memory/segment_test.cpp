#include "memory/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::memory {
namespace {

TEST(Segment, WriterWritesAndReaderSees) {
  Segment segment = Segment::create(10'000);
  EXPECT_EQ(segment.size(), whole_pages(10'000));
  Mapping reader = map_segment(segment.fd(), segment.size());
  std::memcpy(segment.data() + 9'000, "hello", 5);
  EXPECT_EQ(std::memcmp(reader.data() + 9'000, "hello", 5), 0);
}

TEST(Segment, NobodyCanWriteOrResizeThroughTheDescriptor) {
  Segment segment = Segment::create(4096);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd(), 0), MAP_FAILED);
  EXPECT_EQ(::ftruncate(segment.fd(), 0), -1);
  EXPECT_EQ(::ftruncate(segment.fd(), 8192), -1);
  char byte = 'x';
  EXPECT_EQ(::pwrite(segment.fd(), &byte, 1, 0), -1);
  Mapping reader = map_segment(segment.fd(), segment.size());
  EXPECT_EQ(::mprotect(reader.data(), 4096, PROT_READ | PROT_WRITE), -1);
}

TEST(Segment, ReaderRefusesWhatIsNotASealedSegment) {
  Segment segment = Segment::create(4096);
  EXPECT_EQ(code_of([&] { map_segment(segment.fd(), 8192); }), Errc::protocol);
  UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  EXPECT_EQ(code_of([&] { map_segment(unsealed.get(), 4096); }), Errc::protocol);
  UniqueFd file(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(code_of([&] { map_segment(file.get(), 0); }), Errc::protocol);
}

TEST(Segment, NoRoomIsAnError) {
  EXPECT_EQ(code_of([] { Segment::create(std::uint64_t{1} << 47); }), Errc::memory);
  EXPECT_EQ(code_of([] { Segment::create(0); }), Errc::memory);
}

TEST(SharedPage, BothSidesWrite) {
  UniqueFd fd;
  Mapping mine = create_shared_page(fd);
  Mapping theirs = map_shared_page(fd.get());
  theirs.data()[1] = std::byte{7};
  EXPECT_EQ(mine.data()[1], std::byte{7});
  EXPECT_EQ(::ftruncate(fd.get(), 0), -1);
  Segment larger = Segment::create(3 * 4096);
  EXPECT_EQ(code_of([&] { map_shared_page(larger.fd()); }), Errc::protocol);
}

// How many of a mapping's pages are in this process's page tables.
std::size_t present_pages(const Mapping& mapping) {
  constexpr std::uint64_t present = std::uint64_t{1} << 63;
  UniqueFd map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  std::vector<std::uint64_t> entries(mapping.size() / 4096);
  const auto first = reinterpret_cast<std::uintptr_t>(mapping.data()) / 4096;
  EXPECT_EQ(::pread(map.get(), entries.data(), entries.size() * 8, static_cast<off_t>(first * 8)),
            static_cast<ssize_t>(entries.size() * 8));
  return static_cast<std::size_t>(std::ranges::count_if(entries, [](auto entry) { return (entry & present) != 0; }));
}

TEST(SharedMemory, CountsAsTheReadersOnlyWhileItIsRead) {
  if (::sysconf(_SC_PAGESIZE) != 4096) GTEST_SKIP() << "pages of another size";
  constexpr std::uint64_t pages = 256;
  UniqueFd fd;
  const Mapping mine = create_shared(fd, pages * 4096);
  std::memset(mine.data(), 7, mine.size());
  const UniqueFd given = read_only_descriptor(fd.get());
  const Mapping theirs = map_shared(given.get(), mine.size(), false);
  EXPECT_EQ(present_pages(theirs), 0u);
  const auto sum = [&] {
    return std::accumulate(theirs.data(), theirs.data() + theirs.size(), 0u,
                           [](unsigned s, std::byte b) { return s + static_cast<unsigned>(b); });
  };
  EXPECT_EQ(sum(), 7 * pages * 4096);
  EXPECT_EQ(present_pages(theirs), pages);
  unmap_pages({theirs.data() + 100, 10 * 4096});
  EXPECT_EQ(present_pages(theirs), pages - 9) << "whole pages only";
  unmap_pages({theirs.data(), theirs.size()});
  EXPECT_EQ(present_pages(theirs), 0u);
  EXPECT_EQ(present_pages(mine), pages);
  EXPECT_EQ(sum(), 7 * pages * 4096) << "nothing was lost";
}

TEST(Segment, SeveralThreadsMakeAllOfItsPages) {
  if (::sysconf(_SC_PAGESIZE) != 4096) GTEST_SKIP() << "pages of another size";
  constexpr std::uint64_t pages = 10'001;  // not a multiple of any number of threads
  const Segment segment = Segment::create(pages * 4096, 3);
  const Mapping reader = map_segment(segment.fd(), segment.size());
  EXPECT_EQ(present_pages(reader), pages);
  EXPECT_TRUE(
      std::all_of(segment.data(), segment.data() + segment.size(), [](std::byte b) { return b == std::byte{}; }));
}

}  // namespace
}  // namespace penstock::memory
