#include "pool/coordinator/reader_book.hpp"

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

// A home that is new: rank 0 was given 4, 6, 9 and reads the last; rank 1 had only 4 and 6.
TEST(ReaderBook, LearnsFromRanksWhatTheyWereGiven) {
  ReaderBook book;
  Steps kept{4, 6, 9, 12};
  auto second = ask(2, 6, 1, 2);
  second.latest = true;
  EXPECT_TRUE(book.awaits_others(second)) << "rank 0 has not spoken";
  book.tell({.reader = 7, .rank = 0, .ranks = 2, .index = 3, .given = {4, 6, 9}, .held = {2}});
  EXPECT_FALSE(book.awaits_others(second));
  EXPECT_EQ(book.step_for(second, kept), 9u) << "not the newest";
  EXPECT_TRUE(book.held(9));
  book.end_step(7, 0, 2);
  book.end_step(7, 1, 2);
  EXPECT_FALSE(book.held(9));
  auto next = ask(3, 9, 0, 2);
  next.latest = true;
  EXPECT_EQ(book.step_for(next, kept), 12u);
}

// What a rank asks for says nothing of what it was given before: others must not decide by that.
TEST(ReaderBook, WaitsForWhatOthersTell) {
  ReaderBook book;
  Steps kept{4, 6, 9, 12};
  const auto first = ask(3, 9, 0, 2), second = ask(2, 6, 1, 2);
  EXPECT_TRUE(book.awaits_others(first));
  EXPECT_EQ(book.cohorts(), 0u) << "a question tells nothing";
  EXPECT_FALSE(book.awaits_others(ask(3, 9, 0, 1))) << "there is no other";
  EXPECT_EQ(book.step_for(first, kept), 12u) << "asked without waiting";
  EXPECT_TRUE(book.awaits_others(second));
  book.tell({.reader = 7, .rank = 1, .ranks = 2, .index = 2, .given = {4, 6}});
  EXPECT_TRUE(book.awaits_others(second)) << "its own word is not the other's";
  book.tell({.reader = 7, .rank = 0, .ranks = 2, .index = 3, .given = {4, 6, 9}});
  EXPECT_FALSE(book.awaits_others(second));
  EXPECT_EQ(book.step_for(second, kept), 9u);
}

TEST(ReaderBook, AGroupMovesByWhatItsRanksTell) {
  ReaderBook book;
  EXPECT_FALSE(book.tell({.reader = 7, .rank = 0, .ranks = 2, .group = "g", .index = 2, .given = {4, 6}}));
  EXPECT_TRUE(book.tell({.reader = 7, .rank = 1, .ranks = 2, .group = "g", .index = 2, .given = {4, 6}, .held = {1}}));
  EXPECT_EQ(book.group_next("g"), 5u) << "rank 1 reads the second";
  EXPECT_TRUE(book.tell({.reader = 7, .rank = 1, .ranks = 2, .group = "g", .index = 2, .given = {4, 6}}));
  EXPECT_EQ(book.group_next("g"), 7u);
}

TEST(ReaderBook, KeepsWhatARankSaysItHolds) {
  ReaderBook book;
  book.tell({.reader = 7, .rank = 0, .ranks = 1, .group = "g", .index = 6, .given = {10, 11, 12}, .held = {4, 5}});
  EXPECT_FALSE(book.held(10));
  EXPECT_TRUE(book.held(11));
  EXPECT_TRUE(book.held(12));
  book.end_step(7, 0, 4);
  EXPECT_FALSE(book.held(11));
  book.end_step(7, 0, 5);
  EXPECT_FALSE(book.held(12));
  EXPECT_EQ(book.group_next("g"), 13u);
  // A rank that is behind speaks later; one that says what cannot be is refused.
  book.tell({.reader = 8, .rank = 1, .ranks = 2, .index = 3, .given = {5}});
  book.tell({.reader = 8, .rank = 0, .ranks = 2, .index = 2, .given = {3, 4}, .held = {1}});
  EXPECT_TRUE(book.held(4));
  EXPECT_THROW(book.tell({.reader = 9, .rank = 0, .ranks = 1, .index = 1, .given = {1, 2}}), Error);
  EXPECT_THROW(book.tell({.reader = 8, .rank = 2, .ranks = 2}), Error);
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

TEST(ReaderBook, ALostCohortHoldsNothingForRanksThatNeverCame) {
  ReaderBook book;
  Steps kept{0, 1};
  EXPECT_EQ(book.step_for(ask(0, -1, 0, 2), kept), 0u);
  EXPECT_TRUE(book.held(0));
  book.lost(7, 0);
  EXPECT_FALSE(book.held(0)) << "rank 1 has never said anything";
  EXPECT_EQ(book.step_for(ask(0, -1, 1, 2), kept), 0u);
  EXPECT_TRUE(book.held(0)) << "it was only late";
}

TEST(ReaderBook, TheLostMakeRoomForOthers) {
  constexpr std::size_t most = 100;
  ReaderBook book(most);
  Steps kept{0};
  auto a = ask(0);
  for (a.reader = 1; a.reader <= most; ++a.reader) EXPECT_EQ(book.step_for(a, kept), 0u);
  EXPECT_THROW(book.step_for(a, kept), Error);
  for (std::uint64_t reader = 2; reader <= most; ++reader) book.lost(reader, 0);
  EXPECT_EQ(book.step_for(a, kept), 0u);
  EXPECT_EQ(book.cohorts(), 2u) << "the first, and the new one";
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
