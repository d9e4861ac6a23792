#include "grid.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace exploding_pipe {
namespace {

double limited(double before, double here, double after) {
  const double back = here - before, forth = after - here;
  if (back * forth <= 0) return 0;
  return std::abs(back) < std::abs(forth) ? back : forth;
}

std::size_t cells(const Piece& piece) {
  std::size_t number = 1;
  for (int d = 0; d < 3; ++d) number *= static_cast<std::size_t>(piece.high[d] - piece.low[d]);
  return number;
}

// Calls body(x, y, z) for each cell of the piece.
template <class Body>
void for_each_cell(const Piece& piece, Body body) {
  for (int z = piece.low[2]; z < piece.high[2]; ++z)
    for (int y = piece.low[1]; y < piece.high[1]; ++y)
      for (int x = piece.low[0]; x < piece.high[0]; ++x) body(x, y, z);
}

// The values of the piece from the cells of its block `from`, component by component.
double* sample(const Piece& piece, const double* from, double* out) {
  const int steps_up = piece.to_key.level - piece.from_key.level;
  constexpr std::array<int, 3> stride{1, extent, extent * extent};
  for (int c = 0; c < components; ++c, from += block_cells) {
    for_each_cell(piece, [&](int x, int y, int z) {
      const Index cell{x, y, z};
      Index at;  // in `from`
      for (int d = 0; d < 3; ++d) {
        const int global = piece.to_key.at[d] * cells_per_side + cell[d];
        at[d] = (steps_up == 0  ? global
                 : steps_up > 0 ? global >> 1
                                : global * 2) -
                piece.from_key.at[d] * cells_per_side;
      }
      const double* here = from + place(at[0], at[1], at[2]);
      double value = *here;
      if (steps_up > 0) {
        for (int d = 0; d < 3; ++d) {
          const double slope = limited(here[-stride[d]], *here, here[stride[d]]);
          value += (cell[d] & 1) != 0 ? slope / 4 : -slope / 4;
        }
      } else if (steps_up < 0) {
        value = 0;
        for (int k = 0; k < 2; ++k)
          for (int j = 0; j < 2; ++j)
            for (int i = 0; i < 2; ++i) value += here[i * stride[0] + j * stride[1] + k * stride[2]];
        value /= 8;
      }
      *out++ = value;
    });
  }
  return out;
}

const double* set(const Piece& piece, const double* values, double* to) {
  for (int c = 0; c < components; ++c, to += block_cells)
    for_each_cell(piece, [&](int x, int y, int z) { to[place(x, y, z)] = *values++; });
  return values;
}

// The octant of a neighbour's children that touches the block, in this direction; where the direction is 0, `half` decides.
bool child_touches(const Index& direction, int octant) {
  for (int d = 0; d < 3; ++d) {
    const int upper = octant >> d & 1;
    if (direction[d] != 0 && upper == (direction[d] > 0 ? 1 : 0)) return false;
  }
  return true;
}

// The pieces that make the ghost cells of a leaf.
void add_ghost_pieces(const Octree& tree, int leaf, std::vector<Piece>& pieces) {
  const Key& key = tree.leaves()[leaf];
  for (const Index& direction : directions()) {
    const Key beside = key.shifted(direction);
    if (!tree.inside(beside)) continue;
    Piece piece{leaf, tree.find(beside), key, beside, {}, {}};
    for (int d = 0; d < 3; ++d) {
      piece.low[d] = direction[d] < 0 ? -ghosts : direction[d] > 0 ? cells_per_side : 0;
      piece.high[d] = direction[d] < 0 ? 0 : direction[d] > 0 ? cells_per_side + ghosts : cells_per_side;
    }
    if (piece.from < 0 && key.level > 0) {
      piece.from_key = beside.parent();
      piece.from = tree.find(piece.from_key);
    }
    if (piece.from >= 0) {
      pieces.push_back(piece);
      continue;
    }
    for (int octant = 0; octant < 8; ++octant) {
      if (!child_touches(direction, octant)) continue;
      Piece part = piece;
      part.from_key = beside.child(octant);
      part.from = tree.find(part.from_key);
      for (int d = 0; d < 3; ++d) {
        if (direction[d] != 0) continue;
        part.low[d] = (octant >> d & 1) * cells_per_side / 2;
        part.high[d] = part.low[d] + cells_per_side / 2;
      }
      pieces.push_back(part);
    }
  }
}

void add_fine_patches(const Octree& tree, int leaf, std::vector<FinePatch>& patches) {
  const Key& key = tree.leaves()[leaf];
  for (int face = 0; face < 6; ++face) {
    Index direction{};
    direction[face / 2] = face % 2 == 0 ? -1 : 1;
    const Key beside = key.shifted(direction);
    if (!tree.inside(beside) || tree.find(beside) >= 0) continue;
    if (key.level > 0 && tree.find(beside.parent()) >= 0) continue;
    for (int octant = 0; octant < 8; ++octant) {
      if (!child_touches(direction, octant)) continue;
      const int first = face / 2 == 0 ? 1 : 0, second = face / 2 == 2 ? 1 : 2;
      patches.push_back(
          {leaf, tree.find(beside.child(octant)), face, (octant >> first & 1) | (octant >> second & 1) << 1});
    }
  }
}

// The pieces that make a new tree's cells from those of the tree before it.
std::vector<Piece> pieces_of_change(const Octree& before, const Octree& after) {
  std::vector<Piece> pieces;
  for (int leaf = 0; leaf < after.size(); ++leaf) {
    const Key& key = after.leaves()[leaf];
    Piece whole{leaf, before.find(key), key, key, {0, 0, 0}, {cells_per_side, cells_per_side, cells_per_side}};
    if (whole.from < 0 && key.level > 0) {
      whole.from_key = key.parent();
      whole.from = before.find(whole.from_key);
    }
    if (whole.from >= 0) {
      pieces.push_back(whole);
      continue;
    }
    for (int octant = 0; octant < 8; ++octant) {
      Piece part = whole;
      part.from_key = key.child(octant);
      part.from = before.find(part.from_key);
      for (int d = 0; d < 3; ++d) {
        part.low[d] = (octant >> d & 1) * cells_per_side / 2;
        part.high[d] = part.low[d] + cells_per_side / 2;
      }
      pieces.push_back(part);
    }
  }
  return pieces;
}

}  // namespace

