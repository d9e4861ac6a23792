/* The part of the module penstock_mpi that needs MPI's C. */
#include "penstock/mpi.h"

int penstock_fortran_mpi_cohort(MPI_Fint comm, penstock_cohort* cohort) {
  return penstock_mpi_cohort(MPI_Comm_f2c(comm), cohort);
}
