#include "memory/arena.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <thread>

#include "base/test_support.hpp"
#include "penstock/error.hpp"

namespace penstock::memory {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

std::byte* fill(Arena& arena, std::uint32_t slot, std::uint64_t bytes, int value) {
  const Place place = arena.allocate(slot, bytes);
  std::memset(place.data, value, bytes);
  return place.data;
}

TEST(Arena, PlacesAreAlignedAndReadable) {
  Arena arena(2, 64 * mib);
  arena.begin(0, 7, 0);
  const Place a = arena.allocate(0, 10);
  const Place b = arena.allocate(0, 100);
  EXPECT_EQ(a.segment, 0u);
  EXPECT_EQ(a.offset, slot_header_bytes);
  EXPECT_EQ(b.offset, a.offset + 64);
  std::memset(b.data, 5, 100);
  EXPECT_EQ(code_of([&] { arena.read(0, 7, 0, b.offset, 100); }), Errc::step_gone);
  arena.set_payload(0, b, 100);
  arena.publish(0, 7);
  const auto view = arena.read(0, 7, 0, b.offset, 100);
  EXPECT_EQ(view.bytes[99], std::byte{5});
  const auto& header = *reinterpret_cast<const SlotHeader*>(view.owner->data());
  const SlotInfo info = load(header);
  EXPECT_EQ(info.step, 7u);
  EXPECT_EQ(info.payload_offset, b.offset);
  EXPECT_EQ(info.payload_bytes, 100u);
  EXPECT_TRUE(arena.holds(0, 7));
  EXPECT_FALSE(arena.holds(1, 7));
}

TEST(Arena, EverySlotTellsOfCopies) {
  Arena arena(3, 64 * mib);
  std::vector<const SlotHeader*> headers;
  for (std::uint32_t slot = 0; slot < 2; ++slot) {  // the third has no memory yet
    arena.begin(slot, slot, 0);
    arena.publish(slot, slot);
    headers.push_back(reinterpret_cast<const SlotHeader*>(arena.read(slot, slot, 0, 0, 128).bytes.data()));
    EXPECT_EQ(headers.back()->copying.load(), 0u);
  }
  arena.note_copying(true);
  for (const auto* header : headers) EXPECT_EQ(header->copying.load(), 1u);
  arena.note_copying(false);
  for (const auto* header : headers) EXPECT_EQ(header->copying.load(), 0u);
}

TEST(Arena, ReadChecksEverything) {
  Arena arena(1, 64 * mib);
  arena.begin(0, 1, 0);
  arena.publish(0, 1);
  EXPECT_EQ(code_of([&] { arena.read(0, 2, 0, 0, 1); }), Errc::step_gone);
  EXPECT_EQ(code_of([&] { arena.read(0, slot_filling, 0, 0, 1); }), Errc::step_gone);
  EXPECT_EQ(code_of([&] { arena.read(1, 1, 0, 0, 1); }), Errc::protocol);
  EXPECT_EQ(code_of([&] { arena.read(0, 1, 1, 0, 1); }), Errc::protocol);
  EXPECT_EQ(code_of([&] { arena.read(0, 1, 0, ~0ull, 1); }), Errc::protocol);
  EXPECT_EQ(code_of([&] { arena.read(0, 1, 0, 8, ~0ull - 4); }), Errc::protocol);
}

TEST(Arena, GrowsAndThenSettlesInOneSegment) {
  Arena arena(1, 256 * mib);
  std::uint32_t announced = 0;
  arena.subscribe([&](const SegmentInfo& info) { announced += info.bytes > 0; });
  for (std::uint64_t step = 0; step < 6; ++step) {
    const std::uint32_t before = announced;
    arena.begin(0, step, 0);
    for (int block = 0; block < 20; ++block) fill(arena, 0, mib, block);
    arena.publish(0, step);
    if (step == 0) {
      EXPECT_GT(announced, 1u);
    } else {
      EXPECT_EQ(announced, step == 1 ? before + 1 : before);
    }
    EXPECT_GE(arena.used_bytes(0), 20 * mib);
    arena.recycle(0);
  }
  EXPECT_LE(arena.total_bytes(), 22 * mib);
}

TEST(Arena, SteadyStateFaultsNoPages) {
  Arena arena(2, 256 * mib);
  for (std::uint64_t step = 0; step < 4; ++step) {
    arena.begin(step % 2, step, 16 * mib);
    fill(arena, step % 2, 16 * mib, 1);
    arena.publish(step % 2, step);
    arena.recycle(step % 2);
  }
  rusage before{}, after{};
  ::getrusage(RUSAGE_THREAD, &before);
  for (std::uint64_t step = 4; step < 8; ++step) {
    arena.begin(step % 2, step, 16 * mib);
    fill(arena, step % 2, 16 * mib, 2);
    arena.publish(step % 2, step);
    arena.recycle(step % 2);
  }
  ::getrusage(RUSAGE_THREAD, &after);
  EXPECT_LT(after.ru_minflt - before.ru_minflt, 16);
}

TEST(Arena, LimitHoldsAndIdleMemoryIsTakenBack) {
  Arena arena(3, 8 * mib);
  std::vector<SegmentInfo> released;
  arena.subscribe([&](const SegmentInfo& info) {
    if (info.bytes == 0) released.push_back(info);
  });
  arena.begin(0, 0, 3 * mib);
  arena.publish(0, 0);
  arena.begin(1, 1, 3 * mib);
  arena.publish(1, 1);
  EXPECT_EQ(code_of([&] { arena.begin(2, 2, 4 * mib); }), Errc::step_too_large);
  EXPECT_TRUE(released.empty());
  arena.recycle(0);
  arena.begin(2, 2, 4 * mib);
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].slot, 0u);
  EXPECT_EQ(released[0].generation, 1u);
  EXPECT_LE(arena.total_bytes(), 8 * mib);
  EXPECT_TRUE(arena.holds(1, 1));
  fill(arena, 2, 4 * mib, 1);
  EXPECT_EQ(code_of([&] { arena.allocate(2, 2 * mib); }), Errc::step_too_large);
  EXPECT_FALSE(arena.try_allocate(2, 2 * mib));
  arena.recycle(1);
  EXPECT_TRUE(arena.try_allocate(2, 2 * mib));
  EXPECT_EQ(code_of([&] { arena.allocate(2, ~0ull); }), Errc::step_too_large);
}

