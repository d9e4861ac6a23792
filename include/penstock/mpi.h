/* The MPI cohort for C. Header only, so that the library itself never links MPI.

     penstock_cohort cohort;
     penstock_mpi_cohort(MPI_COMM_WORLD, &cohort);
     penstock_context_create_stream(context, "heat", &cohort, NULL, &writer, &error);

   penstock_mpi_cohort is collective: it duplicates the communicator. The duplicate belongs to the one stream the cohort
   is given to and is freed with it, which must happen before MPI_Finalize. */
#ifndef PENSTOCK_MPI_H
#define PENSTOCK_MPI_H

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#include "penstock/penstock.h"

static inline int penstock_mpi_broadcast_(void* user, void* data, size_t size, int root) {
  if (size > INT_MAX) return MPI_ERR_COUNT; /* the library sends long messages in pieces */
  return MPI_Bcast(data, (int)size, MPI_BYTE, root, *(MPI_Comm*)user);
}

static inline int penstock_mpi_gather_(void* user, const void* data, size_t size, void* all, int root) {
  if (size > INT_MAX) return MPI_ERR_COUNT;
  return MPI_Gather(data, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, root, *(MPI_Comm*)user);
}

static inline void penstock_mpi_release_(void* user) {
  int finalized = 0;
  if (MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized) MPI_Comm_free((MPI_Comm*)user);
  free(user);
}

/* Returns MPI_SUCCESS or MPI's error. */
static inline int penstock_mpi_cohort(MPI_Comm comm, penstock_cohort* cohort) {
  int code;
  MPI_Comm* copy = (MPI_Comm*)malloc(sizeof(MPI_Comm));
  if (!copy) return MPI_ERR_NO_MEM;
  code = MPI_Comm_dup(comm, copy);
  if (code == MPI_SUCCESS) {
    MPI_Comm_rank(*copy, &cohort->rank);
    MPI_Comm_size(*copy, &cohort->size);
    cohort->user = copy;
    cohort->broadcast = penstock_mpi_broadcast_;
    cohort->gather = penstock_mpi_gather_;
    cohort->release = penstock_mpi_release_;
    cohort->broadcast_is_local = 1;
  } else {
    free(copy);
  }
  return code;
}

#endif
