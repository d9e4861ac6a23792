"""Cohorts of MPI ranks: three write, two read; one of them is killed, or raises."""

import os
import pathlib
import shutil
import signal
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).parent
STEPS = 8
PEER = pathlib.Path(os.environ.get("PENSTOCK_BUILD", "build")) / "tests" / "multiprocess" / "mpi_peer"

pytestmark = pytest.mark.skipif(
    not PEER.exists() or shutil.which("mpiexec") is None, reason="mpi_peer is not built (it needs MPI)"
)


@pytest.fixture
def ranks(start, environment, tmp_path):
    """ranks(3, "writer", "heat", 8): an MPI program of so many ranks."""
    environment["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def begin(count, *words, program=(PEER,)):
        own = environment | {"OMPI_MCA_orte_tmpdir_base": tempfile.mkdtemp(dir=tmp_path)}
        return start(["mpiexec", "-n", count, *program], *words, env=own)

    return begin


def pid_of(program, rank):
    """Ranks say who they are in any order."""
    while True:
        for line in program.said("rank"):
            if line.split()[1] == str(rank):
                return int(line.split()[2])
        program.next_line()


def test_three_write_two_read(ranks, start, environment):
    environment["PENSTOCK_STREAM_HEAT"] = "direct,rendezvous_readers=2"
    readers = ranks(2, "reader", "heat", STEPS)
    alone = start("read.py", "heat")
    writers = ranks(3, "writer", "heat", STEPS)
    assert readers.wait() == 0, readers.lines
    assert sorted(readers.said("end")) == [f"end shm {STEPS}"] * 2
    assert not any("TORN" in line for line in readers.lines)
    assert writers.wait() == 0, writers.lines
    assert alone.wait() == 0, alone.lines


def test_a_writer_rank_is_killed(ranks, start, environment):
    """MPI ends the job; readers, MPI's and others, hear that the writer is lost."""
    environment["PENSTOCK_STREAM_HEAT"] = "direct,rendezvous_readers=2,queue_steps=2"
    readers = ranks(2, "reader", "heat", STEPS)
    alone = start("read.py", "heat")
    writers = ranks(3, "writer", "heat", 100_000)
    # Everybody is in the middle of the stream, and has mapped every rank's memory.
    while readers.said("read").count("read 0 whole") < 2:
        readers.next_line()
    alone.wait_line("read")
    os.kill(pid_of(writers, 1), signal.SIGKILL)
    assert writers.wait() != 0
    assert readers.wait() == 0, readers.lines
    assert readers.said("lost") == ["lost"] * 2
    assert alone.wait() == 0, alone.lines
    assert len(alone.said("lost")) == 1
    assert not any("TORN" in line for line in readers.lines + alone.lines)


def test_a_reader_rank_is_killed(ranks, start, environment):
    """The writers and the other reader go on."""
    environment["PENSTOCK_STREAM_HEAT"] = "direct,rendezvous_readers=2,queue_steps=2"
    holder = start("hold.py", "heat", 2)
    readers = ranks(2, "reader", "heat", STEPS)
    writers = ranks(3, "writer", "heat", STEPS)
    holder.wait_line("holding")
    os.kill(pid_of(readers, 1), signal.SIGKILL)
    assert readers.wait() != 0
    holder.tell()
    assert holder.wait() == 0, holder.lines
    assert writers.wait() == 0, writers.lines
    assert len(writers.said("wrote")) == 3 * STEPS


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_of_a_simulation_raises(ranks, environment, failing):
    """The others wait for rank 0's decision in MPI_Bcast, which has no deadline: they are told."""
    environment["PENSTOCK_STREAM_HEAT"] = "direct,rendezvous_readers=0"
    simulation = ranks(2, failing, program=(sys.executable, HERE / "coprocess.py"))
    assert simulation.wait() == 0, simulation.lines
    errors = {line.split()[1]: line for line in simulation.said("error")}
    assert errors.keys() == {"0", "1"} and "ArithmeticError" in errors[str(failing)], errors
    assert f"rank {failing}" in errors[str(1 - failing)], errors