TEST(Arena, BeginFindsWhatWasPrepared) {
  Arena arena(3, 8 * mib);
  std::vector<SegmentInfo> made;
  arena.subscribe([&](const SegmentInfo& info) { made.push_back(info); });
  EXPECT_TRUE(arena.prepare(0, 3 * mib));
  EXPECT_FALSE(arena.prepare(0, 3 * mib)) << "it has memory";
  EXPECT_TRUE(arena.prepare(1, 3 * mib));
  EXPECT_FALSE(arena.prepare(2, 3 * mib)) << "beyond the limit; what there is stays";
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[1].slot, 1u);
  const auto total = arena.total_bytes();
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    arena.begin(slot, slot, 3 * mib);
    fill(arena, slot, 3 * mib, 1);
    arena.publish(slot, slot);
  }
  EXPECT_EQ(made.size(), 2u);
  EXPECT_EQ(arena.total_bytes(), total);
  EXPECT_FALSE(arena.prepare(1, 3 * mib)) << "in use";
}

TEST(Arena, StepsAreWrittenWhileMemoryIsPrepared) {
  constexpr std::uint32_t slots = 4;
  for (int round = 0; round < 100; ++round) {
    // Either all slots have room for what was announced, or the first step, which is larger, takes the room of two.
    const bool short_of_room = round % 2 == 1;
    const std::uint64_t limit = (short_of_room ? 5 : 8) * mib + 64 * 4096;
    Arena arena(slots, limit);
    std::vector<std::uint64_t> mapped(slots);  // by slot; the subscriber is called with the arena's lock held
    arena.subscribe([&](const SegmentInfo& info) { mapped[info.slot] = info.bytes; });
    std::thread preparing([&] {
      for (std::uint32_t slot = 0; slot < slots; ++slot) arena.prepare(slot, mib);
    });
    for (std::uint32_t step = 0; step < 2 * slots; ++step) {
      const std::uint64_t bytes = short_of_room && step == 0 ? 3 * mib : mib;
      arena.begin(step % slots, step, mib);
      const auto* data = fill(arena, step % slots, bytes, static_cast<int>(step + 1));
      arena.publish(step % slots, step);
      EXPECT_EQ(data[bytes - 1], static_cast<std::byte>(step + 1));
      EXPECT_LE(arena.total_bytes(), limit);
      arena.recycle(step % slots);
    }
    preparing.join();
    if (short_of_room) continue;
    std::uint64_t sum = 0;
    for (const auto bytes : mapped) {
      EXPECT_GT(bytes, 0u);
      sum += bytes;
    }
    EXPECT_EQ(sum, arena.total_bytes()) << "no slot's memory was made twice";
  }
}

