#include "pool/reader_book.hpp"

#include <gtest/gtest.h>

#include <set>

#include "penstock/error.hpp"

namespace penstock::pool {
namespace {

struct Steps : ReaderBook::Kept {
  std::set<std::uint64_t> steps;
  Steps(std::initializer_list<std::uint64_t> s) : steps(s) {}
  std::optional<std::uint64_t> first_from(std::uint64_t step) const override {
    const auto found = steps.lower_bound(step);
    return found == steps.end() ? std::nullopt : std::optional(*found);
  }
  std::optional<std::uint64_t> newest() const override {
    return steps.empty() ? std::nullopt : std::optional(*steps.rbegin());
  }
};

ReaderBook::Ask ask(std::uint64_t index, std::int64_t last = -1, std::uint32_t rank = 0, std::uint32_t ranks = 1) {
  ReaderBook::Ask a;
  a.reader = 7;
  a.rank = rank;
  a.ranks = ranks;
  a.index = index;
  a.last = last;
  return a;
}

TEST(ReaderBook, EveryStepInOrder) {
  ReaderBook book;
  Steps kept{2, 3, 7};
  EXPECT_EQ(book.step_for(ask(0), kept), 2u);
  EXPECT_EQ(book.step_for(ask(1, 2), kept), 3u);
  EXPECT_EQ(book.step_for(ask(2, 3), kept), 7u);
  EXPECT_EQ(book.step_for(ask(3, 7), kept), std::nullopt);
  kept.steps.insert(8);
  EXPECT_EQ(book.step_for(ask(3, 7), kept), 8u);
}

TEST(ReaderBook, AllRanksAreGivenTheSame) {
  ReaderBook book;
  Steps kept{0};
  auto first = ask(0, -1, 0, 2), second = ask(0, -1, 1, 2);
  first.latest = second.latest = true;
  EXPECT_EQ(book.step_for(first, kept), 0u);
  kept.steps.insert(5);
  EXPECT_EQ(book.step_for(second, kept), 0u) << "not the newest, but what the other rank was given";
  EXPECT_TRUE(book.held(0));
  book.end_step(7, 0, 0);
  EXPECT_TRUE(book.held(0)) << "rank 1 reads it";
  book.end_step(7, 1, 0);
  EXPECT_FALSE(book.held(0));
}

TEST(ReaderBook, StartsWhereItIsTold) {
  Steps kept{2, 3, 7};
  const auto started = [&](std::int64_t start) {
    ReaderBook book;
    auto a = ask(0);
    a.start = start;
    return book.step_for(a, kept);
  };
  EXPECT_EQ(started(-1), 2u);
  EXPECT_EQ(started(-2), 7u);
  EXPECT_EQ(started(4), 7u);
  EXPECT_EQ(started(8), std::nullopt);
}

TEST(ReaderBook, SeeksBackAndGoesOnFromThere) {
  ReaderBook book;
  Steps kept{0, 1, 2, 3};
  EXPECT_EQ(book.step_for(ask(0), kept), 0u);
  auto back = ask(1, 0);
  back.seek = 3;
  EXPECT_EQ(book.step_for(back, kept), 3u);
  back = ask(2, 3);
  back.seek = 1;
  EXPECT_EQ(book.step_for(back, kept), 1u);
  EXPECT_EQ(book.step_for(ask(3, 1), kept), 2u);
}

TEST(ReaderBook, AHomeThatIsNewLearnsFromTheRanks) {
  ReaderBook book;
  Steps kept{0, 1, 2, 3, 4};
  EXPECT_EQ(book.step_for(ask(3, 2, 0, 2), kept), 3u);
  EXPECT_EQ(book.step_for(ask(2, 1, 1, 2), kept), 2u) << "a rank that is behind";
  EXPECT_EQ(book.step_for(ask(3, 2, 1, 2), kept), 3u);
  EXPECT_EQ(book.step_for(ask(4, 3, 1, 2), kept), 4u);
}

TEST(ReaderBook, AGroupGoesOnWhereItStopped) {
  ReaderBook book;
  Steps kept{0, 1, 2};
  auto a = ask(0);
  a.group = "plots";
  EXPECT_EQ(book.step_for(a, kept), 0u);
  EXPECT_TRUE(book.end_step(7, 0, 0));
  book.close(7, 0);
  EXPECT_EQ(book.cohorts(), 0u);
  EXPECT_EQ(book.group_next("plots"), 1u);
  a.reader = 8;
  EXPECT_EQ(book.step_for(a, kept), 1u);
}

TEST(ReaderBook, TheLostHoldNothing) {
  ReaderBook book;
  Steps kept{0, 1};
  EXPECT_EQ(book.step_for(ask(0), kept), 0u);
  book.lost(7, 0);
  EXPECT_FALSE(book.held(0));
  EXPECT_EQ(book.step_for(ask(1, 0), kept), 1u) << "it speaks again";
  EXPECT_TRUE(book.held(1));
}

TEST(ReaderBook, RefusesNonsense) {
  ReaderBook book;
  Steps kept{0};
  EXPECT_THROW(book.step_for(ask(0, -1, 1, 1), kept), Error);
  EXPECT_THROW(book.step_for(ask(0, -1, 0, 0), kept), Error);
  EXPECT_EQ(book.step_for(ask(0, -1, 0, 2), kept), 0u);
  EXPECT_THROW(book.step_for(ask(0, -1, 0, 3), kept), Error) << "a cohort does not grow";
  EXPECT_FALSE(book.end_step(1, 0, 0));
}

}  // namespace
}  // namespace penstock::pool
