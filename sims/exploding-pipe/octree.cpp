#include "octree.hpp"

#include <algorithm>
#include <unordered_set>

namespace exploding_pipe {
namespace {

// The bits of x, two zeros behind each.
std::uint64_t spread(std::uint64_t x) {
  std::uint64_t out = 0;
  for (int bit = 0; bit < 21; ++bit) out |= (x >> bit & 1) << 3 * bit;
  return out;
}

using Keys = std::unordered_set<Key, KeyHash>;

// Refines leaves until no two neighbours' levels differ by more than one.
void balance(Keys& leaves, const Octree& domain) {
  std::vector<Key> waiting(leaves.begin(), leaves.end());
  while (!waiting.empty()) {
    const Key key = waiting.back();
    waiting.pop_back();
    if (!leaves.contains(key)) continue;
    for (const Index& direction : directions()) {
      if (!domain.inside(key.shifted(direction))) continue;
      Key coarse = key.shifted(direction);
      while (coarse.level > 0 && !leaves.contains(coarse)) coarse = coarse.parent();
      if (!leaves.contains(coarse) || coarse.level >= key.level - 1) continue;
      leaves.erase(coarse);
      for (int octant = 0; octant < 8; ++octant) {
        leaves.insert(coarse.child(octant));
        waiting.push_back(coarse.child(octant));
      }
      waiting.push_back(key);  // the neighbour may be too coarse still
    }
  }
}

}  // namespace

Key Key::child(int octant) const {
  return {level + 1, {2 * at[0] + (octant & 1), 2 * at[1] + (octant >> 1 & 1), 2 * at[2] + (octant >> 2 & 1)}};
}

std::uint64_t morton(const Key& key) {
  std::uint64_t number = 0;
  for (int d = 0; d < 3; ++d)
    number |= spread(static_cast<std::uint64_t>(key.at[d]) << (deepest_level - key.level)) << d;
  return number;
}

std::size_t KeyHash::operator()(const Key& key) const {
  std::size_t hash = static_cast<std::size_t>(key.level);
  for (const int at : key.at) hash = hash * 0x9e3779b97f4a7c15 + static_cast<std::size_t>(at);
  return hash ^ hash >> 29;
}

std::span<const Index> directions() {
  static const std::vector<Index> all = [] {
    std::vector<Index> list;
    for (int z = -1; z <= 1; ++z)
      for (int y = -1; y <= 1; ++y)
        for (int x = -1; x <= 1; ++x)
          if (x != 0 || y != 0 || z != 0) list.push_back({x, y, z});
    return list;
  }();
  return all;
}

Octree::Octree(const Index& roots, int max_level, int ranks) : roots_(roots), max_level_(max_level), ranks_(ranks) {
  std::vector<Key> leaves;
  for (int z = 0; z < roots[2]; ++z)
    for (int y = 0; y < roots[1]; ++y)
      for (int x = 0; x < roots[0]; ++x) leaves.push_back({0, {x, y, z}});
  set_leaves(std::move(leaves));
}

void Octree::set_leaves(std::vector<Key> leaves) {
  leaves_ = std::move(leaves);
  std::ranges::sort(leaves_, {}, morton);
  place_.clear();
  for (int i = 0; i < size(); ++i) place_[leaves_[i]] = i;
}

int Octree::find(const Key& key) const {
  const auto found = place_.find(key);
  return found == place_.end() ? -1 : found->second;
}

bool Octree::inside(const Key& key) const {
  for (int d = 0; d < 3; ++d)
    if (key.at[d] < 0 || key.at[d] >= roots_[d] << key.level) return false;
  return true;
}

Octree Octree::adapted(std::span<const Wish> wishes) const {
  Keys leaves;
  for (int i = 0; i < size(); ++i) {
    const Key& key = leaves_[i];
    if (wishes[i] == Wish::refine && key.level < max_level_) {
      for (int octant = 0; octant < 8; ++octant) leaves.insert(key.child(octant));
      continue;
    }
    const auto may_go = [&](int octant) {
      const int sibling = find(key.parent().child(octant));
      return sibling >= 0 && wishes[sibling] == Wish::coarsen;
    };
    bool all = key.level > 0;
    for (int octant = 0; all && octant < 8; ++octant) all = may_go(octant);
    leaves.insert(all ? key.parent() : key);
  }
  balance(leaves, *this);
  Octree tree = *this;
  tree.set_leaves({leaves.begin(), leaves.end()});
  return tree;
}

}  // namespace exploding_pipe
