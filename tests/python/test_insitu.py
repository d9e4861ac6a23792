"""Engine insitu: arrays that are lent stay where they are, and a function is called at each step's end."""

import gc
import os
import shutil
import subprocess
import sys
import threading
import weakref

import numpy as np
import penstock
import pytest

TIMEOUT_S = 20.0


def address(array):
    return array.__array_interface__["data"][0]


@pytest.fixture
def insitu(context):
    """insitu(**options): a writer and a reader of it, in one process."""
    opened = []

    def open_pair(name="heat", **options):
        opened.append(context.create(name, engine="insitu", timeout=TIMEOUT_S, **options))
        opened.append(context.open(name, engine="insitu", timeout=TIMEOUT_S))
        return opened[-2:]

    yield open_pair
    for stream in reversed(opened):
        stream.close()


def write(writer, field, **more):
    with writer.step() as step:
        step.put("T", field, lend=True, **more)


def halo():
    """An array, and its inside."""
    whole = np.arange(6.0 * 5 * 4).reshape(6, 5, 4)
    return whole, whole[1:-1, 1:-1, 1:-1]


def test_a_view_is_the_simulations_own_array(insitu):
    writer, reader = insitu()
    _, field = halo()
    seen = []

    def analyse(step):
        view = step["T"].view()
        assert not view.flags.writeable
        assert np.array_equal(view, field)
        part = step["T"][1:3, 0, :]
        assert np.array_equal(part, field[1:3, 0, :])
        seen.append((step.number, address(view), view.strides, threading.get_ident()))

    reader.on_step(analyse)
    for t in range(10):
        field[0, 0, 0] = t
        write(writer, field)
    assert seen == [(t, address(field), field.strides, threading.get_ident()) for t in range(10)]
    assert reader.statistics.analysis_errors == 0
    assert reader.statistics.data_plane == "insitu"
    writer.close()
    with pytest.raises(penstock.EndOfStream):
        reader.step()


def test_errors_are_reported(insitu):
    writer, reader = insitu()
    _, field = halo()

    def analyse(step):
        view = step["T"].view()
        raise ValueError(f"no surface in {view.shape}")

    reader.on_step(analyse)
    for _ in range(10):
        write(writer, field)
    assert reader.statistics.analysis_errors == 10
    assert writer.statistics.queue_depth == 0


def test_errors_come_out_of_the_end_where_asked(insitu):
    writer, reader = insitu()
    _, field = halo()

    def analyse(step):
        view = step["T"].view()
        if step.number == 1:
            raise ZeroDivisionError(str(view.shape))

    reader.on_step(analyse, on_error="raise")
    write(writer, field)
    with pytest.raises(ZeroDivisionError, match=r"\(4, 3, 2\)"):
        write(writer, field)
    write(writer, field)
    assert writer.statistics.steps == 3
    assert reader.statistics.analysis_errors == 1


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_is_no_error_of_the_analysis(insitu, ends):
    writer, reader = insitu()
    seen = []

    def analyse(step):
        seen.append(step.number)
        raise ends

    reader.on_step(analyse)
    with pytest.raises(ends):
        write(writer, halo()[1])
    assert seen == [0]


def test_another_thread_closes_the_reader_while_its_function_runs(insitu):
    writer, reader = insitu()
    running, closing, seen = threading.Event(), threading.Event(), []

    def analyse(step):
        running.set()
        assert closing.wait(TIMEOUT_S)
        seen.append(float(step["T"][0, 0, 0]))

    def close():
        assert running.wait(TIMEOUT_S)
        closing.set()
        reader.close()

    reader.on_step(analyse)
    thread = threading.Thread(target=close)
    thread.start()
    _, field = halo()
    write(writer, field)
    thread.join(TIMEOUT_S)
    assert not thread.is_alive() and reader.closed
    write(writer, field)  # nobody is called any more
    assert len(seen) <= 1


def test_a_kept_view_is_an_error(insitu):
    writer, reader = insitu()
    _, field = halo()
    kept = []
    reader.on_step(lambda step: kept.append(step["T"].view()), on_error="raise")
    with pytest.raises(penstock.Error, match=r"lent \(variable T\) beyond its function"):
        write(writer, field)
    with pytest.raises(penstock.Error, match="copy what is to be kept"):
        write(writer, field)


