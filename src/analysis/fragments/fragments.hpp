// Fragments in one rank's blocks, or in one batch of them: connected regions of cells whose fraction is at least the threshold, what
// characterises them, and their surface (docs/internals/fragments.md).
//
// Cells are connected across faces, also between levels. A part knows a rank's own components; merge() joins those of all parts. The
// blocks' values are read in place, block by block: memory is that of the components, of the labels on the blocks' faces, and of the
// surface. One thread for each object, which refers to the blocks and the fields.
// Errors: Error(invalid_argument).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"
#include "analysis/fragments/components.hpp"
#include "analysis/fragments/dual_contour.hpp"
#include "analysis/fragments/part.hpp"
#include "analysis/fragments/quantities.hpp"

namespace penstock::analysis {

struct FragmentOptions {
  double threshold = 0.5;
  bool extremes = false;  // find the surface's extreme points, too
};

class FragmentFinder {
 public:
  // Labels all blocks, joins the components of own ones, and adds up their cells.
  FragmentFinder(const AmrBlocks& blocks, const FragmentFields& fields, const FragmentOptions& options);

  // The surface of the own blocks is appended to `surface`, unless that is null; its labels are numbers of the part's components, as
  // Merged::fragment_of has them. Extreme points need a surface.
  Part find(Surface* surface) const;

  // Of the cells of an own block, x fastest: their component in the part, or no_label.
  void cells(std::size_t row, std::vector<std::int32_t>& components) const;

 private:
  void add_up(std::size_t row, const std::vector<double>& fraction, const BlockLabels& labels);
  void contour(Part& part, Surface& surface) const;

  const AmrBlocks& blocks_;
  const FragmentFields& fields_;
  FragmentOptions options_;
  Components components_;
  BlockSums block_sums_;
  // Of each component of an own block, in the order of Components::add.
  std::vector<std::uint64_t> cells_;
  std::vector<double> sums_;
  RegionSums above_, below_;
};

}  // namespace penstock::analysis
