#include "pool/store/object_memory.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "base/test_support.hpp"
#include "pool/store/slab.hpp"
#include "pool/store/store_test_support.hpp"

namespace penstock::pool {
namespace {

std::uint64_t page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_minflt + usage.ru_majflt);
}

struct Held {
  std::shared_ptr<Blob> blob;
  std::uint64_t number;
};

TEST(ObjectMemory, ManySmallObjectsAllOrNone) {
  const auto memory = ObjectMemory::create(100'000, {});
  std::vector<std::shared_ptr<Blob>> blobs;
  const std::vector<std::uint64_t> sizes{0, 1, 100, 1000, slab_object_bytes - 1};
  ASSERT_TRUE(memory->try_allocate_small(sizes, blobs));
  ASSERT_EQ(blobs.size(), sizes.size());
  std::uint64_t charged = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(blobs[i]->size(), sizes[i]);
    EXPECT_EQ(blobs[i]->charged(), ObjectMemory::charge_of(sizes[i]));
    std::ranges::fill(blobs[i]->writable(), std::byte{1});
    charged += blobs[i]->charged();
  }
  EXPECT_EQ(memory->used(), charged);
  const std::vector<std::uint64_t> more(4, slab_object_bytes - 1);
  EXPECT_FALSE(memory->try_allocate_small(more, blobs));
  EXPECT_EQ(blobs.size(), sizes.size());
  EXPECT_EQ(memory->used(), charged);
  blobs.erase(blobs.begin() + 1);
  EXPECT_EQ(memory->used(), charged - ObjectMemory::charge_of(1));
  blobs.clear();
  EXPECT_EQ(memory->used(), 0u);
}

TEST(Slab, JoinsNeighboursAndNeverOverlaps) {
  StoreRandom random(1);
  SCOPED_TRACE(numbered("PENSTOCK_TEST_SEED=", store_test_seed()));
  constexpr std::uint64_t page = slab_page_bytes, pages = 64;
  Slab<int> slab;
  // Addresses that are only compared.
  auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  for (int i = 0; i < 3; ++i)
    slab.add(std::make_shared<int>(i), base + static_cast<std::uint64_t>(i) * pages * page, pages * page);
  std::map<std::byte*, std::uint64_t> taken;
  std::uint64_t used = 0;
  for (int round = 0; round < 20'000; ++round) {
    if (random.chance(55)) {
      const auto bytes = random.from(1, 20) * page;
      const bool fits = slab.fits(bytes);
      const auto part = slab.take(bytes);
      ASSERT_EQ(part.data != nullptr, fits);
      if (!part.data) continue;
      const auto segment = static_cast<std::uint64_t>(part.data - base) / (pages * page);
      ASSERT_EQ(*part.segment, static_cast<int>(segment));
      ASSERT_LE(part.data + bytes, base + (segment + 1) * pages * page) << "beyond its segment";
      const auto after = taken.lower_bound(part.data);
      ASSERT_TRUE(after == taken.end() || part.data + bytes <= after->first);
      ASSERT_TRUE(after == taken.begin() || std::prev(after)->first + std::prev(after)->second <= part.data);
      taken[part.data] = bytes;
      used += bytes;
    } else if (!taken.empty()) {
      auto at = taken.lower_bound(base + random.from(0, 3 * pages - 1) * page);
      if (at == taken.end()) at = taken.begin();
      slab.give_back(at->first, at->second);
      used -= at->second;
      taken.erase(at);
    }
    ASSERT_EQ(slab.used(), used);
    ASSERT_LE(slab.free_parts(), taken.size() + 3);  // neighbours are joined: at most one part before each taken one
  }
  for (const auto& [data, bytes] : taken) slab.give_back(data, bytes);
  EXPECT_EQ(slab.free_parts(), 3u);
  EXPECT_EQ(slab.empty_segments(), 3u);
  EXPECT_EQ(slab.largest_free(), pages * page);
  EXPECT_EQ(slab.trim(1, ~std::uint64_t{0}).size(), 2u);
  EXPECT_EQ(slab.mapped(), pages * page);
}

