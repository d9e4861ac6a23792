// Remembers the plans of one epoch, so that a reader that asks for the same thing step after step plans once.
//
// Used by one thread at a time. A hit does not allocate. Bounded: when full it is emptied. Plans are shared, so one
// that is still in use outlives the cache's forgetting it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/plan.hpp"

namespace penstock::model {

class PlanCache {
 public:
  explicit PlanCache(std::size_t max_plans = 1024, std::size_t max_pieces = 1u << 16);

  // Throws as make_plan. The reference lives until the next call; copy the pointer to keep the plan. Plans of another
  // epoch are forgotten.
  const std::shared_ptr<const Plan>& get(const Epoch& epoch, std::uint32_t variable, const Selection& selection,
                                         const Destination& destination = {});
  void clear();

  std::uint64_t built() const { return built_; }
  std::uint64_t reused() const { return reused_; }

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t variable = 0;
    Order order = Order::row;
    std::uint8_t strides_size = 0;
    Strides strides{};
    Selection selection = Selection::all();
    std::shared_ptr<const Plan> plan;
    std::int32_t next = -1;  // in the same bucket
  };

  std::size_t max_plans_;
  std::size_t max_pieces_;
  std::size_t pieces_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t built_ = 0;
  std::uint64_t reused_ = 0;
  std::vector<std::int32_t> buckets_;
  std::vector<Entry> entries_;
  std::shared_ptr<const Plan> uncached_;  // the last plan too large to keep
};

}  // namespace penstock::model
