#include "pool/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "model/random_test_support.hpp"
#include "pool/object_key.hpp"
#include "pool/trace_test_support.hpp"

namespace penstock::pool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const ReplayPace fast{0};

// By their starts, so numbers of steps are those of the calls below when these are in order.
TEST(ReplayPlan, TimesAtTheWantedPace) {
  Recording recording;
  recording.add(0, Verb::put, "a", 1000, 2000);
  recording.add(1, Verb::put, "b", 3000, 4000);
  const Timeline timeline = recording.timeline();
  EXPECT_EQ(plan_replay(timeline, {1}).steps[1].at_ns, 2000);
  EXPECT_EQ(plan_replay(timeline, {4}).steps[1].at_ns, 500);
  EXPECT_EQ(plan_replay(timeline, {0.5}).steps[1].at_ns, 4000);
  EXPECT_EQ(plan_replay(timeline, fast).steps[1].at_ns, 0);
  EXPECT_EQ(plan_replay(timeline, fast).lanes, 2u);
  EXPECT_THROW(plan_replay(timeline, {-1}), Error);
  EXPECT_THROW(plan_replay(timeline, {std::numeric_limits<double>::quiet_NaN()}), Error);
}

TEST(ReplayPlan, ReadsWaitForTheChangeBeforeThem) {
  Recording recording;
  recording.add(0, Verb::put, "a", 0, 10);
  recording.add(1, Verb::get, "a", 20, 30);
  recording.add(2, Verb::get, "other", 20, 30);
  recording.add(3, Verb::drop, "a", 40, 50);
  recording.add(4, Verb::get, "a", 60, 70, Errc::not_found);
  const auto plan = plan_replay(recording.timeline(), fast);
  EXPECT_THAT(plan.steps[1].after, ElementsAre(0));
  EXPECT_THAT(plan.steps[2].after, IsEmpty());
  EXPECT_THAT(plan.steps[3].after, ElementsAre(0, 1));  // the put by way of the read, too
  EXPECT_THAT(plan.steps[4].after, ElementsAre(3));
}

TEST(ReplayPlan, WhatOverlappedMayOverlap) {
  Recording recording;
  recording.add(0, Verb::put, "a", 0, 100);
  recording.add(1, Verb::put, "a", 50, 150, Errc::already_exists);
  recording.add(2, Verb::get, "a", 60, 160, Errc::not_found);
  const auto plan = plan_replay(recording.timeline(), fast);
  for (const auto& step : plan.steps) EXPECT_THAT(step.after, IsEmpty());
}

TEST(ReplayPlan, AReadThatFoundWhatWasBeingPut) {
  Recording recording;
  recording.add(0, Verb::get, "a", 0, 100);  // found it, though its put began later
  recording.add(1, Verb::put, "a", 50, 150);
  const auto plan = plan_replay(recording.timeline(), fast);
  EXPECT_THAT(plan.steps[0].after, ElementsAre(1));
  EXPECT_THAT(plan.steps[1].after, IsEmpty());
}

TEST(ReplayPlan, PatternsTouchEveryKey) {
  Recording recording;
  recording.add(0, Verb::put, "a", 0, 10);
  recording.add(1, Verb::put, "b", 0, 10);
  recording.add(2, Verb::list, "*", 20, 30);
  recording.add(3, Verb::put, "c", 40, 50);
  recording.add(4, Verb::drop_pattern, "*", 60, 70);
  recording.add(5, Verb::get, "c", 80, 90, Errc::not_found);
  const auto plan = plan_replay(recording.timeline(), fast);
  EXPECT_THAT(plan.steps[2].after, ElementsAre(0, 1));
  EXPECT_THAT(plan.steps[3].after, ElementsAre(2));
  EXPECT_THAT(plan.steps[4].after, testing::IsSupersetOf({2u, 3u}));
  EXPECT_THAT(plan.steps[5].after, testing::Contains(4));
}

TEST(ReplayPlan, LanesKeepTheirOrder) {
  Recording recording;
  recording.add(0, Verb::put, "a", 0, 100).asynchronous = true;
  recording.add(0, Verb::put, "b", 10, 20);
  recording.add(0, Verb::put, "c", 110, 120);  // after the end of the first
  recording.add(0, Verb::put, "d", 130, 200);  // said to block, yet the next began before its end
  recording.add(0, Verb::put, "e", 140, 150);
  const auto plan = plan_replay(recording.timeline(), fast);
  EXPECT_EQ(plan.lanes, 1u);
  EXPECT_TRUE(plan.steps[0].detached);
  EXPECT_FALSE(plan.steps[1].detached);
  EXPECT_THAT(plan.steps[1].after, IsEmpty());
  EXPECT_THAT(plan.steps[2].after, ElementsAre(0));
  EXPECT_TRUE(plan.steps[3].detached);
}

