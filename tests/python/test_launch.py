"""Processes of one MPI launch that open a stream each on its own, under a real launcher."""

import os
import subprocess
import sys

import pytest

PROCESS_S = 100.0

FORGETFUL = """
import os, sys
import numpy as np
import penstock
from mpi4py import MPI

context = penstock.Context(directory=sys.argv[2], listen="127.0.0.1")
MPI.COMM_WORLD.Barrier()
try:
    with context.create("s", timeout=40, data_plane=sys.argv[1]) as stream:
        while True:
            with stream.step() as step:
                step["v"] = np.arange(8.0)
except penstock.Error as error:
    os.write(1, f"rank {MPI.COMM_WORLD.rank}: {error}\\n".encode())  # whole: the other rank writes at the same time
MPI.COMM_WORLD.Barrier()
"""


def test_ranks_without_their_communicator_fail(plane, tmp_path):
    pytest.importorskip("mpi4py")
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores
    }
    command = ["mpiexec", "-n", "2", sys.executable, "-c", FORGETFUL, plane, str(tmp_path / "streams")]
    try:
        writers = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        pytest.skip("mpiexec is not installed")
    try:
        said = writers.communicate(timeout=PROCESS_S)[0]
    finally:
        writers.kill()
        writers.wait()
    assert sorted(line.split(":")[0] for line in said.splitlines()) == ["rank 0", "rank 1"]
    assert all("ranks 0 and 1" in line and "comm=" in line for line in said.splitlines()), said
