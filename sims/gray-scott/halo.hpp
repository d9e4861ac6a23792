// Exchange of the ghost layers of a block of a periodic Cartesian grid with its six neighbours.
//
// A block is a row-major array of (count + 2) cells in each dimension whose outermost layer holds copies of the
// neighbours' cells. Only faces are exchanged: a 7-point stencil never reads edges and corners. One Halo is used by one
// thread; start and finish come in pairs, and the fields' interior may be read, not written, between them.
#pragma once

#include <mpi.h>

#include <array>
#include <span>
#include <vector>

#include "settings.hpp"

namespace gray_scott {

class Halo {
 public:
  // cartesian: a 3-D periodic communicator, borrowed.
  Halo(MPI_Comm cartesian, const Index& count);
  ~Halo();
  Halo(const Halo&) = delete;
  Halo& operator=(const Halo&) = delete;

  // Sends the neighbours' cells on their way. Where this rank is its own neighbour the ghosts are filled on return.
  void start(std::span<double* const> fields);
  // Returns when all ghosts are filled.
  void finish();
  // Whether the grid is not divided in this dimension: the rank is its own neighbour on both sides.
  bool undivided(int dimension) const { return undivided_[static_cast<std::size_t>(dimension)]; }

 private:
  struct Face {
    int neighbour = 0;
    MPI_Datatype inner = MPI_DATATYPE_NULL;  // our outermost cells, which the neighbour needs
    MPI_Datatype ghost = MPI_DATATYPE_NULL;  // the layer beyond them, which the neighbour fills
  };
  MPI_Comm comm_;
  std::array<bool, 3> undivided_{};
  std::array<Face, 6> faces_;  // 2 * dimension + (0: low side, 1: high side)
  std::vector<MPI_Request> requests_;
};

}  // namespace gray_scott