// A look for a step that was in vain comes before the step; a Writer's calls keep their order, whatever threads made them.
TEST(ReplayPlan, StreamsShowTheirStepsInOrder) {
  Recording recording;
  recording.add(0, Verb::read_begin, "heat", 0, 10, Errc::timeout);
  recording.add(1, Verb::write_put, "heat", 12, 14).client = 1;
  recording.add(2, Verb::write_end, "heat", 20, 30).client = 1;
  recording.add(0, Verb::read_begin, "heat", 25, 40);  // waited for the step by itself
  recording.add(3, Verb::read_begin, "other", 1, 2, Errc::timeout).client = 2;
  recording.add(0, Verb::read_begin, "heat", 50, 60, Errc::end_of_stream);
  const auto plan = plan_replay(recording.timeline(), fast);
  EXPECT_THAT(plan.steps[2].after, IsEmpty());          // the put
  EXPECT_THAT(plan.steps[3].after, ElementsAre(0, 2));  // the step's end
  EXPECT_THAT(plan.steps[4].after, ElementsAre(0));
  EXPECT_THAT(plan.steps[5].after, ElementsAre(3, 4));
}

TEST(ReplayPlan, ManyOperationsStayCheap) {
  Recording recording;
  recording.add(3, Verb::put, "hot", 0, 1);
  for (int i = 1; i < 50'000; ++i) {
    recording.add(0, Verb::put, "key/" + std::to_string(i), 10 * i, 10 * i + 5);
    if (i % 10 == 0) recording.add(1, Verb::list, "*", 10 * i + 6, 10 * i + 7);
    recording.add(2, Verb::get, "hot", 10 * i, 10 * i + 9);
  }
  const auto plan = plan_replay(recording.timeline(), fast);
  std::size_t edges = 0;
  for (const auto& step : plan.steps) edges += step.after.size();
  EXPECT_LT(edges, 3 * plan.steps.size());
}

// A pool that is a map under a lock, with no more than what replaying needs.
class MapTarget final : public ReplayTarget {
 public:
  std::function<ReplayOutcome()> start(const ReplayOperation& operation) override {
    const std::lock_guard lock(mutex);
    const std::string key = operation.keys.at(0).row;
    const auto number = static_cast<std::uint32_t>(&operation.item - operation.timeline.items.data());
    begun.push_back(number);
    threads[operation.record.thread].push_back(number);
    ReplayOutcome outcome;
    switch (operation.record.verb) {
      case Verb::put:
        if (!objects.insert(key).second) outcome.code = Errc::already_exists;
        break;
      case Verb::drop: objects.erase(key); break;
      case Verb::drop_pattern: objects.clear(); break;
      case Verb::get:
        if (!objects.contains(key)) outcome.code = Errc::not_found;
        break;
      default: break;
    }
    if (outcome.code != Errc::ok) outcome.failed = 1;
    return [outcome] { return outcome; };
  }
  std::mutex mutex;  // guards what follows
  std::set<std::string> objects;
  std::vector<std::uint32_t> begun;
  std::map<std::uint32_t, std::vector<std::uint32_t>> threads;
};

TEST(ReplayPlan, WhatWasThereBefore) {
  Recording recording;
  recording.add(0, Verb::get, "read", 0, 10).sizes = {100};
  recording.add(0, Verb::get, "read", 20, 30).sizes = {40};
  recording.last().offset = 80;
  recording.add(0, Verb::put, "refused", 40, 50, Errc::already_exists);
  recording.add(0, Verb::get, "missing", 60, 70, Errc::not_found);
  recording.add(0, Verb::put, "put", 80, 90);
  recording.add(0, Verb::get, "put", 100, 110).sizes = {7};
  recording.add(0, Verb::need, "waited for", 120, 200).sizes = {8};
  recording.add(1, Verb::put, "waited for", 150, 160);
  recording.add(0, Verb::get, "replaced", 210, 220).sizes = {9};
  recording.add(0, Verb::put, "replaced", 230, 240);
  recording.add(0, Verb::info, "tagged", 250, 260).tag = 7;
  std::map<std::string, std::uint64_t> found;
  const auto before = objects_before(recording.timeline());
  for (const auto& object : before) found[object.key.row] = object.bytes;
  EXPECT_THAT(found, ElementsAre(std::pair("read", 120), std::pair("refused", 0), std::pair("replaced", 9),
                                 std::pair("tagged", 0)));
  EXPECT_EQ(before.back().tag, 7u);
}

