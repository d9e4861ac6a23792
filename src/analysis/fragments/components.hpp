// The components of a rank's own blocks, and what is needed to join them with those of other ranks.
//
// A block's component is named by the number of its lowest cell, so that every rank names it alike. Components of own blocks that
// touch across faces are one component of the rank. Components of blocks that are not own stay apart: each is a component of its
// own, numbered after all others; merge() finds out to which component of another rank it belongs.
// Keeps the labels of the blocks' outermost cells, and refers to the blocks. Not safe for use by several threads while it changes.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "analysis/fragments/amr_blocks.hpp"
#include "analysis/fragments/block_labels.hpp"
#include "analysis/fragments/disjoint_sets.hpp"

namespace penstock::analysis {

class Components {
 public:
  // The component of an own block (named by its lowest cell) is a part of this one.
  struct Alias {
    CellId name = 0;
    std::int32_t component = 0;
  };
  // An own component, and one of a block that is not own, which touches it across a face.
  struct Pair {
    std::int32_t own = 0, foreign = 0;
    auto operator<=>(const Pair&) const = default;
  };

  explicit Components(const AmrBlocks& blocks) : blocks_(blocks) {}

  // For all blocks in the order of their rows. Then join() is called, once; the rest needs it.
  void add(const BlockLabels& labels);
  void join();

  std::int32_t own() const { return own_; }
  // Of the components of all blocks, one block after the other.
  std::span<const CellId> names() const { return names_; }
  std::span<const std::int32_t> numbers() const { return numbers_; }
  // The names of the components from own() on.
  std::span<const CellId> foreign() const { return std::span(names_).subspan(own_labels()); }
  const std::vector<Pair>& pairs() const { return pairs_; }
  // Of the components of own blocks that touch a block that is not own.
  std::vector<Alias> aliases() const;

  // Turns the labels of an own block's cells into numbers of components.
  void number(std::size_t row, std::vector<std::int32_t>& labels) const;
  // The numbers of an own block's cells with one layer around it (AmrGrid::padded_place): no_label below the threshold, outside
  // the domain, and where finer blocks are.
  void pad(std::size_t row, const BlockLabels& labels, std::vector<std::int32_t>& padded) const;
  // Whether the block and all that pad() reads of its neighbours are below the threshold.
  bool nothing_around(std::size_t row) const;

 private:
  std::size_t own_labels() const { return first_[blocks_.own()]; }
  std::int32_t label_of(std::size_t row, std::int32_t label) const { return first_[row] + label; }
  void join_across(std::size_t row, int direction_number, DisjointSets& sets);

  const AmrBlocks& blocks_;
  std::vector<OuterLabels> outer_;      // of each block
  std::vector<std::int32_t> first_{0};  // of each block: how many components the blocks before it have
  std::vector<CellId> names_;           // of each block's components
  std::vector<std::int32_t> numbers_;   // of each block's components
  std::vector<Pair> pairs_;
  std::int32_t own_ = 0;
};

}  // namespace penstock::analysis
