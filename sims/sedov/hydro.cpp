#include "hydro.hpp"

#include <algorithm>
#include <cmath>

#include "usage_error.hpp"

namespace sedov {
namespace {

constexpr double gamma_gas = 1.4;
constexpr double size = 1.2;               // of the octant
constexpr double blast_energy = 0.851072;  // of the whole
constexpr double cold = 1e-6;              // internal energy before the shock
constexpr double linear_viscosity = 0.1, quadratic_viscosity = 0.67, hourglass = 0.05, courant = 0.25;

constexpr int faces[6][4] = {{0, 1, 5, 4}, {1, 2, 6, 5}, {2, 3, 7, 6}, {3, 0, 4, 7}, {0, 3, 2, 1}, {4, 5, 6, 7}};
// The motions of a hexahedron's nodes that change neither its volume nor its shape to first order.
constexpr double modes[4][8] = {{1, 1, -1, -1, -1, -1, 1, 1},
                                {1, -1, -1, 1, -1, 1, 1, -1},
                                {1, -1, 1, -1, 1, -1, 1, -1},
                                {-1, 1, -1, 1, 1, -1, 1, -1}};

Vector operator+(const Vector& a, const Vector& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
Vector operator-(const Vector& a, const Vector& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vector operator*(double s, const Vector& a) { return {s * a[0], s * a[1], s * a[2]}; }
double dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
Vector cross(const Vector& a, const Vector& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

struct Shape {
  double volume = 0;
  double greatest_face = 0;
  std::array<Vector, 8> areas{};  // of each corner: how the volume grows as the node moves
};

Shape shape_of(const std::array<Vector, 8>& x) {
  Shape shape;
  for (const auto& face : faces) {
    const auto area = 0.5 * cross(x[face[2]] - x[face[0]], x[face[3]] - x[face[1]]);
    const auto middle = 0.25 * (x[face[0]] + x[face[1]] + x[face[2]] + x[face[3]]);
    shape.greatest_face = std::max(shape.greatest_face, std::sqrt(dot(area, area)));
    for (int i = 0; i < 4; ++i) {
      shape.areas[face[i]] = shape.areas[face[i]] + 0.25 * area;
      shape.volume += dot(middle, cross(x[face[i]], x[face[(i + 1) % 4]])) / 6;
    }
  }
  return shape;
}

std::array<Vector, 8> gather(const std::vector<Vector>& values, const std::array<int, 8>& corners) {
  std::array<Vector, 8> out;
  for (int i = 0; i < 8; ++i) out[i] = values[corners[i]];
  return out;
}

double sum(double value, MPI_Comm comm) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, comm);
  return value;
}

}  // namespace

Blast::Blast(int n, MPI_Comm comm) : comm_(comm), n_(n) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &ranks_);
  if (n < 2 || ranks_ > n)
    throw simulation::UsageError("at least 2 elements along an edge, and one layer for each rank");
  first_ = n * rank_ / ranks_;
  layers_ = n * (rank_ + 1) / ranks_ - first_;
  const double h = size / n;
  for (int z = first_; z <= first_ + layers_; ++z)
    for (int y = 0; y <= n; ++y)
      for (int x = 0; x <= n; ++x) start_.push_back({x * h, y * h, z * h});
  const int row = n + 1, layer = row * row;
  for (int z = 0; z < layers_; ++z)
    for (int y = 0; y < n; ++y)
      for (int x = 0; x < n; ++x) {
        const int at = z * layer + y * row + x;
        corners_.push_back(
            {at, at + 1, at + 1 + row, at + row, at + layer, at + layer + 1, at + layer + 1 + row, at + layer + row});
      }
  position_ = start_;
  velocity_.assign(start_.size(), {});
  force_ = velocity_;
  corner_force_.resize(corners_.size());
  mass_.assign(corners_.size(), h * h * h);
  energy_.assign(corners_.size(), cold);
  for (auto* values : {&volume_, &density_, &pressure_, &length_, &viscosity_, &sound_})
    values->assign(corners_.size(), 0);
  if (first_ == 0) energy_[0] = blast_energy / 8 / mass_[0];
  node_mass_.assign(start_.size(), 0);
  for (std::size_t e = 0; e < corners_.size(); ++e)
    for (const int node : corners_[e]) node_mass_[node] += mass_[e] / 8;
  add_over_ranks(node_mass_);
  update_elements();
}