TEST(Replay, ItCanBeStopped) {
  Recording recording;
  recording.add(0, Verb::put, "a", 0, 10);
  recording.add(1, Verb::put, "b", 3'600'000'000'000, 3'600'000'000'010);
  const Timeline timeline = recording.timeline();
  MapTarget target;
  ReplayControl control;
  std::jthread other([&] {
    while (control.ended == 0) std::this_thread::yield();
    control.stop = true;
  });
  const auto report = replay(timeline, plan_replay(timeline, {1}), target, forever, &control);
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.verbs[0].outcomes.at(Errc::ok).replayed, 1u);
}

TEST(Replay, DoesItAgainWithTheSameOutcomes) {
  SCOPED_TRACE("PENSTOCK_TEST_SEED=" + std::to_string(model::test_seed()));
  model::Random random(5);
  for (int round = 0; round < 20; ++round) {
    // Threads take turns, so that each outcome follows from those before: what a replay must reproduce at any speed.
    Recording recording;
    std::set<std::string> objects;
    std::int64_t now = 0;
    for (int i = 0; i < 300; ++i) {
      const auto thread = static_cast<std::uint32_t>(random.from(0, 7));
      const std::string key(1, static_cast<char>('a' + random.from(0, 4)));
      const auto what = random.from(0, 20);
      now += 10;
      if (what < 9) {
        const bool fresh = objects.insert(key).second;
        recording.add(thread, Verb::put, key, now, now + 5, fresh ? Errc::ok : Errc::already_exists);
      } else if (what < 16) {
        recording.add(thread, Verb::get, key, now, now + 5, objects.contains(key) ? Errc::ok : Errc::not_found);
      } else if (what < 20) {
        objects.erase(key);
        recording.add(thread, Verb::drop, key, now, now + 5);
      } else {
        objects.clear();
        recording.add(thread, Verb::drop_pattern, "*", now, now + 5);
      }
      if (random.chance(20)) recording.last().asynchronous = true;
    }
    const Timeline timeline = recording.timeline();
    MapTarget target;
    const auto report = replay(timeline, plan_replay(timeline, fast), target, Timeout(30'000));
    ASSERT_FALSE(report.stopped);
    ASSERT_EQ(report.same, 300u) << describe(timeline, report);
    for (const auto& [thread, steps] : target.threads) ASSERT_TRUE(std::ranges::is_sorted(steps));
  }
}

TEST(Replay, AtTheRecordedPace) {
  Recording recording;
  for (int i = 0; i < 5; ++i) recording.add(i % 2, Verb::put, std::to_string(i), i * 10'000'000, i * 10'000'000 + 10);
  const Timeline timeline = recording.timeline();
  MapTarget target;
  const auto report = replay(timeline, plan_replay(timeline, {2}), target, Timeout(30'000));
  EXPECT_GE(report.duration_ns, 20'000'000);
  EXPECT_EQ(report.recorded_ns, 40'000'010);
  // Threads keep their own order; a busy machine may hold one of them up.
  std::ranges::stable_partition(target.begun, [](auto step) { return step % 2 == 0; });
  EXPECT_THAT(target.begun, ElementsAre(0, 2, 4, 1, 3));
}

TEST(Replay, DifferencesAreTold) {
  Recording recording;
  recording.add(0, Verb::get, "a", 0, 10);
  recording.add(0, Verb::put, "a", 20, 30, Errc::pool_full);
  const Timeline timeline = recording.timeline();
  MapTarget target;
  const auto report = replay(timeline, plan_replay(timeline, fast), target, Timeout(30'000));
  EXPECT_EQ(report.different, 2u);
  ASSERT_EQ(report.differences.size(), 2u);
  EXPECT_EQ(report.differences[0].replayed.code, Errc::not_found);
  EXPECT_THAT(describe(timeline, report), testing::HasSubstr("recorded pool_full (1 failed), now ok (0 failed)"));
}

// An operation that does not end within the deadline ends by its own; what is behind it is not begun.
TEST(Replay, TheDeadlineStopsIt) {
  Recording recording;
  recording.add(0, Verb::put, "a", 0, 10);
  recording.add(1, Verb::put, "b", 3'600'000'000'000, 3'600'000'000'010);
  const Timeline timeline = recording.timeline();
  MapTarget target;
  const auto report = replay(timeline, plan_replay(timeline, {1}), target, Timeout(50));
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.operations, 1u);
}

TEST(Replay, BytesFollowFromTheKey) {
  std::vector<std::byte> a(100), b(100), longer(200);
  fill_replayed({"row", "column"}, a);
  fill_replayed({"row", "column"}, longer);
  fill_replayed({"row", "other"}, b);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), longer.begin()));
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace penstock::pool
