#include "simulation.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

namespace gray_scott {
namespace {

// The finaliser of SplitMix64 (G. Steele et al., OOPSLA 2014): every bit of the result depends on every bit of x.
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

// Uniform in [-1, 1). `stream` tells runs and time steps apart, `cell` is the global index.
inline double uniform(std::uint64_t stream, std::uint64_t cell) {
  // 52 random bits as the fraction of a number in [1, 2): unlike a conversion from integer, every SIMD unit does it.
  const std::uint64_t bits = mix(stream + cell * golden) >> 12 | 0x3ff0000000000000u;
  return std::bit_cast<double>(bits) * 2.0 - 3.0;
}

struct Noise {
  std::uint64_t stream, first_cell;
};

// Computes the new values of a row of cells. u ... v_next point to its first cell, plane and line are the distances to
// neighbours in elements. The order of the additions is the reference's, and the target is compiled without contraction
// to fused multiply-adds. Not inlined: only as parameters do the pointers tell the compiler that rows do not overlap, and
// without that it does not vectorise.
template <bool noisy>
[[gnu::noinline]] void update_row(const double* __restrict u, const double* __restrict v, double* __restrict u_next,
                                  double* __restrict v_next, std::int64_t plane, std::int64_t line, std::int64_t length,
                                  const Settings& s, Noise noise) {
  const double Du = s.Du, Dv = s.Dv, F = s.F, kill = s.F + s.k, dt = s.dt, amplitude = s.noise, sixth = 1.0 / 6.0;
  for (std::int64_t i = 0; i < length; ++i) {
    const double lap_u = (u[i - plane] + u[i + plane] + u[i - line] + u[i + line] + u[i - 1] + u[i + 1]) * sixth - u[i];
    const double lap_v = (v[i - plane] + v[i + plane] + v[i - line] + v[i + line] + v[i - 1] + v[i + 1]) * sixth - v[i];
    const double reaction = u[i] * v[i] * v[i];
    double rate_u = Du * lap_u - reaction + F * (1.0 - u[i]);
    if constexpr (noisy) rate_u += amplitude * uniform(noise.stream, noise.first_cell + static_cast<std::uint64_t>(i));
    u_next[i] = u[i] + dt * rate_u;
    v_next[i] = v[i] + dt * (Dv * lap_v + reaction - kill * v[i]);
  }
}

}  // namespace

Simulation::Simulation(const Settings& settings, MPI_Comm comm) : settings_(settings) {
  int ranks = 0;
  MPI_Comm_size(comm, &ranks);
  std::array<int, 3> dims{}, coordinates{};
  const std::array<int, 3> periodic{1, 1, 1};
  MPI_Dims_create(ranks, 3, dims.data());
  for (std::size_t d = 0; d < 3; ++d)
    if (dims[d] > settings.shape[d])
      throw UsageError("the grid is too small: " + std::to_string(dims[d]) + " ranks in a dimension of " +
                       std::to_string(settings.shape[d]) + " cells");
  MPI_Cart_create(comm, 3, dims.data(), periodic.data(), 0, &cartesian_);
  int rank = 0;
  MPI_Comm_rank(cartesian_, &rank);
  MPI_Cart_coords(cartesian_, rank, 3, coordinates.data());
  for (std::size_t d = 0; d < 3; ++d) {
    // Balanced: counts differ by at most one, and any shape goes with any number of ranks.
    start_[d] = settings.shape[d] * coordinates[d] / dims[d];
    count_[d] = settings.shape[d] * (coordinates[d] + 1) / dims[d] - start_[d];
  }
  halo_ = std::make_unique<Halo>(cartesian_, count_);
  const auto cells = static_cast<std::size_t>((count_[0] + 2) * (count_[1] + 2) * (count_[2] + 2));
  u_.assign(cells, 1.0);
  v_.assign(cells, 0.0);
  u_next_ = u_;
  v_next_ = v_;
  seed_box();
}

Simulation::~Simulation() {
  halo_.reset();
  MPI_Comm_free(&cartesian_);
}

bool Simulation::set_rates(double F, double k) {
  if (settings_.F == F && settings_.k == k) return false;
  settings_.F = F;
  settings_.k = k;
  return true;
}

std::int64_t Simulation::offset(std::int64_t i, std::int64_t j, std::int64_t k) const {
  return (i * (count_[1] + 2) + j) * (count_[2] + 2) + k;
}

void Simulation::seed_box() {
  Index low, high;  // the part of the box that lies here, in ghosted indices
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t first = (settings_.shape[d] - settings_.box) / 2;
    low[d] = std::max(first, start_[d]) - start_[d] + 1;
    high[d] = std::min(first + settings_.box, start_[d] + count_[d]) - start_[d] + 1;
  }
  for (std::int64_t i = low[0]; i < high[0]; ++i)
    for (std::int64_t j = low[1]; j < high[1]; ++j)
      for (std::int64_t k = low[2]; k < high[2]; ++k) {
        u_[static_cast<std::size_t>(offset(i, j, k))] = 0.25;
        v_[static_cast<std::size_t>(offset(i, j, k))] = 0.33;
      }
}