TEST(ObjectMemory, RandomUseAgainstAModel) {
  StoreRandom random(2);
  SCOPED_TRACE(numbered("PENSTOCK_TEST_SEED=", store_test_seed()));
  std::atomic<std::uint64_t> freed{0};
  const auto memory = ObjectMemory::create(32 << 20, [&] { ++freed; });
  std::vector<Held> held;
  std::uint64_t used = 0, peak = 0, given_back = 0;
  for (std::uint64_t round = 0; round < 6'000; ++round) {
    if (random.chance(60)) {
      const std::uint64_t bytes = random.chance(50)   ? random.from(0, 2000)
                                  : random.chance(80) ? random.from(1000, 300'000)
                                                      : random.from(1 << 20, 6 << 20);
      auto blob = memory->try_allocate(bytes);
      const auto charge = ObjectMemory::charge_of(bytes);
      if (!blob) {
        // Refused by the limit, or because no free part is large enough and no segment may be added.
        const auto usage = memory->usage();
        ASSERT_TRUE(used + charge > memory->limit() || (bytes >= slab_object_bytes && usage.largest_free < charge &&
                                                        usage.segment_bytes + charge > memory->limit()));
        continue;
      }
      ASSERT_EQ(blob->size(), bytes);
      ASSERT_EQ(blob->shareable(), bytes >= slab_object_bytes);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(blob->bytes().data()) % (blob->shareable() ? 4096 : 16), 0u);
      fill_with(blob->writable(), round);
      held.push_back({std::move(blob), round});
      used += charge;
      peak = std::max(peak, used);
    } else if (!held.empty()) {
      const auto i = random.from(0, held.size() - 1);
      std::swap(held[i], held.back());
      ASSERT_TRUE(is_filled_with(held.back().blob->bytes(), held.back().number)) << "somebody else wrote into it";
      used -= held.back().blob->charged();
      held.pop_back();
      ++given_back;
    }
    ASSERT_EQ(memory->used(), used);
    ASSERT_LE(memory->used(), memory->limit());
    ASSERT_LE(memory->segment_bytes(), memory->limit() + (2 << 20));
  }
  EXPECT_EQ(memory->peak(), peak);
  EXPECT_EQ(freed, given_back);
  RecordProperty("fragmentation_percent", static_cast<int>(100 * memory->usage().fragmentation()));
  for (const auto& h : held) ASSERT_TRUE(is_filled_with(h.blob->bytes(), h.number));
  held.clear();
  const auto usage = memory->usage();
  EXPECT_EQ(usage.used, 0u);
  EXPECT_EQ(usage.slab_used, 0u);
  EXPECT_LE(usage.segments, max_empty_segments);
  EXPECT_EQ(usage.free_parts, usage.segments) << "free neighbours were not joined";
}

TEST(ObjectMemory, TheLimitIsExact) {
  const auto memory = ObjectMemory::create(1 << 20, {});
  const auto whole = memory->try_allocate(1 << 20);
  ASSERT_TRUE(whole);
  EXPECT_EQ(memory->used(), memory->limit());
  EXPECT_FALSE(memory->try_allocate(1));
  EXPECT_FALSE(memory->try_allocate(0)) << "an empty object takes its header";
}

TEST(ObjectMemory, WhatIsRefusedIsNoPeak) {
  const auto memory = ObjectMemory::create(16 << 20, {});
  std::vector<std::shared_ptr<Blob>> blobs;
  while (auto blob = memory->try_allocate(192 << 10)) blobs.push_back(std::move(blob));
  const auto peak = memory->used();
  EXPECT_LT(peak, memory->limit());
  blobs[0] = blobs[20] = nullptr;
  EXPECT_FALSE(memory->try_allocate(memory->limit() - memory->used())) << "within the limit, but in two parts";
  EXPECT_EQ(memory->peak(), peak);
}

TEST(ObjectMemory, AfterFragmentationAllCanBeHadAgain) {
  const auto memory = ObjectMemory::create(16 << 20, {});
  std::vector<std::shared_ptr<Blob>> blobs;
  while (auto blob = memory->try_allocate(64 << 10)) blobs.push_back(std::move(blob));
  for (std::size_t i = 0; i < blobs.size(); i += 2) blobs[i] = nullptr;
  EXPECT_GT(memory->usage().fragmentation(), 0.5);
  EXPECT_FALSE(memory->try_allocate(4 << 20)) << "only small parts are free";
  EXPECT_FALSE(memory->could_grow(4 << 20));
  blobs.clear();
  EXPECT_TRUE(memory->try_allocate(16 << 20)) << "small empty segments make way for a large one";
}

