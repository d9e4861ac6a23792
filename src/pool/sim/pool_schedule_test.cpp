// Random schedules of a pool's real servers and clients with simulated time, network and directory (sim/), and planted
// bugs that they must find.
//
//   PENSTOCK_SCHEDULES=n  how many schedules, in parts of 100 (100; with PENSTOCK_SOAK 10000)
//   PENSTOCK_SEED=s       only this one, and what happens in it
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>

#include "base/test_support.hpp"
#include "pool/sim/world.hpp"

namespace penstock::pool::sim {

void PrintTo(Bug bug, std::ostream* out) { *out << name_of(bug); }

namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

constexpr std::uint64_t seeds_of_part = 100;  // in well under the two minutes that a test may take

std::uint64_t parts() {
  const auto schedules = number_from("PENSTOCK_SCHEDULES", std::getenv("PENSTOCK_SOAK") ? 10'000 : 100);
  return number_from("PENSTOCK_SEED", 0) != 0 ? 1 : (schedules + seeds_of_part - 1) / seeds_of_part;
}

void add(Result& sum, const Result& one) {
  sum.frames += one.frames;
  sum.calls += one.calls;
  sum.failed_calls += one.failed_calls;
  sum.views += one.views;
  sum.kills += one.kills;
  sum.drains += one.drains;
  sum.drains_by_command += one.drains_by_command;
  sum.outages += one.outages;
}

class PoolSchedulesPart : public testing::TestWithParam<std::uint64_t> {};

TEST_P(PoolSchedulesPart, EndsWell) {
  if (const auto seed = number_from("PENSTOCK_SEED", 0); seed != 0) {
    const auto plan = random_plan(seed);
    EXPECT_EQ(run_schedule(plan, Bug::none, true).failure, "") << describe(plan);
    return;
  }
  SilentLog silent;  // what goes wrong is meant to
  Result sum;
  int failures = 0;
  const auto first = 1 + GetParam() * seeds_of_part;
  for (std::uint64_t seed = first; seed < first + seeds_of_part && failures < 10; ++seed) {
    const auto plan = random_plan(seed);
    const auto result = run_schedule(plan);
    add(sum, result);
    if (result.failure.empty()) continue;
    ++failures;
    ADD_FAILURE() << result.failure << "\n(again, with all that happens: PENSTOCK_SEED=" << seed << ")\n"
                  << describe(plan);
  }
  std::printf(
      "seeds from %llu: %llu frames, %llu calls (%llu failed), %llu views, %llu servers killed, %llu drained "
      "(%llu by command), directory away %llu times; %d failures\n",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(sum.frames),
      static_cast<unsigned long long>(sum.calls), static_cast<unsigned long long>(sum.failed_calls),
      static_cast<unsigned long long>(sum.views), static_cast<unsigned long long>(sum.kills),
      static_cast<unsigned long long>(sum.drains), static_cast<unsigned long long>(sum.drains_by_command),
      static_cast<unsigned long long>(sum.outages), failures);
}

INSTANTIATE_TEST_SUITE_P(All, PoolSchedulesPart, testing::Range(std::uint64_t{0}, parts()));

TEST(PoolSchedules, TheSameSeedIsTheSameRun) {
  SilentLog silent;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const auto first = run_schedule(random_plan(seed)), second = run_schedule(random_plan(seed));
    EXPECT_EQ(first.frames, second.frames) << seed;
    EXPECT_EQ(first.calls, second.calls) << seed;
    EXPECT_EQ(first.views, second.views) << seed;
    EXPECT_EQ(first.simulated_ms, second.simulated_ms) << seed;
  }
}

class PlantedPoolBug : public testing::TestWithParam<Bug> {};

TEST_P(PlantedPoolBug, IsFound) {
  SilentLog silent;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const auto result = run_schedule(random_plan(seed), GetParam());
    if (result.failure.empty()) continue;
    std::printf("planted bug (%s) found after %llu schedules: %s\n", name_of(GetParam()),
                static_cast<unsigned long long>(seed), result.failure.substr(0, result.failure.find('\n')).c_str());
    return;
  }
  ADD_FAILURE() << "200 schedules did not find: " << name_of(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, PlantedPoolBug,
                         testing::Values(Bug::settled_early, Bug::drain_at_once, Bug::replica_lost, Bug::drop_untold,
                                         Bug::nothing_missing, Bug::absence_forgotten, Bug::lease_not_renewed),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

}  // namespace
}  // namespace penstock::pool::sim
