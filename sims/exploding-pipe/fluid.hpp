// Two immiscible fluids with one velocity and one pressure: the five-equation model of G. Allaire, S. Clerc and S. Kokh (J. Comput.
// Phys. 181 (2002) 577) with stiffened gases, and its HLLC fluxes (E. Johnsen and T. Colonius, J. Comput. Phys. 219 (2006) 715).
// Units are the problem's; pure.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

namespace exploding_pipe {

// Conserved: mass1, mass2 (of each material in a unit of volume), momentum, energy, fraction (of the volume, material 1's).
// Primitive: the same with velocity for momentum and pressure for energy.
enum Component { mass1, mass2, along_x, along_y, along_z, energy, fraction, components };
constexpr int pressure = energy;
using State = std::array<double, components>;

// Pressure p = (gamma - 1) density internal_energy - gamma stiffness.
struct Material {
  double gamma, stiffness;
};

class Mixture {
 public:
  explicit Mixture(const std::array<Material, 2>& materials) {
    for (int m = 0; m < 2; ++m) {
      const auto [gamma, stiffness] = materials[static_cast<std::size_t>(m)];
      compression_[m] = 1 / (gamma - 1);
      cohesion_[m] = gamma * stiffness / (gamma - 1);
    }
  }
  // Internal energy in a unit of volume: compression * pressure + cohesion.
  double compression(double fraction) const { return fraction * compression_[0] + (1 - fraction) * compression_[1]; }
  double cohesion(double fraction) const { return fraction * cohesion_[0] + (1 - fraction) * cohesion_[1]; }

  double sound(const State& primitive) const {
    const double compress = compression(primitive[fraction]);
    const double stiff = (compress + 1) * primitive[pressure] + cohesion(primitive[fraction]);
    return std::sqrt(stiff / (compress * (primitive[mass1] + primitive[mass2])));
  }

  State conserved(const State& primitive) const {
    State out = primitive;
    const double density = primitive[mass1] + primitive[mass2];
    double kinetic = 0;
    for (int d = along_x; d <= along_z; ++d) {
      out[d] = density * primitive[d];
      kinetic += out[d] * primitive[d] / 2;
    }
    out[energy] = compression(primitive[fraction]) * primitive[pressure] + cohesion(primitive[fraction]) + kinetic;
    return out;
  }

  // Bounds what the scheme may leave out of range: fractions in [0, 1], masses at least 0, and a pressure at which sound has a speed.
  State primitive(const State& conserved) const {
    State out = conserved;
    out[fraction] = std::clamp(conserved[fraction], 0.0, 1.0);
    out[mass1] = std::max(conserved[mass1], 0.0);
    out[mass2] = std::max(conserved[mass2], 0.0);
    const double density = std::max(out[mass1] + out[mass2], least_density);
    double kinetic = 0;
    for (int d = along_x; d <= along_z; ++d) {
      out[d] = conserved[d] / density;
      kinetic += conserved[d] * out[d] / 2;
    }
    const double compress = compression(out[fraction]), cohere = cohesion(out[fraction]);
    const double least = least_pressure - 0.95 * cohere / (compress + 1);
    out[pressure] = std::max((conserved[energy] - kinetic - cohere) / compress, least);
    return out;
  }

  // The flux through a face whose normal is the axis, between two primitive states; face_speed: the fluid's speed there, with which
  // fraction is carried: d fraction / dt = -div(flux[fraction]) + fraction div(face_speed).
  State flux(const State& left, const State& right, int axis, double& face_speed) const;

  static constexpr double least_density = 1e-12, least_pressure = 1e-9;

 private:
  std::array<double, 2> compression_, cohesion_;
};

}  // namespace exploding_pipe
