#include "space/block_index.hpp"

#include <utility>

#include "model/box.hpp"

namespace penstock::space {

void BlockIndex::insert(const Box& block) {
  list_.push_back(block);
  if (list_.size() < longest_list) return;
  auto blocks = std::exchange(list_, {});
  while (!trees_.empty() && trees_.back().size() <= blocks.size() &&
         trees_.back().size() + blocks.size() <= largest_tree) {
    const Box everywhere{Dims::filled(block.start.size(), 0), Dims::filled(block.start.size(), ~std::uint64_t{0})};
    trees_.back().for_each(everywhere, [&](const Box& box) {
      blocks.push_back(box);
      return true;
    });
    trees_.pop_back();
  }
  trees_.emplace_back(blocks);
}

void BlockIndex::for_each(const Box& box, const std::function<bool(const Box&)>& see) const {
  bool on = true;
  for (std::size_t i = 0; on && i < list_.size(); ++i)
    if (model::intersect(list_[i], box)) on = see(list_[i]);
  for (std::size_t i = 0; on && i < trees_.size(); ++i)
    trees_[i].for_each(box, [&](const Box& block) { return on = see(block); });
}

std::optional<Box> BlockIndex::first_met(const Box& box) const {
  std::optional<Box> met;
  for_each(box, [&](const Box& block) {
    met = block;
    return false;
  });
  return met;
}

std::uint64_t BlockIndex::covered(const Box& box) const {
  std::uint64_t elements = 0;
  for_each(box, [&](const Box& block) {
    elements += element_count(model::intersect(block, box)->count);
    return true;
  });
  return elements;
}

std::size_t BlockIndex::size() const {
  std::size_t blocks = list_.size();
  for (const auto& tree : trees_) blocks += tree.size();
  return blocks;
}

std::size_t BlockIndex::memory_bytes() const {
  std::size_t bytes = list_.capacity() * sizeof(Box);
  for (const auto& tree : trees_) bytes += sizeof(tree) + tree.memory_bytes();
  return bytes;
}

}  // namespace penstock::space
