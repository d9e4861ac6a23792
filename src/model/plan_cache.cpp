#include "model/plan_cache.hpp"

#include <algorithm>
#include <bit>

namespace penstock::model {

namespace {

// Long point lists are not worth comparing and keeping.
constexpr std::size_t max_coordinates = 4096;

struct Hasher {
  std::uint64_t state = 0x9e3779b97f4a7c15u;
  void add(std::uint64_t value) {
    state = (state ^ value) * 0xff51afd7ed558ccdu;
    state ^= state >> 32;
  }
  void add(const Dims& dims) {
    for (const auto value : dims) add(value);
  }
};

std::uint64_t hash_of(std::uint32_t variable, const Selection& selection, const Destination& destination) {
  Hasher hasher;
  hasher.add(std::uint64_t{variable} << 32 | static_cast<std::uint64_t>(selection.form()) << 8 |
             static_cast<std::uint64_t>(destination.order));
  if (selection.form() == Selection::Form::box) {
    hasher.add(selection.box().start);
    hasher.add(selection.box().count);
    hasher.add(selection.stride());
  } else if (selection.form() == Selection::Form::block) {
    hasher.add(selection.block_number());
  } else {
    for (const auto value : selection.coordinates()) hasher.add(value);
  }
  for (const auto stride : destination.strides) hasher.add(static_cast<std::uint64_t>(stride));
  return hasher.state;
}

}  // namespace

PlanCache::PlanCache(std::size_t max_plans, std::size_t max_pieces)
    : max_plans_(std::max<std::size_t>(max_plans, 1)),
      max_pieces_(max_pieces),
      buckets_(std::bit_ceil(max_plans_ * 2), -1) {}

void PlanCache::clear() {
  std::fill(buckets_.begin(), buckets_.end(), -1);
  entries_.clear();
  uncached_.reset();
  pieces_ = 0;
}

const std::shared_ptr<const Plan>& PlanCache::get(const Epoch& epoch, std::uint32_t variable,
                                                  const Selection& selection, const Destination& destination) {
  if (epoch.number() != epoch_) {
    clear();
    epoch_ = epoch.number();
  }
  const std::uint64_t hash = hash_of(variable, selection, destination);
  std::int32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
  for (std::int32_t i = bucket; i >= 0; i = entries_[static_cast<std::size_t>(i)].next) {
    const Entry& entry = entries_[static_cast<std::size_t>(i)];
    if (entry.hash == hash && entry.variable == variable && entry.order == destination.order &&
        std::equal(destination.strides.begin(), destination.strides.end(), entry.strides.begin(),
                   entry.strides.begin() + entry.strides_size) &&
        entry.selection == selection) {
      ++reused_;
      return entry.plan;
    }
  }
  auto plan = std::make_shared<const Plan>(make_plan(epoch.variable(variable), selection, destination));
  ++built_;
  const std::size_t pieces = plan->pieces().size();
  if (pieces > max_pieces_ || selection.coordinates().size() > max_coordinates) return uncached_ = std::move(plan);
  if (entries_.size() == max_plans_ || pieces_ + pieces > max_pieces_) clear();
  pieces_ += pieces;
  Entry entry{hash, variable,  destination.order, static_cast<std::uint8_t>(destination.strides.size()),
              {},   selection, std::move(plan),   bucket};
  std::copy(destination.strides.begin(), destination.strides.end(), entry.strides.begin());
  bucket = static_cast<std::int32_t>(entries_.size());
  entries_.push_back(std::move(entry));
  return entries_.back().plan;
}

}  // namespace penstock::model
