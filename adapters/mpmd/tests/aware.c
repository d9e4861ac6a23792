/* A program that knows of the other programs in its launch: its ranks greet rank 0 of the launch, whichever program that
   is of, and it collects the greetings if it is its own. Writes FOLDER/aware.true-world.<rank>. */
#include "penstock/mpmd.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  char path[4096];
  int own_rank, own_size, rank, size, *program, found, leaders[2], i;
  MPI_Comm launch, mine = MPI_COMM_WORLD;
  FILE* report;
  MPI_Init(&argc, &argv);
  launch = penstock_mpmd_world(); /* all ranks of all programs */
  MPI_Comm_rank(launch, &rank);
  MPI_Comm_size(launch, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &own_rank); /* of this program */
  MPI_Comm_size(MPI_COMM_WORLD, &own_size);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &program, &found);

  /* Every program of this launch is aware, so that all may take part in an operation on the whole. */
  leaders[0] = own_rank == 0 && *program == 0 ? rank : 0;
  leaders[1] = own_rank == 0 && *program == 1 ? rank : 0;
  MPI_Allreduce(MPI_IN_PLACE, leaders, 2, MPI_INT, MPI_MAX, launch);
  if (size > own_size) {
    MPI_Comm between;
    MPI_Intercomm_create(mine, 0, launch, leaders[1 - *program], 1, &between);
    MPI_Comm_remote_size(between, &i);
    MPI_Comm_free(&between);
  } else {
    i = 0;
  }
  if (argc < 2) MPI_Abort(MPI_COMM_WORLD, 2);
  snprintf(path, sizeof(path), "%s/aware.true-world.%d", argv[1], rank);
  report = fopen(path, "w");
  if (report == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  fprintf(report, "program %d rank %d of %d, in the launch %d of %d, beside %d\n", *program, own_rank, own_size, rank,
          size, i);
  fclose(report);
  MPI_Finalize();
  return 0;
}
