// The blocks of one rank: their cells, the ghost cells around them, and what moves between blocks of all ranks.
//
// A block has cells_per_side cells along each axis, with two layers of ghost cells around them, for each component of a State;
// conserved values, component by component, x fastest. Ghost cells of a neighbour of the same level are its cells; of a finer one,
// means of eight; of a coarser one, a limited linear interpolation. Collective over the communicator: all but the plain accessors.
#pragma once

#include <mpi.h>

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "fluid.hpp"
#include "octree.hpp"

namespace exploding_pipe {

constexpr int ghosts = 2;
constexpr int extent = cells_per_side + 2 * ghosts;
constexpr int block_cells = extent * extent * extent;
constexpr int block_values = components * block_cells;
constexpr int inner_cells = cells_per_side * cells_per_side * cells_per_side;

// Where a cell is in a component of a block; cells count from 0, ghost cells from -2.
constexpr int place(int x, int y, int z) { return ((z + ghosts) * extent + y + ghosts) * extent + x + ghosts; }

enum class Boundary { open, mirror };  // what leaves is lost; what comes is thrown back

// Cells of block `to` that take their values from block `from`, which may be of another tree.
struct Piece {
  int to, from;  // leaves
  Key to_key, from_key;
  Index low, high;  // of `to`
};

// Messages of doubles between ranks: for each other rank how many go and come, always in the same order.
class Mail {
 public:
  Mail() = default;
  Mail(MPI_Comm comm, std::vector<std::size_t> outgoing, std::vector<std::size_t> incoming);
  // fill(rank, values) writes what goes to the rank; take(rank, values) reads what came.
  void deliver(const std::function<void(int, std::span<double>)>& fill,
               const std::function<void(int, std::span<const double>)>& take) const;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<std::size_t> outgoing_, incoming_;
};

// Copies pieces of blocks into blocks of another, or of the same, tree.
class Copies {
 public:
  // pieces: those of all ranks, in an order that is the same on all.
  Copies(MPI_Comm comm, const Octree& from, const Octree& to, const std::vector<Piece>& pieces);
  void run(const std::vector<double>& from, std::vector<double>& to) const;
  // Cells that change their rank.
  std::int64_t sent_cells() const { return sent_cells_; }

 private:
  Mail mail_;
  std::int64_t sent_cells_ = 0;
  int first_from_ = 0, first_to_ = 0;
  std::vector<Piece> local_;
  std::vector<std::vector<Piece>> out_, in_;  // by rank
};

// A face of a coarse block behind which the blocks are finer: which quarter of it lies at which fine block.
struct FinePatch {
  int coarse, fine;  // leaves
  int face;          // of the coarse block: 2 * axis + (1 for the upper)
  int quarter;       // bit 0: upper half of the first of the other two axes, bit 1: of the second
};

class Grid {
 public:
  Grid(Octree tree, MPI_Comm comm, std::array<Boundary, 6> boundaries);

  const Octree& tree() const { return tree_; }
  int first() const { return tree_.first(rank_); }
  int count() const { return tree_.first(rank_ + 1) - first(); }
  const Key& key(int block) const { return tree_.leaves()[first() + block]; }
  double* block(int block) { return values_.data() + static_cast<std::size_t>(block) * block_values; }
  const double* block(int block) const { return values_.data() + static_cast<std::size_t>(block) * block_values; }

  void fill_ghosts();
  // Takes another tree and the values of its cells from this one. Returns the number of blocks that changed their rank.
  std::int64_t adapt(Octree tree);
  // Another tree, without values.
  void reset(Octree tree);

  MPI_Comm comm() const { return comm_; }
  const std::vector<FinePatch>& fine_patches() const { return patches_; }  // of all ranks
  int rank() const { return rank_; }

 private:
  void plan();
  void fill_outside(int level);

  Octree tree_;
  MPI_Comm comm_;
  int rank_ = 0;
  std::array<Boundary, 6> boundaries_;
  std::vector<double> values_;
  std::vector<Copies> ghost_copies_;  // by level of the block that takes
  std::vector<FinePatch> patches_;
};

}  // namespace exploding_pipe