TEST(ObjectMemory, MemoryThatIsUsedAgainCostsNoPageFaults) {
  const auto memory = ObjectMemory::create(64 << 20, {});
  const auto fill = [&] {
    std::vector<std::shared_ptr<Blob>> blobs;
    for (std::uint64_t i = 0; i < 12; ++i) {
      blobs.push_back(memory->try_allocate(1 << 20));
      std::memset(blobs.back()->writable().data(), 1, 1 << 20);
    }
  };
  fill();
  const auto before = page_faults();
  for (int i = 0; i < 10; ++i) fill();
  if (sanitized) GTEST_SKIP() << "a sanitizer's shadow memory has page faults of its own";
  EXPECT_LT(page_faults() - before, 20u) << "of 30720 pages that were written";
}

TEST(ObjectMemory, GrowsOnAWorkersBehalf) {
  const auto memory = ObjectMemory::create(16 << 20, {});
  EXPECT_FALSE(memory->try_allocate_mapped(1 << 20));
  EXPECT_EQ(memory->used(), 0u);
  EXPECT_TRUE(memory->could_grow(1 << 20));
  std::thread([&] { memory->grow(1 << 20); }).join();
  EXPECT_FALSE(memory->could_grow(1 << 20));
  EXPECT_TRUE(memory->try_allocate_mapped(1 << 20));
}

TEST(ObjectMemory, MakesMemoryAheadAndKeepsIt) {
  constexpr std::uint64_t segment = 1 << 20;
  const auto memory = ObjectMemory::create(16 * segment, {}, 8 * segment);
  while (memory->lacks_ahead()) memory->grow_ahead();
  EXPECT_EQ(memory->segment_bytes(), 8 * segment);
  auto taken = memory->try_allocate_mapped(segment / 4);
  ASSERT_TRUE(taken);
  EXPECT_FALSE(memory->lacks_ahead()) << "less than a segment is missing";
  auto more = memory->try_allocate_mapped(segment);
  EXPECT_TRUE(memory->lacks_ahead());
  memory->grow_ahead();
  EXPECT_EQ(memory->segment_bytes(), 9 * segment);
  taken = more = nullptr;
  EXPECT_EQ(memory->usage().empty_segments, 8u);
}

TEST(ObjectMemory, MemoryAheadMakesWayForSmallObjects) {
  constexpr std::uint64_t segment = 1 << 20;
  const auto memory = ObjectMemory::create(16 * segment, {}, 16 * segment);
  while (memory->lacks_ahead()) memory->grow_ahead();
  EXPECT_EQ(memory->segment_bytes(), 16 * segment);
  const std::vector<std::uint64_t> sizes(1024, 3000);
  std::vector<std::shared_ptr<Blob>> blobs;
  while (memory->used() < 10 * segment) {
    ASSERT_TRUE(memory->try_allocate_small(sizes, blobs));
    ASSERT_LE(memory->used() + memory->segment_bytes(), memory->limit());
  }
  while (memory->used() + segment < memory->limit()) {
    blobs.push_back(memory->try_allocate(3000));
    ASSERT_LE(memory->used() + memory->segment_bytes(), memory->limit());
  }
  EXPECT_FALSE(memory->lacks_ahead());
  EXPECT_EQ(memory->segment_bytes(), 0u);
}

TEST(ObjectMemory, ThreadsShareIt) {
  const auto memory = ObjectMemory::create(24 << 20, {});
  std::vector<std::thread> threads;
  std::atomic<bool> good{true};
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      StoreRandom random(100 + t);
      std::vector<Held> held;
      for (std::uint64_t i = 0; i < 1500; ++i) {
        if (auto blob =
                memory->try_allocate(random.chance(50) ? random.from(1, 500) : random.from(32 << 10, 200 << 10))) {
          fill_with(blob->writable(), t << 32 | i);
          held.push_back({std::move(blob), t << 32 | i});
        }
        if (memory->used() > memory->limit()) good = false;
        while (held.size() > 20) {
          if (!is_filled_with(held.front().blob->bytes(), held.front().number)) good = false;
          held.erase(held.begin());
        }
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(good);
  EXPECT_EQ(memory->used(), 0u);
}

TEST(ObjectMemory, ABlobOutlivesItsMemory) {
  auto memory = ObjectMemory::create(1 << 20, {});
  auto blob = memory->try_allocate(100'000);
  memory.reset();
  fill_with(blob->writable(), 7);
  EXPECT_TRUE(is_filled_with(blob->bytes(), 7));
}

}  // namespace
}  // namespace penstock::pool
