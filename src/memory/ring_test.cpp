#include "memory/ring.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "memory/doorbell.hpp"
#include "penstock/error.hpp"

namespace penstock::memory {
namespace {

using base::Deadline;

TEST(Ring, CarriesRecordsBothWaysInOrder) {
  RingEnd a, b;
  Record record;
  EXPECT_FALSE(a.push(record));  // not attached
  a.attach(b.fd());
  b.attach(a.fd());
  for (std::uint32_t round = 0; round < 5; ++round) {
    for (std::uint32_t i = 0; i < 700; ++i) ASSERT_TRUE(a.push({.kind = round, .a = i, .h = i * 3}));
    ASSERT_TRUE(b.push({.kind = 99}));
    for (std::uint32_t i = 0; i < 700; ++i) {
      ASSERT_TRUE(b.pop(record));
      EXPECT_EQ(record, (Record{.kind = round, .a = i, .h = i * 3}));
    }
    EXPECT_FALSE(b.pop(record));
    ASSERT_TRUE(a.pop(record));
    EXPECT_EQ(record.kind, 99u);
  }
}

TEST(Ring, FullIsNotAnError) {
  RingEnd a, b;
  a.attach(b.fd());
  b.attach(a.fd());
  std::uint64_t pushed = 0;
  while (a.push({})) ++pushed;
  EXPECT_EQ(pushed, Mailbox::capacity);
  Record record;
  ASSERT_TRUE(b.pop(record));
  EXPECT_TRUE(a.push({}));
  EXPECT_FALSE(a.push({}));
}

// A peer whose counters lie is found out; a peer's mailbox is a segment it made itself.
TEST(Ring, ImpossibleCountersAreProtocolErrors) {
  RingEnd mine;
  Segment liar = Segment::create(sizeof(Mailbox));
  auto& mailbox = *reinterpret_cast<Mailbox*>(liar.data());
  mine.attach(liar.fd());
  Record record;
  mailbox.head.store(Mailbox::capacity + 1);
  EXPECT_THROW(mine.pop(record), Error);
  mailbox.head.store(~0ull);
  EXPECT_THROW(mine.pop(record), Error);
  mailbox.tail_seen.store(5);
  EXPECT_THROW(mine.push(record), Error);
  Segment small = Segment::create(4096);
  EXPECT_THROW(mine.attach(small.fd()), Error);
}

TEST(Ring, TwoThreadsAndDoorbells) {
  RingEnd a, b;
  a.attach(b.fd());
  b.attach(a.fd());
  Doorbell bell = Doorbell::create();
  Doorbell remote = Doorbell::attach(bell.fd());
  constexpr std::uint32_t count = 20'000;
  std::thread producer([&] {
    for (std::uint32_t i = 0; i < count;) {
      if (a.push({.a = i, .c = i + 1ull})) {
        remote.ring();
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  const Deadline deadline{Timeout(60'000)};
  Record record;
  for (std::uint32_t i = 0; i < count;) {
    const auto seen = bell.value();
    if (b.pop(record)) {
      ASSERT_EQ(record.a, i);
      ASSERT_EQ(record.c, i + 1ull);
      ++i;
    } else {
      ASSERT_TRUE(bell.wait(seen, deadline, 10));
    }
  }
  producer.join();
}

TEST(Ring, RecordsOutliveTheProcessThatPushedThem) {
  RingEnd mine;
  RingEnd theirs;
  theirs.attach(mine.fd());
  mine.attach(theirs.fd());
  const pid_t child = ::fork();
  if (child == 0) {
    theirs.push({.kind = 5, .b = 6});
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  Record record;
  ASSERT_TRUE(mine.pop(record));
  EXPECT_EQ(record.b, 6u);
}

TEST(Doorbell, WaitEndsByRingOrDeadline) {
  Doorbell bell = Doorbell::create();
  const auto seen = bell.value();
  EXPECT_FALSE(bell.wait(seen, Deadline{Timeout(0)}, 0));
  EXPECT_FALSE(bell.wait(seen, Deadline{Timeout(5)}, 1000));
  Doorbell remote = Doorbell::attach(bell.fd());
  remote.ring();
  EXPECT_TRUE(bell.wait(seen, Deadline{Timeout(0)}, 0));
  const auto now = bell.value();
  std::thread ringer([&] { remote.ring(); });
  EXPECT_TRUE(bell.wait(now, Deadline{Timeout(60'000)}, 0));
  ringer.join();
  Doorbell none;
  none.ring();
  EXPECT_FALSE(none);
}

TEST(Doorbell, WakesASleeperInAnotherProcess) {
  Doorbell bell = Doorbell::create();
  const auto seen = bell.value();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(bell.wait(seen, Deadline{Timeout(60'000)}, 0) ? 0 : 1);
  bell.ring();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace penstock::memory