TEST(Arena, DoublingFallsBackToWhatFits) {
  Arena arena(1, 10 * mib);
  arena.begin(0, 0, 6 * mib);
  fill(arena, 0, 6 * mib, 1);
  EXPECT_EQ(arena.allocate(0, 3 * mib).segment, 1u);
  EXPECT_LE(arena.total_bytes(), 10 * mib);
}

TEST(Arena, SmallLimitsWork) {
  Arena arena(4, 64 << 10);
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    arena.begin(slot, slot, 1000);
    fill(arena, slot, 1000, 1);
    arena.publish(slot, slot);
  }
  EXPECT_LE(arena.total_bytes(), 64u << 10);
}

TEST(Arena, OldMappingsSayThatTheyWereReplaced) {
  Arena arena(1, 64 * mib);
  arena.begin(0, 3, 0);
  arena.publish(0, 3);
  const auto view = arena.read(0, 3, 0, 0, 64);
  arena.begin(0, 4, 8 * mib);
  EXPECT_EQ(load(*reinterpret_cast<const SlotHeader*>(view.owner->data())).step, slot_replaced);
}

TEST(Arena, LateSubscribersLearnOfEverySegment) {
  Arena arena(3, 64 * mib);
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    arena.begin(slot, slot, 0);
    fill(arena, slot, 3 * mib, 1);
    arena.publish(slot, slot);
  }
  std::vector<SegmentInfo> seen;
  const auto id = arena.subscribe([&](const SegmentInfo& info) { seen.push_back(info); });
  EXPECT_EQ(seen.size(), 4u);
  for (const auto& info : seen) EXPECT_TRUE(map_segment(info.fd, info.bytes));
  arena.unsubscribe(id);
  arena.begin(2, 2, 0);
  EXPECT_EQ(seen.size(), 4u);
}

TEST(Arena, ReadersOnOtherThreadsNeverSeeATornStep) {
  Arena arena(2, 64 * mib);
  std::atomic<std::uint64_t> newest{0};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> good{0}, gone{0};
  const auto publish = [&](std::uint64_t step) {
    const auto slot = static_cast<std::uint32_t>(step % 2);
    arena.begin(slot, step, 0);
    const Place place = arena.allocate(slot, (step % 7 + 1) * 100'000);
    reinterpret_cast<std::atomic<std::uint64_t>*>(place.data)->store(step, std::memory_order_relaxed);
    arena.publish(slot, step);
    arena.recycle(slot);
    newest.store(step);
  };
  publish(0);
  std::thread reader([&] {
    while (!stop) {
      const std::uint64_t step = newest.load();
      try {
        const auto view = arena.read(step % 2, step, 0, slot_header_bytes, 8);
        const auto value = reinterpret_cast<const std::atomic<std::uint64_t>*>(view.bytes.data())->load();
        if (!arena.holds(step % 2, step)) continue;
        ASSERT_EQ(value, step);
        ++good;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), Errc::step_gone);
        ++gone;
      }
    }
  });
  for (std::uint64_t step = 1; step < 3000 || good < 1000; ++step) publish(step);
  stop = true;
  reader.join();
}

}  // namespace
}  // namespace penstock::memory