void Simulation::update(const Index& low, const Index& high) {
  const Index& shape = settings_.shape;
  const std::int64_t plane = offset(1, 0, 0), line = offset(0, 1, 0), length = high[2] - low[2];
  const bool noisy = settings_.noise != 0.0;
  Noise noise{mix(static_cast<std::uint64_t>(settings_.seed) * golden + static_cast<std::uint64_t>(step_)), 0};
  for (std::int64_t i = low[0]; i < high[0]; ++i)
    for (std::int64_t j = low[1]; j < high[1]; ++j) {
      const std::int64_t x = start_[0] + i - 1, y = start_[1] + j - 1, z = start_[2] + low[2] - 1;
      noise.first_cell = static_cast<std::uint64_t>((x * shape[1] + y) * shape[2] + z);
      const std::int64_t first = offset(i, j, low[2]);
      const auto update_these = noisy ? update_row<true> : update_row<false>;
      update_these(u_.data() + first, v_.data() + first, u_next_.data() + first, v_next_.data() + first, plane, line,
                   length, settings_, noise);
    }
}

void Simulation::update_shell(Index low, Index high) {
  for (int dimension = 0; dimension < 3; ++dimension) {
    if (halo_->undivided(dimension)) continue;
    const auto d = static_cast<std::size_t>(dimension);
    // Grow the box that is done by one layer on both sides.
    for (const std::int64_t layer : {std::int64_t{1}, count_[d]}) {
      Index from = low, to = high;
      from[d] = layer;
      to[d] = layer + 1;
      update(from, to);
    }
    low[d] = 1;
    high[d] = count_[d] + 1;
  }
}

StateView Simulation::restart(std::int64_t step) {
  step_ = step;
  const auto first = static_cast<std::size_t>(offset(1, 1, 1));
  return {u_.data() + first, v_.data() + first, u().strides};
}

void Simulation::advance() {
  const std::array<double*, 2> fields{u_.data(), v_.data()};
  halo_->start(fields);
  // Cells that need none of the ghosts still travelling.
  Index low, high;
  for (int d = 0; d < 3; ++d) {
    const int margin = halo_->undivided(d) ? 0 : 1;
    low[static_cast<std::size_t>(d)] = 1 + margin;
    high[static_cast<std::size_t>(d)] = count_[static_cast<std::size_t>(d)] + 1 - margin;
  }
  update(low, high);
  const double begin = MPI_Wtime();
  halo_->finish();
  halo_s_ += MPI_Wtime() - begin;
  update_shell(low, high);
  u_.swap(u_next_);
  v_.swap(v_next_);
  ++step_;
}

FieldView Simulation::view(const std::vector<double>& field) const {
  const std::int64_t element = sizeof(double);
  return {field.data() + offset(1, 1, 1), {offset(1, 0, 0) * element, offset(0, 1, 0) * element, element}};
}

}  // namespace gray_scott
