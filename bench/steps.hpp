// The steps of `penstock bench pool`: two fields of side³ float64, as Gray-Scott has them, each rank with a slab of z; or many
// small variables for each rank. Values are those of common.hpp, so that readers can check them.
#pragma once

#include "arguments.hpp"

namespace penstock::bench {

struct StepPlan {
  int ranks = 2;
  std::uint64_t side = 128;
  int steps = 20;
  int many = 0;  // > 0: so many variables of 1 KiB for each rank instead of the fields

  explicit StepPlan(const Arguments& arguments)
      : ranks(static_cast<int>(arguments.number("ranks", 2))),
        side(arguments.number("side", 128)),
        steps(static_cast<int>(arguments.number("steps", 20))),
        many(static_cast<int>(arguments.number("many", 0))) {
    if (ranks < 1 || side % static_cast<std::uint64_t>(ranks) != 0)
      throw std::runtime_error("the side must be a multiple of the ranks");
  }
  static constexpr std::size_t small_elements = 128;
  static constexpr int fields = 2;

  std::uint64_t planes() const { return side / static_cast<std::uint64_t>(ranks); }  // of one rank
  std::size_t slab() const { return planes() * side * side; }  // elements of one field of one rank
  std::size_t rank_elements() const {
    return many > 0 ? static_cast<std::size_t>(many) * small_elements : fields * slab();
  }
  double step_bytes() const { return 8.0 * static_cast<double>(rank_elements()) * ranks; }
};

// Where a simulation would compute: its processor is busy, its arrays stay as they are. Returns the seconds.
inline double compute_for(double seconds) {
  const double start = now();
  double passed = 0;
  while (passed < seconds) passed = now() - start;
  return passed;
}

inline const char* field_name(int field) { return field == 0 ? "U" : "V"; }
inline std::string small_name(int variable) { return "block/property/" + std::to_string(variable); }

// One rank's fields: field f starts at f * slab. Changed in a few places in each step.
inline void first_values(std::vector<double>& own) { ramp(own.data(), own.size()); }
inline void next_values(const StepPlan& plan, std::vector<double>& own, int step) {
  if (plan.many > 0) {
    for (int v = 0; v < plan.many; ++v) own[static_cast<std::size_t>(v) * StepPlan::small_elements] = w3_value(step, v);
    return;
  }
  for (int f = 0; f < StepPlan::fields; ++f)
    stamp(own.data() + static_cast<std::size_t>(f) * plan.slab(), plan.slab(), step);
}
inline void check_slab(const StepPlan& plan, const double* slab, int step) { check_samples(slab, plan.slab(), step); }

}  // namespace penstock::bench
