// The components of one block: cells at or above the threshold that are connected through faces within the block.
//
// A component's label is its place in the order of the components' lowest cells. Values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"

namespace penstock::analysis {

constexpr std::int32_t no_label = -1;  // of a cell below the threshold

struct BlockLabels {
  std::vector<std::int32_t> cells;   // the label of each cell, x fastest
  std::vector<std::int32_t> lowest;  // for each label the place of its lowest cell in `cells`: ascending

  std::size_t size() const { return lowest.size(); }
};

// values: of the block's cells, x fastest (BlockField::read).
void label_block(const Index3& cells, std::span<const double> values, double threshold, BlockLabels& labels);

// The labels of a block's outermost layer of cells: all that its neighbours see of them.
class OuterLabels {
 public:
  OuterLabels(const Index3& cells, const BlockLabels& labels);

  bool none() const { return labels_.size() == 1 && labels_[0] == no_label; }
  // x, y, z: a cell of the outermost layer.
  std::int32_t at(const Index3& cells, std::int32_t x, std::int32_t y, std::int32_t z) const {
    return labels_.size() == 1 ? labels_[0] : labels_[place(cells, x, y, z)];
  }

 private:
  // The layers at both ends of z, then for each z between them the rows at both ends of y, then the cells at both ends of x.
  static std::size_t place(const Index3& cells, std::int32_t x, std::int32_t y, std::int32_t z);

  std::vector<std::int32_t> labels_;  // one when all are equal, as in most blocks
};

}  // namespace penstock::analysis
