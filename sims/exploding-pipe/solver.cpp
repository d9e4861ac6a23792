#include "solver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace exploding_pipe {
namespace {

constexpr int side = cells_per_side;
constexpr int face_cells = side * side;
constexpr int face_components = components + 1;  // with the speed
constexpr std::size_t face_values = std::size_t{face_components} * face_cells;
constexpr std::size_t rate_values = std::size_t{components} * inner_cells;
constexpr std::array<int, 3> stride{1, extent, extent* extent};
constexpr double sharpness =
    2.3;  // of the hyperbolic tangent, along its normal (F. Xiao, S. Ii and C. Chen, J. Comput. Phys. 230 (2011) 7086)
constexpr double pure = 1e-4;  // a cell whose fraction differs less from 0 or 1 is of one material

constexpr int inner(int x, int y, int z) { return (z * side + y) * side + x; }

// Where (first, second), the coordinates along the other two axes, are on a face.
constexpr int on_face(int first, int second) { return second * side + first; }

double van_leer(double before, double here, double after) {
  const double back = here - before, forth = after - here;
  return back * forth > 0 ? 2 * back * forth / (back + forth) : 0;
}

// The primitive values of a block, component by component, as the block has its conserved ones.
using Primitives = std::array<std::array<double, block_cells>, components>;

void make_primitive(const Mixture& mixture, const double* block, Primitives& out) {
  for (int i = 0; i < block_cells; ++i) {
    State state;
    for (int c = 0; c < components; ++c) state[c] = block[c * block_cells + i];
    state = mixture.primitive(state);
    for (int c = 0; c < components; ++c) out[c][i] = state[c];
  }
}

// How much of the fraction's gradient is along the axis: 0 to 1.
double along_axis(const std::array<double, block_cells>& fractions, int cell, int axis) {
  double squares = 0, mine = 0;
  for (int d = 0; d < 3; ++d) {
    const double difference = fractions[cell + stride[d]] - fractions[cell - stride[d]];
    squares += difference * difference;
    if (d == axis) mine = std::abs(difference);
  }
  return squares > 0 ? mine / std::sqrt(squares) : 0;
}

// The states at a cell's lower and upper face along an axis.
struct Edges {
  State lower, upper;
};

// The fraction at the lower and the upper face of a cell that the boundary between the materials crosses.
std::pair<double, double> sharp_edges(double before, double here, double after, double steepness) {
  const double least = std::min(before, after), range = std::abs(after - before), sign = after > before ? 1 : -1;
  const double share = (here - least) / range;
  const double tangent = std::tanh(steepness);
  const double shift = (std::exp(sign * steepness * (2 * share - 1)) / std::cosh(steepness) - 1) / tangent;
  const double upper = least + range / 2 * (1 + sign * (tangent + shift) / (1 + shift * tangent));
  const double lower = least + range / 2 * (1 + sign * shift);
  return {lower, upper};
}

Edges edges_of(const Primitives& values, int cell, int axis) {
  Edges edges;
  const int next = stride[axis];
  for (int c = 0; c < components; ++c) {
    const double here = values[c][cell], half = van_leer(values[c][cell - next], here, values[c][cell + next]) / 2;
    edges.lower[c] = here - half;
    edges.upper[c] = here + half;
  }
  const double before = values[fraction][cell - next], here = values[fraction][cell],
               after = values[fraction][cell + next];
  if (here < pure || here > 1 - pure || (after - here) * (here - before) <= 0) return edges;
  const double steepness = sharpness * along_axis(values[fraction], cell, axis) + 0.01;
  const auto [lower, upper] = sharp_edges(before, here, after, steepness);
  for (auto [edge, at] : {std::pair(&edges.lower, lower), std::pair(&edges.upper, upper)}) {
    (*edge)[fraction] = std::clamp(at, 0.0, 1.0);
    (*edge)[mass1] = values[mass1][cell] / here * (*edge)[fraction];
    (*edge)[mass2] = values[mass2][cell] / (1 - here) * (1 - (*edge)[fraction]);
  }
  return edges;
}

// Adds what flows along one axis to the rates, and keeps the fluxes through the block's two faces.
void add_fluxes(const Mixture& mixture, const Primitives& values, int axis, double width, double* rates,
                double* faces) {
  const int first = axis == 0 ? 1 : 0, second = axis == 2 ? 1 : 2;
  for (int b = 0; b < side; ++b) {
    for (int a = 0; a < side; ++a) {
      Index at{};
      at[first] = a;
      at[second] = b;
      at[axis] = -1;
      const int begin = place(at[0], at[1], at[2]);
      State before = edges_of(values, begin, axis).upper;
      for (int i = 0; i <= side; ++i) {
        const Edges here = edges_of(values, begin + (i + 1) * stride[axis], axis);
        double speed = 0;
        const State flux = mixture.flux(before, here.lower, axis, speed);
        before = here.upper;
        for (const int step : {-1, 0}) {  // the cell that the flux leaves, and the one that it enters
          at[axis] = i + step;
          if (at[axis] < 0 || at[axis] == side) continue;
          const double factor = (step < 0 ? -1 : 1) / width;
          double* rate = rates + inner(at[0], at[1], at[2]);
          for (int c = 0; c < components; ++c) rate[c * inner_cells] += factor * flux[c];
          rate[fraction * inner_cells] -= factor * speed * values[fraction][place(at[0], at[1], at[2])];
        }
        if (i != 0 && i != side) continue;
        double* face = faces + static_cast<std::size_t>(2 * axis + (i == 0 ? 0 : 1)) * face_values + on_face(a, b);
        for (int c = 0; c < components; ++c) face[c * face_cells] = flux[c];
        face[components * face_cells] = speed;
      }
    }
  }
}

// Means of four: the fluxes of a fine block's face as its coarse neighbour has cells.
void coarsened(const double* face, double* out) {
  for (int c = 0; c < face_components; ++c)
    for (int b = 0; b < side; b += 2)
      for (int a = 0; a < side; a += 2) {
        const double* fluxes = face + c * face_cells;
        *out++ = (fluxes[on_face(a, b)] + fluxes[on_face(a + 1, b)] + fluxes[on_face(a, b + 1)] +
                  fluxes[on_face(a + 1, b + 1)]) /
                 4;
      }
}

constexpr std::size_t patch_values = face_values / 4;

}  // namespace

