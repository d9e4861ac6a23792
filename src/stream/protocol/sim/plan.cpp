#include "stream/protocol/sim/plan.hpp"

#include <algorithm>
#include <sstream>

namespace penstock::stream::sim {
namespace {

constexpr const char* fault_names[] = {
    "crash_writer",      "crash_reader",           "cut_reader",   "cut_reader_tree", "garbage_to_writer",
    "garbage_to_reader", "garbage_in_reader_tree", "stall_reader", "stop_reader",     "stall_writer",
};

template <class T>
T pick(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.below(values.size())];
}

CohortPlan random_cohort(Random& random, Time pace) {
  CohortPlan c;
  c.ranks = pick<std::uint32_t>(random, {1, 1, 2, 3, 4, 7, 12});
  c.fan_out = pick<std::uint32_t>(random, {1, 2, 2, 3, 32});
  c.latest = random.chance(0.3);
  c.ring = random.chance(0.6);
  c.join_at = random.chance(0.5) ? random.below(20) : random.below(pace * 12);
  c.think = pick<Time>(random, {1, pace, pace, pace * 5});
  c.pin = random.chance(0.3) ? 0.5 : 0.0;
  c.leave = random.chance(0.25) ? 0.15 : 0.0;
  c.linger = pick(random, {0.0, 0.5, 1.0});
  return c;
}

}  // namespace

Plan random_plan(std::uint64_t seed) {
  Random random(seed);
  Plan plan;
  plan.seed = seed;
  plan.fabric = {seed, pick<Time>(random, {1, 10, 100}), random.chance(0.2), random.chance(0.3)};
  auto& w = plan.writer;
  w.ranks = pick<std::uint32_t>(random, {1, 1, 2, 3, 4, 6, 9, 21});
  w.queue_steps = static_cast<std::uint32_t>(random.between(1, 4));
  w.reserve_steps = static_cast<std::uint32_t>(random.chance(0.5) ? 0 : random.between(1, 3));
  w.keep_first_step = random.chance(0.2);
  w.when_full = pick(random, {WhenFull::block, WhenFull::discard_newest, WhenFull::discard_oldest});
  w.rendezvous_readers = static_cast<std::uint32_t>(random.below(4));
  plan.fan_out = pick<std::uint32_t>(random, {1, 2, 2, 3, 32});
  plan.steps = random.between(1, random.chance(0.1) ? 50 : 12);
  plan.write_time = pick<Time>(random, {1, 10, 50});
  plan.void_chance = random.chance(0.3) ? 0.15 : 0.0;
  plan.layout_chance = pick(random, {0.0, 0.0, 0.1, 0.5});
  if (random.chance(0.15)) plan.close_deadline = random.below(200);
  const Time pace = plan.write_time + plan.fabric.max_delay;
  const auto cohorts =
      std::max<std::uint64_t>(w.rendezvous_readers, 1) + random.below(3) - (random.chance(0.05) ? 1 : 0);
  for (std::uint64_t c = 0; c < cohorts; ++c) plan.cohorts.push_back(random_cohort(random, pace));
  if (random.chance(0.5) && !plan.cohorts.empty()) {
    const auto horizon = plan.steps * (w.ranks * 4 + plan.cohorts.size() * 10) + 20;
    for (auto n = random.between(1, 2); n > 0; --n) {
      Fault fault;
      fault.kind = static_cast<FaultKind>(random.below(std::size(fault_names)));
      fault.at_event = random.below(horizon);
      fault.cohort = static_cast<std::uint32_t>(random.below(plan.cohorts.size()));
      const bool of_writer = fault.kind == FaultKind::crash_writer || fault.kind == FaultKind::stall_writer;
      fault.rank = static_cast<std::uint32_t>(random.below(of_writer ? w.ranks : plan.cohorts[fault.cohort].ranks));
      plan.faults.push_back(fault);
    }
  }
  return plan;
}

Plan leaving_plan(std::uint64_t seed) {
  auto plan = random_plan(seed);
  Random random(seed ^ 0x1eaf);
  for (auto& c : plan.cohorts) {
    if (random.chance(0.3)) continue;
    c.keep = pick(random, {0.1, 0.3, 1.0});
    c.leave = pick(random, {0.0, 0.1, 0.3});
    c.ring = random.chance(0.8);
    c.linger = pick(random, {0.5, 1.0, 1.0});
  }
  return plan;
}

Plan hoarding_plan(std::uint64_t seed) {
  auto plan = random_plan(seed);
  Random random(seed ^ 0x40a2d);
  plan.writer.when_full = pick(random, {WhenFull::discard_newest, WhenFull::discard_oldest});
  plan.writer.queue_steps = static_cast<std::uint32_t>(random.between(1, 10));
  plan.steps += plan.writer.queue_steps * 2;
  if (plan.cohorts.empty()) plan.cohorts.push_back(random_cohort(random, plan.write_time + plan.fabric.max_delay));
  if (plan.cohorts.size() == 1 && random.chance(0.8)) plan.cohorts.push_back(plan.cohorts.front());
  for (auto& c : plan.cohorts)
    if (random.chance(0.4)) c.keep = pick(random, {0.3, 1.0, 1.0});
  return plan;
}

std::string describe(const Plan& plan) {
  static constexpr const char* policies[] = {"block", "discard_newest", "discard_oldest"};
  std::ostringstream out;
  const auto& w = plan.writer;
  out << "seed=" << plan.seed << ": " << w.ranks << " writer ranks, fan_out=" << plan.fan_out
      << ", steps=" << plan.steps << ", queue_steps=" << w.queue_steps << ", reserve_steps=" << w.reserve_steps
      << ", keep_first_step=" << w.keep_first_step << ", when_full=" << policies[static_cast<int>(w.when_full)]
      << ", rendezvous_readers=" << w.rendezvous_readers << ", void=" << plan.void_chance
      << ", layouts=" << plan.layout_chance << ", delay<=" << plan.fabric.max_delay << ", encode=" << plan.fabric.encode
      << ", crash_loses_unsent=" << plan.fabric.crash_loses_unsent;
  if (plan.close_deadline != never) out << ", close_deadline=" << plan.close_deadline;
  for (const auto& c : plan.cohorts)
    out << "; readers: " << c.ranks << " ranks, fan_out=" << c.fan_out << (c.latest ? ", latest" : ", every")
        << (c.ring ? ", ring" : ", socket") << ", join_at=" << c.join_at << ", think<=" << c.think << ", pin=" << c.pin
        << ", leave=" << c.leave << ", keep=" << c.keep;
  for (const auto& f : plan.faults)
    out << "; " << fault_names[static_cast<int>(f.kind)] << " at event " << f.at_event << " (cohort " << f.cohort
        << ", rank " << f.rank << ")";
  return out.str();
}

}  // namespace penstock::stream::sim
