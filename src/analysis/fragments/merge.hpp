// Fragments of a step, from the parts that have its blocks.
//
// The result is the same, bit for bit, however blocks are divided into parts and whatever the order of the parts. Fragments have
// descending volumes; of equal volumes, the one with the lowest cell comes first. Arrays have an entry for each fragment.
// Values; any thread. Errors: Error(invalid_argument) when the parts are not those of one step: a part is missing, two have the
// same block, or they were made with different thresholds, grids or fields.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "analysis/fragments/part.hpp"

namespace penstock::analysis {

struct RegionTotals {
  std::uint64_t cells = 0;
  double volume = 0, mass = 0;
  Point3 momentum{};
};

struct Merged {
  std::size_t fragments = 0;
  std::vector<CellId> lowest;        // cell
  std::vector<std::uint64_t> cells;  // how many
  std::vector<double> volume, mass;
  // NaN, as is the velocity, where the mass is 0.
  std::vector<Point3> centre;                 // of mass
  std::vector<Point3> velocity;               // of the centre of mass; 0 without the field
  std::vector<std::array<double, 9>> second;  // 3 x 3: the sum of mass * (x - centre) * (x - centre)
  std::size_t averages_of_each = 0;
  std::vector<double> averages;        // in the order of FragmentFields::averages, fragment by fragment
  std::vector<ExtremePoint> extremes;  // component: the fragment; ordered by it, then by vertices

  RegionTotals above, below;  // of all cells at or above the threshold, and of all below it
  // For each part, the fragment of each of its components: what labels of its cells and its surface stand for.
  std::vector<std::vector<std::int32_t>> fragment_of;
};

Merged merge(std::span<const Part> parts);

}  // namespace penstock::analysis
