#include "analysis/fragments/merge.hpp"

#include <algorithm>
#include <compare>
#include <limits>
#include <numeric>
#include <string>

#include "analysis/fragments/disjoint_sets.hpp"
#include "analysis/refuse.hpp"

namespace penstock::analysis {
namespace {

// The components of all parts, numbered one part after the other.
class AllComponents {
 public:
  explicit AllComponents(std::span<const Part> parts) : parts_(parts) {
    for (const auto& part : parts) firsts_.push_back(firsts_.back() + part.components.size());
    if (firsts_.back() > std::size_t{std::numeric_limits<std::int32_t>::max()})
      refuse("there are " + std::to_string(firsts_.back()) + " components: raise the threshold");
    for (std::size_t part = 0; part < parts.size(); ++part)
      for (const auto& alias : parts[part].aliases) names_.push_back({alias.name, number(part, alias.component)});
    std::ranges::sort(names_, {}, &Components::Alias::name);
    const auto twice = std::ranges::adjacent_find(names_, {}, &Components::Alias::name);
    if (twice != names_.end())
      refuse("two parts have the block of the cell " + std::to_string(twice->name) +
             ": a block is analysed by one rank, in one batch");
  }

  std::size_t size() const { return firsts_.back(); }
  // component: also of a block that is not the part's own.
  std::int32_t number(std::size_t part, std::int32_t component) const {
    const auto own = parts_[part].components.size();
    if (std::size_t(component) < own) return static_cast<std::int32_t>(firsts_[part] + component);
    const CellId name = parts_[part].foreign[component - own];
    const auto found = std::ranges::lower_bound(names_, name, {}, &Components::Alias::name);
    if (found == names_.end() || found->name != name)
      refuse("part " + std::to_string(part) + " touches the component of the cell " + std::to_string(name) +
             ", which no part has: the parts of all ranks and batches are needed");
    return found->component;
  }

 private:
  std::span<const Part> parts_;
  std::vector<std::size_t> firsts_{0};
  std::vector<Components::Alias> names_;  // sorted
};

// The fragments before they are in order.
struct Joined {
  std::vector<Part::Component> fragments;
  std::vector<std::int32_t> of;  // of each of AllComponents
};

Joined join(std::span<const Part> parts, const AllComponents& all) {
  DisjointSets sets(all.size());
  for (std::size_t part = 0; part < parts.size(); ++part)
    for (const auto& pair : parts[part].pairs) sets.join(all.number(part, pair.own), all.number(part, pair.foreign));
  Joined joined{{}, std::vector<std::int32_t>(all.size())};
  std::int32_t number = 0;
  for (const auto& part : parts)
    for (const auto& component : part.components) {
      const auto root = sets.root(number);
      auto& fragment = joined.of[number] = joined.of[root];
      if (root == number) {
        fragment = static_cast<std::int32_t>(joined.fragments.size());
        joined.fragments.push_back(component);
      } else {
        joined.fragments[fragment].sums.add(component.sums);
        joined.fragments[fragment].lowest = std::min(joined.fragments[fragment].lowest, component.lowest);
      }
      ++number;
    }
  return joined;
}

// By volume and lowest cell. joined.of keeps up.
void put_in_order(Joined& joined) {
  const std::size_t count = joined.fragments.size();
  std::vector<double> volumes;
  for (const auto& fragment : joined.fragments) volumes.push_back(fragment.sums.rounded(Sum::volume));
  std::vector<std::int32_t> order(count), place(count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) {
    const auto by_volume = std::strong_order(volumes[b], volumes[a]);
    return by_volume != 0 ? by_volume < 0 : joined.fragments[a].lowest < joined.fragments[b].lowest;
  });
  std::vector<Part::Component> fragments;
  for (std::size_t i = 0; i < count; ++i) {
    place[order[i]] = static_cast<std::int32_t>(i);
    fragments.push_back(std::move(joined.fragments[order[i]]));
  }
  joined.fragments = std::move(fragments);
  for (auto& fragment : joined.of) fragment = place[fragment];
}

Point3 rounded_point(const RegionSums& region, std::size_t first) {
  return {region.rounded(first), region.rounded(first + 1), region.rounded(first + 2)};
}

RegionTotals totals_of(const RegionSums& region) {
  return {region.cells, region.rounded(Sum::volume), region.rounded(Sum::mass), rounded_point(region, Sum::momentum)};
}

void characterise(const Part::Component& fragment, const Point3& origin, Merged& out) {
  const RegionSums& sums = fragment.sums;
  const double volume = sums.rounded(Sum::volume), mass = sums.rounded(Sum::mass);
  const Point3 first = rounded_point(sums, Sum::first_moment), momentum = rounded_point(sums, Sum::momentum);
  Point3 centre{}, velocity{};
  std::array<double, 9> second{};
  std::size_t next = Sum::second_moment;
  for (int i = 0; i < 3; ++i) {
    centre[i] = origin[i] + first[i] / mass;
    velocity[i] = momentum[i] / mass;
    for (int j = i; j < 3; ++j)
      second[3 * i + j] = second[3 * j + i] = sums.rounded(next++) - first[i] * first[j] / mass;
  }
  out.lowest.push_back(fragment.lowest);
  out.cells.push_back(sums.cells);
  out.volume.push_back(volume);
  out.mass.push_back(mass);
  out.centre.push_back(centre);
  out.velocity.push_back(velocity);
  out.second.push_back(second);
  for (std::size_t i = 0; i < out.averages_of_each; ++i)
    out.averages.push_back(sums.rounded(Sum::averages + i) / volume);
}

}  // namespace

Merged merge(std::span<const Part> parts) {
  Merged out;
  if (parts.empty()) return out;
  const Part::Common& common = parts[0].common;
  for (std::size_t part = 1; part < parts.size(); ++part)
    if (parts[part].common != common)
      refuse("the parts 0 and " + std::to_string(part) + " have different grids, thresholds or fields");
  const AllComponents all(parts);
  Joined joined = join(parts, all);
  put_in_order(joined);

  out.fragments = joined.fragments.size();
  out.averages_of_each = common.averages;
  for (const auto& fragment : joined.fragments) characterise(fragment, common.origin, out);
  RegionSums above(common.averages), below(common.averages);
  ExtremePoints extremes;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    auto& fragment_of = out.fragment_of.emplace_back(parts[part].size());
    for (std::size_t component = 0; component < fragment_of.size(); ++component)
      fragment_of[component] = joined.of[all.number(part, static_cast<std::int32_t>(component))];
    for (const auto& point : parts[part].extremes) extremes.add({fragment_of[point.component], point.vertex, point.at});
    above.add(parts[part].above);
    below.add(parts[part].below);
  }
  out.extremes = extremes.take();
  out.above = totals_of(above);
  out.below = totals_of(below);
  return out;
}

}  // namespace penstock::analysis