// Layers of nodes that two ranks have get the sum of both.
void Blast::add_over_ranks(std::vector<double>& values) {
  const std::size_t layer = static_cast<std::size_t>(n_ + 1) * (n_ + 1);
  const auto count = static_cast<int>(layer);
  std::vector<double> below(layer), above(layer);
  const int down = rank_ > 0 ? rank_ - 1 : MPI_PROC_NULL, up = rank_ + 1 < ranks_ ? rank_ + 1 : MPI_PROC_NULL;
  auto* top = values.data() + values.size() - layer;
  MPI_Sendrecv(top, count, MPI_DOUBLE, up, 0, below.data(), count, MPI_DOUBLE, down, 0, comm_, MPI_STATUS_IGNORE);
  MPI_Sendrecv(values.data(), count, MPI_DOUBLE, down, 1, above.data(), count, MPI_DOUBLE, up, 1, comm_,
               MPI_STATUS_IGNORE);
  for (std::size_t i = 0; i < layer; ++i) {
    if (down != MPI_PROC_NULL) values[i] += below[i];
    if (up != MPI_PROC_NULL) top[i] += above[i];
  }
}

void Blast::add_over_ranks(std::vector<Vector>& values) {
  std::vector<double> component(values.size());
  for (int d = 0; d < 3; ++d) {
    for (std::size_t i = 0; i < values.size(); ++i) component[i] = values[i][d];
    add_over_ranks(component);
    for (std::size_t i = 0; i < values.size(); ++i) values[i][d] = component[i];
  }
}

void Blast::update_elements() {
  for (std::size_t e = 0; e < corners_.size(); ++e) {
    const auto shape = shape_of(gather(position_, corners_[e]));
    const auto v = gather(velocity_, corners_[e]);
    volume_[e] = shape.volume;
    length_[e] = shape.volume / shape.greatest_face;
    density_[e] = mass_[e] / shape.volume;
    pressure_[e] = std::max(0.0, (gamma_gas - 1) * density_[e] * energy_[e]);
    sound_[e] = std::sqrt(gamma_gas * (pressure_[e] / density_[e] + (gamma_gas - 1) * cold));
    double growth = 0;
    for (int i = 0; i < 8; ++i) growth += dot(shape.areas[i], v[i]);
    const double closing = -growth / shape.volume * length_[e];  // the speed at which faces approach each other
    viscosity_[e] =
        closing <= 0 ? 0 : density_[e] * closing * (quadratic_viscosity * closing + linear_viscosity * sound_[e]);
  }
}

void Blast::make_forces() {
  std::fill(force_.begin(), force_.end(), Vector{});
  for (std::size_t e = 0; e < corners_.size(); ++e) {
    const auto x = gather(position_, corners_[e]);
    const auto v = gather(velocity_, corners_[e]);
    const auto shape = shape_of(x);
    auto& force = corner_force_[e];
    for (int i = 0; i < 8; ++i) force[i] = (pressure_[e] + viscosity_[e]) * shape.areas[i];
    const double damping = hourglass * density_[e] * sound_[e] * std::cbrt(volume_[e] * volume_[e]);
    for (const auto& mode : modes) {
      Vector along{}, speed{};
      for (int i = 0; i < 8; ++i) along = along + mode[i] * x[i];
      double gammas[8];
      for (int i = 0; i < 8; ++i) {
        gammas[i] = mode[i] - dot(shape.areas[i], along) / shape.volume;
        speed = speed + gammas[i] * v[i];
      }
      for (int i = 0; i < 8; ++i) force[i] = force[i] - damping * gammas[i] * speed;
    }
    for (int i = 0; i < 8; ++i) force_[corners_[e][i]] = force_[corners_[e][i]] + force[i];
  }
  add_over_ranks(force_);
}

