"""A simulation on MPI ranks, of which one fails between two cycles: coprocess.py RANK [option=value...]."""

import sys

import numpy as np
import penstock
from mpi4py import MPI

rank, failing = MPI.COMM_WORLD.rank, int(sys.argv[1])
options = dict(word.split("=", 1) for word in sys.argv[2:])

try:
    with penstock.Coprocessor("heat", comm=MPI.COMM_WORLD, **options) as coprocessor:
        coprocessor.mesh("grid", "uniform", shape=(9, 9))
        coprocessor.field("grid", "T", np.float64, association="element")
        for cycle in range(100_000):
            if rank == failing and cycle == 5:
                raise ArithmeticError("T is not a number")
            if step := coprocessor.request(cycle, float(cycle)):
                with step:
                    step.put("T", np.zeros((4, 8)), start=(4 * rank, 0))
except (penstock.Error, ArithmeticError) as error:
    sys.stdout.write(f"error {rank} {type(error).__name__} {error}\n")  # at once: mpiexec mixes the ranks' output
