#include "memory/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

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

}  // namespace
}  // namespace penstock::memory
