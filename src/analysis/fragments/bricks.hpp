// What fragments have of a lattice that is the same for all steps, whatever their blocks: the cells of level 0. Fragments are followed
// by it from step to step.
//
// Values; one thread.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"
#include "analysis/fragments/block_field.hpp"
#include "analysis/fragments/fragments.hpp"

namespace penstock::analysis {

struct Brick {
  std::int32_t component = 0;  // of the part
  Index3 place{};              // of the cell of level 0
  double volume = 0;           // of the component in it
};

// Of the own blocks: each component and place once, in their order.
std::vector<Brick> bricks_of(const AmrBlocks& blocks, const BlockField& fraction, const FragmentFinder& finder);

}  // namespace penstock::analysis
