#include "pool/sim/plan.hpp"

#include <algorithm>

#include "stream/protocol/sim/fabric.hpp"

namespace penstock::pool::sim {

const char* name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::directory_dies: return "the directory dies";
    case ActionKind::drain: return "drain";
    case ActionKind::join: return "join";
    case ActionKind::kill: return "kill";
    case ActionKind::restart: return "restart";
    case ActionKind::cut: return "cut";
    case ActionKind::hold: return "hold";
    case ActionKind::away: return "away";
  }
  return "?";
}

Plan random_plan(std::uint64_t seed) {
  stream::sim::Random random(seed ^ 0x9001);
  Plan plan;
  plan.seed = seed;
  plan.replication = random.chance(0.25) ? 1 : random.chance(0.8) ? 2 : 3;
  plan.servers = static_cast<std::uint32_t>(plan.replication + random.between(1, 3));
  plan.clients = static_cast<std::uint32_t>(random.between(1, 3));
  plan.keys = static_cast<std::uint32_t>(random.between(2, 8));
  plan.max_delay_us =
      static_cast<std::uint32_t>(random.chance(0.3) ? random.between(2000, 20'000) : random.between(50, 2000));
  // A heartbeat and its answer arrive in time, also if both are among the slow ones (network.cpp).
  plan.lease_ms = static_cast<std::uint32_t>(random.between(300, 1500)) + plan.max_delay_us * 70 / 1000;
  plan.think_ms = static_cast<std::uint32_t>(random.between(20, 200));
  plan.duration_ms = static_cast<std::uint32_t>(random.between(2000, 8000));
  const auto add = [&](ActionKind kind) {
    const auto at = random.below(plan.duration_ms);
    const auto length = kind == ActionKind::directory_dies ? random.between(100, 6000) : random.between(50, 1500);
    plan.actions.push_back({kind, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(length)});
  };
  if (seed % 3 != 0) add(ActionKind::directory_dies);
  if (seed % 3 != 1) add(ActionKind::drain);
  for (auto more = random.below(5); more > 0; --more)
    add(static_cast<ActionKind>(random.below(static_cast<std::uint64_t>(ActionKind::away) + 1)));
  std::ranges::sort(plan.actions, {}, &Action::at_ms);
  return plan;
}

std::string describe(const Plan& plan) {
  std::string text = "seed " + std::to_string(plan.seed) + ": " + std::to_string(plan.servers) +
                     " servers, replication " + std::to_string(plan.replication) + ", " + std::to_string(plan.clients) +
                     " clients with " + std::to_string(plan.keys) + " keys each, leases of " +
                     std::to_string(plan.lease_ms) + " ms, delays up to " + std::to_string(plan.max_delay_us) +
                     " us, " + std::to_string(plan.duration_ms) + " ms";
  for (const auto& action : plan.actions)
    text += "\n  at " + std::to_string(action.at_ms) + " ms: " + name_of(action.kind) + " (" +
            std::to_string(action.length_ms) + " ms)";
  return text;
}

}  // namespace penstock::pool::sim
