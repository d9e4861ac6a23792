// What fragments are characterised by: sums over their cells, and which fields these need.
//
// The cells of one block that have the same label are added in plain doubles, in the cells' order; blocks are added exactly, so
// that no sum depends on how blocks are divided among ranks. Positions are measured from the grid's origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"
#include "analysis/fragments/block_field.hpp"
#include "analysis/fragments/block_labels.hpp"
#include "analysis/fragments/exact_sum.hpp"

namespace penstock::analysis {

// Only the fraction is read in blocks that are not own.
struct FragmentFields {
  BlockField fraction;                     // of a cell's volume that the material fills
  std::optional<BlockField> mass_density;  // the material's mass by the cell's volume; without it, 1 in the material
  std::optional<BlockField> velocity;      // 3 components
  std::vector<BlockField> averages;        // to be averaged, weighted by the material's volume
};

// Where the sums of a region are. Second moments: xx, xy, xz, yy, yz, zz.
struct Sum {
  static constexpr std::size_t volume = 0, mass = 1, first_moment = 2, second_moment = 5, momentum = 11, averages = 14;
};

// Sums over a region of cells.
struct RegionSums {
  std::uint64_t cells = 0;
  std::vector<ExactSum> sums;  // by Sum

  explicit RegionSums(std::size_t averages = 0) : sums(Sum::averages + averages) {}
  void add(std::uint64_t more_cells, std::span<const double> more);
  void add(const RegionSums& other);
  double rounded(std::size_t sum) const { return sums[sum].rounded(); }
};

// The sums of a block's cells by label.
class BlockSums {
 public:
  // Refers to both.
  BlockSums(const AmrBlocks& blocks, const FragmentFields& fields) : blocks_(blocks), fields_(fields) {}

  // fraction: of the block's cells.
  void compute(std::size_t row, std::span<const double> fraction, const BlockLabels& labels);
  // no_label: of the cells below the threshold.
  std::uint64_t cells(std::int32_t label) const { return cells_[label + 1]; }
  std::span<const double> sums(std::int32_t label) const {
    return std::span(sums_).subspan((label + 1) * width(), width());
  }

 private:
  std::size_t width() const { return Sum::averages + fields_.averages.size(); }

  const AmrBlocks& blocks_;
  const FragmentFields& fields_;
  std::vector<double> sums_;
  std::vector<std::uint64_t> cells_;
  std::vector<double> mass_density_;
  std::array<std::vector<double>, 3> velocity_;
  std::vector<std::vector<double>> averages_;
};

}  // namespace penstock::analysis