double Solver::stable_step(const Grid& grid) const {
  double largest = 0;  // of the sum over the axes of wave speed over width, times which a step of 1 is at the limit
  for (int b = 0; b < grid.count(); ++b) {
    const double* block = grid.block(b);
    const double width = width_ / (1 << grid.key(b).level);
    for (int z = 0; z < side; ++z)
      for (int y = 0; y < side; ++y)
        for (int x = 0; x < side; ++x) {
          State state;
          for (int c = 0; c < components; ++c) state[c] = block[c * block_cells + place(x, y, z)];
          state = mixture_.primitive(state);
          const double sound = mixture_.sound(state);
          double speed = 3 * sound;
          for (int d = along_x; d <= along_z; ++d) speed += std::abs(state[d]);
          largest = std::max(largest, speed / width);
        }
  }
  MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_DOUBLE, MPI_MAX, grid.comm());
  return courant_ / largest;
}

void Solver::make_rates(Grid& grid) {
  grid.fill_ghosts();
  rates_.assign(static_cast<std::size_t>(grid.count()) * rate_values, 0);
  face_fluxes_.resize(static_cast<std::size_t>(grid.count()) * 6 * face_values);
  Primitives values;
  for (int b = 0; b < grid.count(); ++b) {
    make_primitive(mixture_, grid.block(b), values);
    const double width = width_ / (1 << grid.key(b).level);
    const auto block = static_cast<std::size_t>(b);
    for (int axis = 0; axis < 3; ++axis)
      add_fluxes(mixture_, values, axis, width, rates_.data() + block * rate_values,
                 face_fluxes_.data() + block * 6 * face_values);
  }
  correct_coarse(grid);
}