def test_a_kept_view_keeps_its_array(context):
    """Also of a temporary, and parts of it: the view shows what is there, whoever has gone."""
    writer = context.create("s", engine="insitu", timeout=20)
    reader = context.open("s", engine="insitu", timeout=20)
    kept = []
    reader.on_step(lambda step: kept.extend([step["T"].view(), step["T"].view()[10:, ::2]]))
    arrays = []
    for t in range(3):
        with writer.step() as step:
            array = np.full((500, 600), 7.0 + t)
            arrays.append(weakref.ref(array))
            step.put("T", array[:, 1:-1], lend=True)
            del array
    writer.close()
    reader.close()
    assert [view[-1, -1] for view in kept] == [7, 7, 8, 8, 9, 9]
    kept.clear()
    gc.collect()
    assert all(array() is None for array in arrays)


def test_what_was_put_may_be_kept(insitu):
    writer, reader = insitu()
    kept = []
    reader.on_step(lambda step: kept.append(step["T"].view()) if step.number == 0 else None, on_error="raise")
    for t in range(10):
        with writer.step() as step:
            step["T"] = np.full(3, float(t))
    assert np.array_equal(kept[0], np.zeros(3))
    kept.clear()


def test_the_reader_may_close_or_go_in_its_function(context):
    for way in ("close", "drop"):
        writer = context.create(way, engine="insitu", timeout=TIMEOUT_S)
        readers = [context.open(way, engine="insitu", timeout=TIMEOUT_S)]
        calls = []

        def analyse(step, way=way, readers=readers, calls=calls):
            calls.append(step.number)
            readers[0].close() if way == "close" else readers.clear()

        readers[0].on_step(analyse)
        _, field = halo()
        for _ in range(3):
            write(writer, field)
            gc.collect()
        assert calls == [0]
        writer.close()


def test_a_reader_with_a_thread_of_its_own(context):
    writer = context.create("heat", engine="insitu", timeout=TIMEOUT_S)
    _, field = halo()
    seen = []

    def read():
        with context.open("heat", engine="insitu", timeout=TIMEOUT_S) as reader:
            for step in reader:
                seen.append(address(step["T"].view()))

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(5):
        write(writer, field)
    writer.close()
    thread.join()
    assert seen == 5 * [address(field)]


def test_nobody_calls_it_elsewhere(context):
    with context.create("heat", timeout=TIMEOUT_S, rendezvous_readers=0), context.open("heat") as reader:
        with pytest.raises(penstock.Unsupported, match="engine=insitu"):
            reader.on_step(print)
        with pytest.raises(ValueError, match="on_error"):
            reader.on_step(print, on_error="ignore")


MPI_PROGRAM = """
import sys
import numpy as np
import penstock
from mpi4py import MPI

comm = MPI.COMM_WORLD
context = penstock.Context(directory=sys.argv[1], listen="127.0.0.1")
halo = np.arange(6 * 5.0).reshape(6, 5) + 100 * comm.rank
field = halo[1:-1, 1:-1]
calls = []


def analyse(step):
    whole = np.concatenate([halo[1:-1, 1:-1] + 100 * (rank - comm.rank) for rank in range(comm.size)])
    np.testing.assert_array_equal(step["T"][...], whole)  # of all ranks: over tcp where they are elsewhere
    own = step["T"].view(np.s_[4 * comm.rank : 4 * comm.rank + 4, :])
    assert own.__array_interface__["data"] == (field.__array_interface__["data"][0], True)
    comm.Barrier()  # each rank is in its own function
    calls.append(step.number)


with context.create("T", comm=comm, engine="insitu", timeout=40) as writer:
    with context.open("T", comm=comm, engine="insitu", timeout=40) as reader:
        reader.on_step(analyse, on_error="raise")
        for t in range(5):
            with writer.step() as step:
                step.put("T", field, start=(4 * comm.rank, 0), shape=(4 * comm.size, 3), lend=True)
assert calls == [0, 1, 2, 3, 4]
"""


def test_ranks_of_mpi_read_each_others_arrays(tmp_path):
    pytest.importorskip("mpi4py")
    if shutil.which("mpiexec") is None:
        pytest.skip("mpiexec is not installed")
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores
    }
    command = ["mpiexec", "-n", "3", sys.executable, "-c", MPI_PROGRAM, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
