// The blast as mesh regions: the volume, and the surface in a plane of symmetry that goes through the explosion.
#pragma once

#include <memory>
#include <vector>

#include "hydro.hpp"
#include "penstock/mesh_database.hpp"

namespace sedov {

// Hexahedra, with displacements and velocities of nodes, and density, pressure and energy of elements; the total energy and the
// shock's radius; node sets of the planes of symmetry, the side set of the outer boundary.
class VolumeRegion {
 public:
  VolumeRegion(const Blast& blast, int rank, int ranks, std::unique_ptr<penstock::mesh::Sink> sink);
  void write(const Blast& blast, double total_energy, double shock_radius);
  void close() { sink_->close(); }

 private:
  std::unique_ptr<penstock::mesh::Sink> sink_;
  penstock::mesh::Model model_;
};

// The faces in the plane y = 0, with the pressure and density behind them.
class SurfaceRegion {
 public:
  SurfaceRegion(const Blast& blast, int rank, int ranks, std::unique_ptr<penstock::mesh::Sink> sink);
  void write(const Blast& blast);
  void close() { sink_->close(); }

 private:
  std::unique_ptr<penstock::mesh::Sink> sink_;
  penstock::mesh::Model model_;
  std::vector<std::size_t> nodes_, elements_;  // of the blast
};

}  // namespace sedov
