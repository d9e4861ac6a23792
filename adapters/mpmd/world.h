/* What the generated wrappers need: the communicator that stands for MPI_COMM_WORLD in this program. */
#ifndef PENSTOCK_MPMD_WORLD_H
#define PENSTOCK_MPMD_WORLD_H

#include <mpi.h>

/* MPI_COMM_WORLD itself until MPI_Init has split it, and where it is not split. Written in MPI_Init and MPI_Finalize
   only, which no other thread may overlap. */
extern __attribute__((visibility("hidden"))) MPI_Comm penstock_mpmd_own;

static inline MPI_Comm own_world(MPI_Comm comm) { return comm == MPI_COMM_WORLD ? penstock_mpmd_own : comm; }

#endif
