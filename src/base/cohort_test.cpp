#include "penstock/cohort.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/test_support.hpp"
#include "penstock/error.hpp"

namespace penstock {
namespace {

TEST(CohortTest, SoloHearsItself) {
  auto cohort = solo();
  EXPECT_EQ(cohort->rank(), 0);
  EXPECT_EQ(cohort->size(), 1);
  EXPECT_EQ(cohort->broadcast("a", 0), "a");
  EXPECT_THAT(cohort->gather("a", 0), testing::ElementsAre("a"));
  EXPECT_EQ(code_of([&] { cohort->broadcast("a", 1); }), Errc::invalid_argument);
}

class ThreadCohortTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadCohortTest, testing::Values(1, 2, 3, 8));

TEST_P(ThreadCohortTest, BroadcastsAndGathersManyTimes) {
  const int size = GetParam();
  std::atomic<int> done = 0;
  run_thread_cohort(size, [&](std::shared_ptr<Cohort> cohort) {
    ASSERT_EQ(cohort->size(), size);
    for (int round = 0; round < 200; ++round) {
      const int root = round % size;
      const std::string mine(static_cast<std::size_t>(round % 7), static_cast<char>('a' + cohort->rank()));
      const auto all = cohort->gather(mine, root);
      ASSERT_EQ(all.size(), cohort->rank() == root ? size : 0);
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        ASSERT_EQ(all[rank], std::string(mine.size(), static_cast<char>('a' + rank)));
      ASSERT_EQ(cohort->broadcast(mine, root), std::string(mine.size(), static_cast<char>('a' + root)));
    }
    ++done;
  });
  EXPECT_EQ(done, size);
}

TEST_P(ThreadCohortTest, AFailingRankReleasesTheOthers) {
  const int size = GetParam();
  std::atomic<int> released = 0;
  auto body = [&](std::shared_ptr<Cohort> cohort) {
    cohort->broadcast("", 0);
    if (cohort->rank() == size - 1) throw std::domain_error("rank " + std::to_string(cohort->rank()));
    try {
      cohort->broadcast("", 0);
    } catch (const Error& error) {
      if (error.code() == Errc::peer_lost) ++released;
      throw;
    }
  };
  // The cause is what is reported, not what followed from it.
  EXPECT_THROW(run_thread_cohort(size, body), std::domain_error);
  EXPECT_EQ(released, size - 1);
}

TEST(CohortTest, ARankThatReturnsEarlyReleasesTheOthers) {
  EXPECT_EQ(code_of([] {
              run_thread_cohort(3, [](std::shared_ptr<Cohort> cohort) {
                if (cohort->rank() != 1) cohort->gather("", 0);
              });
            }),
            Errc::peer_lost);
}

TEST(CohortTest, TheLastExchangeCompletesForAll) {
  for (int round = 0; round < 100; ++round) {
    run_thread_cohort(4, [](std::shared_ptr<Cohort> cohort) {
      EXPECT_EQ(cohort->broadcast(cohort->rank() == 2 ? "end" : "", 2), "end");
    });
  }
}

TEST(CohortTest, RefusesNoRanks) {
  EXPECT_EQ(code_of([] { run_thread_cohort(0, [](auto) {}); }), Errc::invalid_argument);
}

}  // namespace
}  // namespace penstock
