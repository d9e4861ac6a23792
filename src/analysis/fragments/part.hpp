// What one rank, or one batch of blocks, knows about fragments; and its bytes, which one process sends to another.
//
// Values; any thread. decode() takes any bytes: it throws Error(protocol), and reads nothing beyond them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"
#include "analysis/fragments/components.hpp"
#include "analysis/fragments/extremes.hpp"
#include "analysis/fragments/quantities.hpp"

namespace penstock::analysis {

constexpr std::size_t max_averages = 256;

struct Part {
  // The same in all parts of a step.
  struct Common {
    Point3 origin{}, spacing{};  // of the grid
    std::int32_t depth = 0;
    double threshold = 0;
    std::uint32_t averages = 0;
    bool velocity = false;
    bool operator==(const Common&) const = default;
  };
  struct Component {
    CellId lowest = 0;  // cell
    RegionSums sums;
  };

  Common common;
  std::vector<Component> components;  // of own blocks
  std::vector<CellId> foreign;        // names of the components of blocks that are not own, numbered after `components`
  std::vector<Components::Alias> aliases;  // of components that other parts may name
  std::vector<Components::Pair> pairs;
  std::vector<ExtremePoint> extremes;  // of all components
  RegionSums above, below;             // of all cells at or above the threshold, and of all below it

  std::size_t size() const { return components.size() + foreign.size(); }
};

std::string encode(const Part& part);
Part decode(std::span<const std::byte> bytes);

}  // namespace penstock::analysis
