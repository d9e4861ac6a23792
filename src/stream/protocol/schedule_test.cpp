// Thousands of random schedules of the real protocol under a simulated network (sim/), planted bugs that they must find,
// and one run with thousands of ranks.
//
//   PENSTOCK_SCHEDULES=n  how many schedules (10000)    PENSTOCK_SEED=s  only this one, with every message printed
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>

#include "base/test_support.hpp"
#include "stream/protocol/sim/sim.hpp"

namespace penstock::stream::sim {

void PrintTo(Bug bug, std::ostream* out) { *out << name_of(bug); }

namespace {

void expect_all_end_well(Plan (*plan_of)(std::uint64_t seed)) {
  if (const auto seed = number_from("PENSTOCK_SEED", 0); seed != 0) {
    const auto plan = plan_of(seed);
    const auto result = run_schedule(plan, Bug::none, true);
    EXPECT_EQ(result.failure, "") << describe(plan);
    return;
  }
  const auto schedules = number_from("PENSTOCK_SCHEDULES", 10'000);
  std::uint64_t events = 0, taken = 0, failures = 0;
  for (std::uint64_t seed = 1; seed <= schedules; ++seed) {
    const auto plan = plan_of(seed);
    const auto result = run_schedule(plan);
    events += result.events;
    taken += result.steps_taken;
    if (result.failure.empty()) continue;
    ADD_FAILURE() << result.failure << "\n(again, with every message: PENSTOCK_SEED=" << seed << ")\n"
                  << describe(plan);
    if (++failures == 10) break;
  }
  std::printf("%llu schedules, %llu events, %llu steps taken, %llu failures\n",
              static_cast<unsigned long long>(schedules), static_cast<unsigned long long>(events),
              static_cast<unsigned long long>(taken), static_cast<unsigned long long>(failures));
}

TEST(Schedules, AllEndWell) { expect_all_end_well(random_plan); }
TEST(Schedules, AllEndWellWhereReadersLeaveAndKeepLeases) { expect_all_end_well(leaving_plan); }
TEST(Schedules, AllEndWellWhereReadersReleaseNothing) { expect_all_end_well(hoarding_plan); }

TEST(Schedules, TheSameSeedIsTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto first = run_schedule(random_plan(seed)), second = run_schedule(random_plan(seed));
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.messages, second.messages);
    EXPECT_EQ(first.steps_taken, second.steps_taken);
  }
}

class PlantedBug : public testing::TestWithParam<Bug> {
 protected:
  static Plan plan(std::uint64_t seed) {
    switch (GetParam()) {
      case Bug::leave_late:
      case Bug::leave_ends_all: return leaving_plan(seed);
      case Bug::share_ignored: return hoarding_plan(seed);
      default: return random_plan(seed);
    }
  }
};

TEST_P(PlantedBug, IsFound) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    const auto result = run_schedule(plan(seed), GetParam());
    if (result.failure.empty()) continue;
    std::printf("planted bug (%s) found after %llu schedules: %s\n", name_of(GetParam()),
                static_cast<unsigned long long>(seed), result.failure.substr(0, result.failure.find('\n')).c_str());
    return;
  }
  ADD_FAILURE() << "2000 schedules did not find: " << name_of(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBug,
                         testing::Values(Bug::release_lost, Bug::release_twice, Bug::release_early, Bug::record_early,
                                         Bug::grant_lost, Bug::layout_left_out, Bug::drops_untold, Bug::goodbye_early,
                                         Bug::leave_late, Bug::leave_ends_all, Bug::share_ignored),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

// What a step costs in messages does not depend on what is in it, and nowhere on one rank talking to all.
TEST(Schedules, ThousandsOfRanks) {
  Plan plan;
  plan.writer.ranks = 4096;
  plan.writer.queue_steps = 3;
  plan.writer.rendezvous_readers = 1;
  plan.steps = 8;
  plan.write_time = 100;
  plan.layout_chance = 0;
  plan.cohorts.push_back({.ranks = 1024, .think = 50});
  const auto result = run_schedule(plan);
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.steps_taken, plan.steps * 1024);
  EXPECT_EQ(result.committed, plan.steps);
  const auto sent = [&](wire::Kind kind) { return result.by_kind[static_cast<std::size_t>(kind)]; };
  // 4095 tree links carry one grant and one record each, 1024 links an announcement and a release.
  EXPECT_EQ(sent(wire::Kind::record), plan.steps * 4095);
  EXPECT_EQ(sent(wire::Kind::announce), plan.steps * 1024);
  EXPECT_EQ(sent(wire::Kind::release), plan.steps * 1024);
  EXPECT_EQ(sent(wire::Kind::epoch), 1024u);
  std::printf(
      "4096 writer and 1024 reader ranks: %.1f messages per step (%.1f records, %.1f grants, %.1f wants, %.1f "
      "announcements, "
      "%.1f releases), %llu events\n",
      static_cast<double>(result.messages) / plan.steps, static_cast<double>(sent(wire::Kind::record)) / plan.steps,
      static_cast<double>(sent(wire::Kind::grant)) / plan.steps,
      static_cast<double>(sent(wire::Kind::want)) / plan.steps,
      static_cast<double>(sent(wire::Kind::announce)) / plan.steps,
      static_cast<double>(sent(wire::Kind::release)) / plan.steps, static_cast<unsigned long long>(result.events));
}

}  // namespace
}  // namespace penstock::stream::sim