void Solver::correct_coarse(const Grid& grid) {
  const Octree& tree = grid.tree();
  const auto ranks = static_cast<std::size_t>(tree.ranks());
  const int me = grid.rank();
  std::vector<std::vector<FinePatch>> out(ranks), in(ranks);
  std::vector<std::size_t> outgoing(ranks), incoming(ranks);
  for (const FinePatch& patch : grid.fine_patches()) {
    const int from = tree.owner(patch.fine), to = tree.owner(patch.coarse);
    if (from == me) {
      out[to].push_back(patch);
      if (to != me) outgoing[to] += patch_values;
    }
    if (to == me) {
      in[from].push_back(patch);
      if (from != me) incoming[from] += patch_values;
    }
  }
  const auto read = [&](const FinePatch& patch, double* values) {
    const std::size_t face = static_cast<std::size_t>(patch.fine - grid.first()) * 6 + (patch.face ^ 1);
    coarsened(face_fluxes_.data() + face * face_values, values);
  };
  const auto correct = [&](const FinePatch& patch, const double* fine) {
    const auto b = static_cast<std::size_t>(patch.coarse - grid.first());
    const double* coarse = face_fluxes_.data() + (b * 6 + patch.face) * face_values;
    const int axis = patch.face / 2, first = axis == 0 ? 1 : 0, second = axis == 2 ? 1 : 2;
    const bool upper = patch.face % 2 != 0;
    const double factor = (upper ? -1 : 1) * (1 << grid.key(static_cast<int>(b)).level) / width_;
    constexpr int quarter_side = side / 2, quarter_cells = quarter_side * quarter_side;
    for (int j = 0; j < quarter_side; ++j)
      for (int i = 0; i < quarter_side; ++i) {
        Index at{};
        at[first] = i + (patch.quarter & 1) * quarter_side;
        at[second] = j + (patch.quarter >> 1) * quarter_side;
        at[axis] = upper ? side - 1 : 0;
        const int flux = on_face(at[first], at[second]), mean = j * quarter_side + i;
        double* rate = rates_.data() + b * rate_values + inner(at[0], at[1], at[2]);
        for (int c = 0; c < components; ++c)
          rate[c * inner_cells] += factor * (fine[c * quarter_cells + mean] - coarse[c * face_cells + flux]);
        const double speed = fine[components * quarter_cells + mean] - coarse[components * face_cells + flux];
        const double here =
            std::clamp(grid.block(static_cast<int>(b))[fraction * block_cells + place(at[0], at[1], at[2])], 0.0, 1.0);
        rate[fraction * inner_cells] -= factor * speed * here;
      }
  };
  const Mail mail(grid.comm(), outgoing, incoming);
  mail.deliver(
      [&](int rank, std::span<double> values) {
        for (std::size_t i = 0; i < out[rank].size(); ++i) read(out[rank][i], values.data() + i * patch_values);
      },
      [&](int rank, std::span<const double> values) {
        for (std::size_t i = 0; i < in[rank].size(); ++i) correct(in[rank][i], values.data() + i * patch_values);
      });
  std::vector<double> values(patch_values);
  for (const FinePatch& patch : in[me]) {
    read(patch, values.data());
    correct(patch, values.data());
  }
}

void Solver::advance(Grid& grid, double dt) {
  const auto add = [&](auto&& combine) {
    for (int b = 0; b < grid.count(); ++b) {
      double* block = grid.block(b);
      const double* rates = rates_.data() + static_cast<std::size_t>(b) * rate_values;
      for (int c = 0; c < components; ++c)
        for (int z = 0; z < side; ++z)
          for (int y = 0; y < side; ++y)
            for (int x = 0; x < side; ++x) {
              double& value = block[c * block_cells + place(x, y, z)];
              const std::size_t at = static_cast<std::size_t>(c) * inner_cells + inner(x, y, z);
              value = combine(static_cast<std::size_t>(b) * rate_values + at, value, rates[at]);
            }
    }
  };
  // Heun: half of the values before the step and half of those after two whole ones.
  std::vector<double> before(static_cast<std::size_t>(grid.count()) * rate_values);
  make_rates(grid);
  add([&](std::size_t at, double value, double rate) {
    before[at] = value;
    return value + dt * rate;
  });
  make_rates(grid);
  add([&](std::size_t at, double value, double rate) { return (before[at] + value + dt * rate) / 2; });
}

}  // namespace exploding_pipe