double Blast::stable_step() const {
  double dt = 1e30;
  for (std::size_t e = 0; e < corners_.size(); ++e) {
    const double stiff = sound_[e] + 4 * std::sqrt(viscosity_[e] / density_[e]);
    dt = std::min(dt, courant * length_[e] / stiff);
  }
  MPI_Allreduce(MPI_IN_PLACE, &dt, 1, MPI_DOUBLE, MPI_MIN, comm_);
  return dt_ > 0 ? std::min(dt, 1.1 * dt_) : 0.1 * dt;
}

void Blast::step(double dt) {
  make_forces();
  for (std::size_t i = 0; i < position_.size(); ++i) {
    const auto before = velocity_[i];
    auto after = before + (dt / node_mass_[i]) * force_[i];
    for (int d = 0; d < 3; ++d)
      if (start_[i][d] == 0) after[d] = 0;  // planes of symmetry
    velocity_[i] = after;
    force_[i] = 0.5 * (before + after);  // from here on the mean velocity of the step
    position_[i] = position_[i] + dt * force_[i];
  }
  // What corner forces give to nodes they take from the element, to the last bit of the sum.
  for (std::size_t e = 0; e < corners_.size(); ++e) {
    double work = 0;
    for (int i = 0; i < 8; ++i) work += dot(corner_force_[e][i], force_[corners_[e][i]]);
    energy_[e] -= dt * work / mass_[e];
  }
  update_elements();
  time_ += dt;
  dt_ = dt;
  ++steps_;
}

void Blast::advance(double time) {
  while (time_ < time) {
    const double dt = stable_step();
    const double left = time - time_;
    step(dt >= left ? left : std::min(dt, left / 2));  // no tiny last step
    if (dt >= left) time_ = time;
  }
}

double Blast::total_energy() const {
  double energy = 0;
  for (std::size_t e = 0; e < energy_.size(); ++e) energy += mass_[e] * energy_[e];
  const std::size_t shared = static_cast<std::size_t>(n_ + 1) * (n_ + 1);
  for (std::size_t i = rank_ > 0 ? shared : 0; i < velocity_.size(); ++i)
    energy += 0.5 * node_mass_[i] * dot(velocity_[i], velocity_[i]);
  return sum(energy, comm_);
}

double Blast::shock_radius() const {
  const int bins = 4 * n_;
  const double width = 0.5 * size / n_;
  std::vector<double> density(bins, 0), count(bins, 0);
  for (std::size_t e = 0; e < corners_.size(); ++e) {
    Vector middle{};
    for (const int node : corners_[e]) middle = middle + 0.125 * position_[node];
    const int bin = static_cast<int>(std::sqrt(dot(middle, middle)) / width);
    if (bin >= bins) continue;
    density[bin] += density_[e];
    count[bin] += 1;
  }
  MPI_Allreduce(MPI_IN_PLACE, density.data(), bins, MPI_DOUBLE, MPI_SUM, comm_);
  MPI_Allreduce(MPI_IN_PLACE, count.data(), bins, MPI_DOUBLE, MPI_SUM, comm_);
  for (int bin = 0; bin < bins; ++bin) density[bin] /= std::max(1.0, count[bin]);
  const auto peak = static_cast<int>(std::max_element(density.begin(), density.end()) - density.begin());
  if (peak == 0 || peak + 1 == bins) return (peak + 0.5) * width;
  // The top of the parabola through the shell and its neighbours.
  const double left = density[peak - 1], middle = density[peak], right = density[peak + 1];
  return (peak + 0.5 + 0.5 * (left - right) / (left - 2 * middle + right)) * width;
}

double Blast::exact_shock_radius(double time) { return std::pow(time, 0.4); }

}  // namespace sedov