// --------------------------------------------------------------------------------------------------------------- mail

Mail::Mail(MPI_Comm comm, std::vector<std::size_t> outgoing, std::vector<std::size_t> incoming)
    : comm_(comm), outgoing_(std::move(outgoing)), incoming_(std::move(incoming)) {}

void Mail::deliver(const std::function<void(int, std::span<double>)>& fill,
                   const std::function<void(int, std::span<const double>)>& take) const {
  const int ranks = static_cast<int>(outgoing_.size());
  std::vector<std::vector<double>> in(incoming_.size()), out(outgoing_.size());
  std::vector<MPI_Request> requests;
  for (int rank = 0; rank < ranks; ++rank) {
    if (incoming_[rank] == 0) continue;
    in[rank].resize(incoming_[rank]);
    MPI_Irecv(in[rank].data(), static_cast<int>(in[rank].size()), MPI_DOUBLE, rank, 0, comm_, &requests.emplace_back());
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (outgoing_[rank] == 0) continue;
    out[rank].resize(outgoing_[rank]);
    fill(rank, out[rank]);
    MPI_Isend(out[rank].data(), static_cast<int>(out[rank].size()), MPI_DOUBLE, rank, 0, comm_,
              &requests.emplace_back());
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  for (int rank = 0; rank < ranks; ++rank)
    if (incoming_[rank] != 0) take(rank, in[rank]);
}

// ------------------------------------------------------------------------------------------------------------- copies

Copies::Copies(MPI_Comm comm, const Octree& from, const Octree& to, const std::vector<Piece>& pieces) {
  int me = 0;
  MPI_Comm_rank(comm, &me);
  const auto ranks = static_cast<std::size_t>(to.ranks());
  first_from_ = from.first(me);
  first_to_ = to.first(me);
  out_.resize(ranks);
  in_.resize(ranks);
  std::vector<std::size_t> outgoing(ranks), incoming(ranks);
  for (const Piece& piece : pieces) {
    const int source = from.owner(piece.from), target = to.owner(piece.to);
    if (source != me && target != me) continue;
    if (source == target) {
      local_.push_back(piece);
    } else if (source == me) {
      out_[target].push_back(piece);
      outgoing[target] += components * cells(piece);
      sent_cells_ += static_cast<std::int64_t>(cells(piece));
    } else {
      in_[source].push_back(piece);
      incoming[source] += components * cells(piece);
    }
  }
  mail_ = Mail(comm, std::move(outgoing), std::move(incoming));
}

void Copies::run(const std::vector<double>& from, std::vector<double>& to) const {
  const auto source = [&](const Piece& piece) {
    return from.data() + static_cast<std::size_t>(piece.from - first_from_) * block_values;
  };
  const auto target = [&](const Piece& piece) {
    return to.data() + static_cast<std::size_t>(piece.to - first_to_) * block_values;
  };
  mail_.deliver(
      [&](int rank, std::span<double> values) {
        double* next = values.data();
        for (const Piece& piece : out_[rank]) next = sample(piece, source(piece), next);
      },
      [&](int rank, std::span<const double> values) {
        const double* next = values.data();
        for (const Piece& piece : in_[rank]) next = set(piece, next, target(piece));
      });
  std::vector<double> values;
  for (const Piece& piece : local_) {
    values.resize(components * cells(piece));
    sample(piece, source(piece), values.data());
    set(piece, values.data(), target(piece));
  }
}

// --------------------------------------------------------------------------------------------------------------- grid

Grid::Grid(Octree tree, MPI_Comm comm, std::array<Boundary, 6> boundaries)
    : tree_(std::move(tree)), comm_(comm), boundaries_(boundaries) {
  MPI_Comm_rank(comm, &rank_);
  reset(tree_);
}

void Grid::reset(Octree tree) {
  tree_ = std::move(tree);
  values_.assign(static_cast<std::size_t>(count()) * block_values, 0);
  plan();
}

void Grid::plan() {
  std::vector<std::vector<Piece>> pieces(static_cast<std::size_t>(tree_.max_level()) + 1);
  patches_.clear();
  for (int leaf = 0; leaf < tree_.size(); ++leaf) {
    add_ghost_pieces(tree_, leaf, pieces[tree_.leaves()[leaf].level]);
    add_fine_patches(tree_, leaf, patches_);
  }
  ghost_copies_.clear();
  for (const auto& of_level : pieces) ghost_copies_.emplace_back(comm_, tree_, tree_, of_level);
}

void Grid::fill_ghosts() {
  // Coarse blocks first: interpolation between their cells uses their ghost cells.
  for (int level = 0; level <= tree_.max_level(); ++level) {
    ghost_copies_[level].run(values_, values_);
    fill_outside(level);
  }
}

void Grid::fill_outside(int level) {
  for (int b = 0; b < count(); ++b) {
    if (key(b).level != level) continue;
    for (int face = 0; face < 6; ++face) {
      const int axis = face / 2;
      const bool upper = face % 2 != 0;
      Index direction{};
      direction[axis] = upper ? 1 : -1;
      if (tree_.inside(key(b).shifted(direction))) continue;
      const bool mirror = boundaries_[face] == Boundary::mirror;
      Piece layers{0, 0, {}, {}, {-ghosts, -ghosts, -ghosts}, {extent - ghosts, extent - ghosts, extent - ghosts}};
      layers.low[axis] = upper ? cells_per_side : -ghosts;
      layers.high[axis] = upper ? extent - ghosts : 0;
      for (int c = 0; c < components; ++c) {
        double* values = block(b) + c * block_cells;
        const double sign = mirror && c == along_x + axis ? -1 : 1;
        for_each_cell(layers, [&](int x, int y, int z) {
          Index from{x, y, z};
          const int edge = upper ? cells_per_side - 1 : 0;
          from[axis] = mirror ? 2 * edge - from[axis] + (upper ? 1 : -1) : edge;
          values[place(x, y, z)] = sign * values[place(from[0], from[1], from[2])];
        });
      }
    }
  }
}

std::int64_t Grid::adapt(Octree tree) {
  std::int64_t moved = 0;
  const Octree before = std::exchange(tree_, std::move(tree));
  const Copies copies(comm_, before, tree_, pieces_of_change(before, tree_));
  const std::vector<double> old =
      std::exchange(values_, std::vector<double>(static_cast<std::size_t>(count()) * block_values));
  copies.run(old, values_);
  plan();
  const std::int64_t sent = copies.sent_cells();
  MPI_Allreduce(&sent, &moved, 1, MPI_INT64_T, MPI_SUM, comm_);
  return moved / inner_cells;
}

}  // namespace exploding_pipe
