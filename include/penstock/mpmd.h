/* All programs of one MPI launch, for a program that wants to see beyond its own.

     mpiexec -x LD_PRELOAD=libpenstock_mpmd.so -n 2 simulation : -x LD_PRELOAD=libpenstock_mpmd.so -n 1 analysis

   Under libpenstock_mpmd.so MPI_COMM_WORLD means the ranks of the caller's own program. penstock_mpmd_world() is the
   communicator of all ranks of all programs, numbered as MPI numbers the launch; MPI_APPNUM tells the programs apart.
   Without the preloaded library, or where it has nothing to do, it is MPI_COMM_WORLD.

   Call it between MPI_Init and MPI_Finalize, from any thread. The communicator belongs to the library: do not free it.
   Programs that know nothing of it take part in no operation on it. Needs neither linking nor libpenstock. */
#ifndef PENSTOCK_MPMD_H
#define PENSTOCK_MPMD_H

#include <dlfcn.h>
#include <mpi.h>
#include <string.h>

static inline MPI_Comm penstock_mpmd_world(void) {
  MPI_Comm (*function)(void) = NULL;
  /* The global scope of symbols. ISO C has no cast from an object's address to a function's. */
  void* symbol = dlsym(NULL, "penstock_mpmd_true_world");
  memcpy(&function, &symbol, sizeof(function));
  return function != NULL ? function() : MPI_COMM_WORLD;
}

#endif
