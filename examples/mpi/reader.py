"""Several ranks read one global array, each its columns of it: mpiexec -n 3 python reader.py"""

import penstock
from mpi4py import MPI

comm = MPI.COMM_WORLD
with penstock.open("rows", comm=comm) as stream:
    for step in stream:
        T = step["T"]
        columns = T.shape[1]
        first, last = columns * comm.rank // comm.size, columns * (comm.rank + 1) // comm.size
        total = comm.allreduce(T[:, first:last].sum())
        if comm.rank == 0:
            print(f"step {step.number}: mean {total / T.size:.2f}")
