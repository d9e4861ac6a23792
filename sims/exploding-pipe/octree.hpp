// A forest of octrees of equal blocks: keys, Morton order, neighbours, and refinement with levels that differ by one at most.
//
// The domain is a box of roots (blocks of level 0); a block of level l is one of its parent's 8 octants. Each block has cells_per_side
// cells along each axis. Leaves are kept in Morton order, of which each rank owns one contiguous part. Every rank knows all leaves, so
// that all of this is computed without communication. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace exploding_pipe {

constexpr int cells_per_side = 8;
constexpr int deepest_level = 12;

using Index = std::array<int, 3>;  // x, y, z

struct Key {
  int level = 0;
  Index at{};  // in blocks of this level

  bool operator==(const Key&) const = default;
  Key parent() const { return {level - 1, {at[0] >> 1, at[1] >> 1, at[2] >> 1}}; }
  Key child(int octant) const;  // bit 0 of octant: upper half of x, bit 1: y, bit 2: z
  Key shifted(const Index& by) const { return {level, {at[0] + by[0], at[1] + by[1], at[2] + by[2]}}; }
};

// The Morton number of the block's lower corner, counted in blocks of the deepest level. A block of level l covers the numbers from it
// up to 8^(deepest_level - l) further.
std::uint64_t morton(const Key& key);

struct KeyHash {
  std::size_t operator()(const Key& key) const;
};

enum class Wish : std::uint8_t { coarsen, keep, refine };

class Octree {
 public:
  // All roots, unrefined.
  Octree(const Index& roots, int max_level, int ranks);

  std::span<const Key> leaves() const { return leaves_; }
  int size() const { return static_cast<int>(leaves_.size()); }
  int find(const Key& key) const;  // the leaf's place in leaves(), or -1
  bool inside(const Key& key) const;
  int max_level() const { return max_level_; }

  // Ranks own equal numbers of leaves, but for one.
  int first(int rank) const { return static_cast<int>(std::int64_t{size()} * rank / ranks_); }
  int owner(int leaf) const { return static_cast<int>(((std::int64_t{leaf} + 1) * ranks_ - 1) / size()); }
  int ranks() const { return ranks_; }

  // The tree after these wishes, one for each leaf. A leaf is refined if it wishes so, or if a neighbour (across a face, edge or
  // corner) would be finer by two levels. Eight siblings become their parent if all of them wish so and no neighbour forbids it.
  Octree adapted(std::span<const Wish> wishes) const;

 private:
  void set_leaves(std::vector<Key> leaves);

  Index roots_;
  int max_level_;
  int ranks_;
  std::vector<Key> leaves_;
  std::unordered_map<Key, int, KeyHash> place_;
};

// The 26 directions to neighbours.
std::span<const Index> directions();

}  // namespace exploding_pipe
