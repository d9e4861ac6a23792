"""Scenario by scenario over every data plane: the Python column of tests/conformance/scenarios.yaml.

Here: what a step holds and how it is read. test_scenarios_streams.py has who comes when, queues, deadlines and ends.
"""

import gc
import os
import subprocess
import sys

import numpy as np
import penstock
import pytest
from penstock import dtypes

PROCESS_S = 100.0
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TYPES += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def numbered(shape, t=0):
    """An array whose elements say where they are and of which step."""
    return np.arange(np.prod(shape), dtype=float).reshape(shape) + 1000 * t


def sample(name):
    """Three elements of the type; of bfloat16 1, 2 and -1, as its bits where NumPy lacks the type."""
    if name == "bfloat16":
        return np.array([0x3F80, 0x4000, 0xBF80], np.uint16).view(dtypes.BFLOAT16)
    if name == "bool":
        return np.array([True, False, True])
    if name.startswith(("complex", "float")):
        return np.array([1.5, 0, -2], name) * (1j if name.startswith("complex") else np.array(1, name))
    return np.array([1, 0, np.iinfo(name).max], name)


# ------------------------------------------------------------------------------------------------------ values, shapes


def test_element_types(pair):
    writer, reader = pair()
    writer.define("bfloat16", "bfloat16", (3,))
    for _ in range(3):
        with writer.step() as step:
            for name in TYPES:
                step[name] = sample(name)
            with pytest.raises(penstock.InvalidArgument):
                step["float64"] = sample("float32")
        with reader.step() as step:
            assert sorted(step) == sorted(TYPES)
            for name in TYPES:
                got = step[name][...]
                assert got.dtype == sample(name).dtype and got.tobytes() == sample(name).tobytes(), name
    writer.close()
    with pytest.raises(penstock.EndOfStream):
        reader.step()


def test_up_to_eight_dimensions(pair):
    writer, reader = pair()
    with writer.step() as step:
        for d in range(1, 9):
            step[f"v{d}"] = np.arange(2**d, dtype=np.int32).reshape((2,) * d)
        with pytest.raises(penstock.InvalidArgument):
            step["v9"] = np.zeros((2,) * 9)
    with reader.step() as step:
        for d in range(1, 9):
            assert step[f"v{d}"].shape == (2,) * d
            np.testing.assert_array_equal(step[f"v{d}"], np.arange(2**d).reshape((2,) * d))


def test_changing_shape(pair):
    writer, reader = pair()
    for t in range(6):
        with writer.step() as step:
            step["v"] = numbered((4, t + 1), t)
        with reader.step() as step:
            assert step["v"].shape == (4, t + 1)
            np.testing.assert_array_equal(step["v"], numbered((4, t + 1), t))


def test_changing_decomposition(cohorts):
    def write(stream):
        for t in range(6):
            cuts = [0, 1 + t, 7 + t % 3, 12]
            low, high = cuts[stream.rank], cuts[stream.rank + 1]
            with stream.step() as step:
                step.put("v", numbered((12, 5), t)[low:high], start=(low, 0), shape=(12, 5))

    def read(stream):
        rows = np.s_[0:5] if stream.rank == 0 else np.s_[5:12]
        for t, step in enumerate(stream):
            np.testing.assert_array_equal(step["v"][rows], numbered((12, 5), t)[rows])
        assert t == 5

    cohorts(3, 2, write, read)


def test_several_blocks_and_empty_contributions(cohorts):
    def write(stream):
        for _ in range(3):
            with stream.step() as step:
                starts = {0: [0, 2, 4, 6], 1: [], 2: [7, 5, 3, 1]}[stream.rank]
                for i in starts:
                    step.put("v", np.array([i]), start=(i,), shape=(8,))
                if stream.rank == 1:
                    step.put("v", np.zeros(0, int), start=(4,), shape=(8,))

    def read(stream):
        for step in stream:
            assert [block.start[0] for block in step["v"].blocks] == [0, 2, 4, 6, 4, 7, 5, 3, 1]
            assert [block.writer_rank for block in step["v"].blocks] == [0] * 4 + [1] + [2] * 4
            np.testing.assert_array_equal(step["v"], np.arange(8))
            assert step["v"].block(4).tolist() == [] and step["v"].block(5).tolist() == [7]
        assert stream.statistics.steps == 3

    cohorts(3, 1, write, read)


def test_values(cohorts):
    def write(stream):
        for t in range(4):
            with stream.step() as step:
                if stream.rank == 0:
                    step["time"] = 0.5 * t
                    step["label"] = "step " + "x" * 100 * t
                step.put_value("load", np.int32(10 * stream.rank + t), local=True)
                step.put_value("host", f"rank{stream.rank}", local=True)

    def read(stream):
        for t, step in enumerate(stream):
            assert step["time"].value == 0.5 * t and float(step["time"]) == 0.5 * t
            assert step["load"].value == [t, 10 + t] and step["load"].dtype == np.int32
            assert len(step["label"].value) == 5 + 100 * t
            assert step["host"].value == ["rank0", "rank1"]
        assert t == 3

    cohorts(2, 2, write, read)


def test_local_arrays(cohorts):
    def write(stream):
        for t in range(3):
            with stream.step() as step:
                step.put_local("particles", numbered((2 + stream.rank + t, 3), stream.rank))

    def read(stream):
        for t, step in enumerate(stream):
            for rank, block in enumerate(step["particles"].blocks):
                assert block.count == (2 + rank + t, 3) and block.writer_rank == rank
                np.testing.assert_array_equal(step["particles"].block(rank), numbered((2 + rank + t, 3), rank))
        assert t == 2

    cohorts(3, 1, write, read)


# ---------------------------------------------------------------------------------------------------------- attributes


def test_attributes(pair):
    writer, reader = pair()
    dims = ["z", "", 'a long name with "quotes"']
    writer.attributes.update({"program": "heat", "dims": dims})
    for t in range(4):
        with writer.step() as step:
            step["T"] = np.zeros(1)
            step.attributes["time"] = 0.1 * t
            step.attributes["growing"] = np.full(t, 7, np.int16)
            if t == 1:
                step.attributes["T/units"] = "K"
            step.attributes["flag"] = True
        with reader.step() as step:
            found = step.attributes
            assert found["program"] == "heat" and found["dims"] == dims and found["time"] == 0.1 * t
            assert found["growing"].dtype == np.int16 and len(found["growing"]) == t
            assert ("T/units" in found) == (t >= 1) and ("units" in step["T"].attributes) == (t >= 1)
            assert found["flag"] is True and "growing" in list(found)
            with pytest.raises(KeyError):
                found["nothing"]


def test_attributes_of_every_type(pair):
    writer, reader = pair()
    types = [*TYPES]
    if sample("bfloat16").dtype == np.uint16:  # as which its bits would come back
        types.remove("bfloat16")
    for t in range(2):
        with writer.step() as step:
            if t == 0:
                for name in types:
                    step.attributes[name] = sample(name)[0]
                    step.attributes[f"{name}[]"] = sample(name)
            step.attributes.update({"string": "grüße", "string[]": ["z", "", "grüße"][: t + 2]})
        with reader.step() as step:
            for name in types:
                assert step.attributes[name] == sample(name)[0].item(), name
                got = step.attributes[f"{name}[]"]
                assert got.dtype == sample(name).dtype and got.tobytes() == sample(name).tobytes(), name
            assert step.attributes["string"] == "grüße"
            assert step.attributes["string[]"] == ["z", "", "grüße"][: t + 2]


# ----------------------------------------------------------------------------------------------------- puts and orders


def test_min_max(cohorts):
    def write(stream):
        stream.define("v", float, (6,), min_max=True)
        for t in range(2):
            block = [[3.0 + t, -1, np.nan], [8, 9.5, 7]][stream.rank]
            with stream.step() as step:
                step.put("v", np.array(block), start=(3 * stream.rank,))
                step.put("plain", np.array(block), start=(3 * stream.rank,), shape=(6,))

    def read(stream):
        for step in stream:
            assert step["v"].min_max == (-1, 9.5) and step["v"].block_min_max(1) == (7, 9.5)
            assert step["plain"].min_max is None
        assert stream.statistics.steps == 2

    cohorts(2, 1, write, read)


def test_row_and_column_major(pair):
    writer, reader = pair()
    array = np.array([[0, 1, 2], [10, 11, 12]], np.int32)
    with writer.step() as step:
        step["v"] = np.asfortranarray(array)
    with reader.step() as step:
        assert step["v"].order == "column"
        for order, flag in (("row", "C_CONTIGUOUS"), ("column", "F_CONTIGUOUS")):
            got = step["v"].read(order=order)
            assert got.flags[flag]
            np.testing.assert_array_equal(got, array)


def test_put_span_lend_and_strided_put(pair, engine):
    writer, reader = pair()
    for t in range(5):
        with writer.step() as step:
            span = step.span("filled", shape=(1000,), dtype=float)
            assert span.shape == (1000,) and span.ctypes.data % 64 == 0
            lent = numbered(1000, t + 1)
            step.put("lent", lent, lend=engine != "insitu")  # whose end waits for readers, and this thread is one
            if engine != "insitu":
                lent[0] = -1  # still ours to change until the step ends
            span[:] = numbered(1000, t)
            step.put("strided", np.array([3.0, 0, 2, 0, 1, 0])[4::-2])
        assert not span.flags.writeable
        with reader.step() as step:
            np.testing.assert_array_equal(step["filled"], numbered(1000, t))
            np.testing.assert_array_equal(step["lent"], lent)
            assert step["strided"][...].tolist() == [1, 2, 3]


def test_views(pair, plane):
    writer, reader = pair()
    kept = []
    for t in range(4):
        with writer.step() as step:
            step.put("v", numbered((4, 3), t)[:2], start=(0, 0), shape=(4, 3))
            step.put("v", numbered((4, 3), t)[2:], start=(2, 0))
        with reader.step() as step:
            views = step["v"].views()
            assert [block.start for block, _ in views] == [(0, 0), (2, 0)]
            assert views[1][1][0, 0] == 6 + 1000 * t
            part = step["v"].view(np.s_[1, 1:3])
            assert part.tolist() == [4 + 1000 * t, 5 + 1000 * t] and not part.flags.writeable
            if t < 2:
                kept.append(views[0][1])
        del views, part
    reader.close()
    del step, reader
    gc.collect()
    assert kept[1][1, 2] == 1005  # after the step and the stream
    writer.close()  # does not wait for views
    assert kept[0].tolist() == numbered((4, 3), 0)[:2].tolist()


# ---------------------------------------------------------------------------------------------------------- selections


def test_selections(pair):
    writer, reader = pair()
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    for _ in range(2):
        with writer.step() as step:
            step.put("v", array[:, :3], start=(0, 0), shape=(4, 6))
            step.put("v", array[:, 3:], start=(0, 3))
        with reader.step() as step:
            for index in (np.s_[1:3, 2:4], np.s_[::3, 1::2], np.s_[2], np.s_[..., -1], np.s_[::-1, 4:0:-2]):
                np.testing.assert_array_equal(step["v"][index], array[index])
            np.testing.assert_array_equal(step["v"].block(1), array[:, 3:])
            assert step["v"].points([(3, 5), (0, 0), (1, 3), (0, 0)]).tolist() == [23, 0, 9, 0]
            with pytest.raises(IndexError):
                step["v"][4]
            with pytest.raises(penstock.NotFound):
                step["w"]
    assert reader.statistics.plans_reused > 0


def test_overlaps_and_holes(pair):
    writer, reader = pair()
    with writer.step() as step:
        step.put("v", np.array([1, 1, 1], np.int32), start=(0,), shape=(6,))
        step.put("v", np.array([2, 2], np.int32), start=(2,))
    with reader.step() as step:
        assert step["v"].read(out=np.full(6, -9, np.int32)).tolist() == [1, 1, 2, 2, -9, -9]
        assert step["v"][...].tolist() == [1, 1, 2, 2, 0, 0]


def test_redistribution_m_to_n(cohorts):
    n = 15
    for writers, readers in ((1, 1), (2, 1), (1, 2), (3, 5), (5, 3)):

        def write(stream, writers=writers):
            low, high = (n * r // writers for r in (stream.rank, stream.rank + 1))
            for t in range(4):
                with stream.step() as step:
                    step.put("v", numbered((n, n, n), t)[low:high], start=(low, 0, 0), shape=(n, n, n))

        def read(stream, readers=readers):
            low, high = (n * r // readers for r in (stream.rank, stream.rank + 1))
            for t, step in enumerate(stream):
                np.testing.assert_array_equal(step["v"][:, :, low:high], numbered((n, n, n), t)[:, :, low:high])
            assert t == 3

        cohorts(writers, readers, write, read)


# --------------------------------------------------------------------------------------------------- planes and epochs


def test_plane_chosen_reported_and_forced(context, plane, engine):
    for asked, got in (("automatic", "shm"), (plane, plane)):  # on one host
        with context.create("s", timeout=20) as writer, context.open("s", timeout=20, data_plane=asked) as reader:
            with writer.step() as step:
                step["v"] = np.arange(8)
            with reader.step() as step:
                np.testing.assert_array_equal(step["v"], np.arange(8))
            assert reader.statistics.data_plane == got
            # Of its peers a writer knows where they are; a pool's writer knows the pool only.
            assert writer.statistics.peers[0].data_plane == ("shm" if engine == "pool" else got)


def test_epochs_and_plans(context, plane, engine):
    per_step = []
    for blocks in (1, 64):
        with context.create("s", timeout=20) as writer, context.open("s", timeout=20, data_plane=plane) as reader:
            for t in range(24):
                if t == 4:
                    before = reader.statistics.announcement_bytes
                with writer.step() as step:
                    for b in range(blocks):
                        step.put("v", np.array([float(b)]), start=(b,), shape=(64,))
                with reader.step() as step:
                    assert step["v"][blocks - 1] == blocks - 1
            found = reader.statistics
            assert writer.statistics.epochs == found.epochs == 1
            assert found.plans_built <= 2 and found.plans_reused >= 22
            per_step.append((found.announcement_bytes - before) / 20)
    assert per_step[0] == per_step[1] <= 256
    assert (per_step[0] == 0) == (engine == "file")  # its readers are told nothing: they look


# ---------------------------------------------------------------------------------------------------- only Python's own


def test_xarray(pair):
    xarray = pytest.importorskip("xarray")
    writer, reader = pair()
    with writer.step() as step:
        step["T"] = numbered((2, 3), 0)
        step["x"] = np.array([0.0, 0.5, 1.0])
        step.attributes.update({"T/dims": ["y", "x"], "T/units": "K", "x/dims": ["x"], "title": "run"})
    with reader.step() as step:
        data = step.to_xarray()
    assert isinstance(data, xarray.Dataset) and data["T"].dims == ("y", "x") and data["T"].attrs == {"units": "K"}
    assert data["T"].sel(x=0.5).values.tolist() == [1, 4] and data.attrs["title"] == "run"


def test_dlpack(pair):
    writer, reader = pair()

    class Producer:  # of an array library that is not NumPy
        def __dlpack__(self, **how):
            return numbered((2, 3), 4).__dlpack__(**how)

        def __dlpack_device__(self):
            return (1, 0)

    with writer.step() as step:
        step["v"] = Producer()
    with reader.step() as step:
        copied, viewed = np.from_dlpack(step["v"]), np.from_dlpack(step["v"].view())
    reader.close()
    np.testing.assert_array_equal(copied, numbered((2, 3), 4))
    np.testing.assert_array_equal(viewed, numbered((2, 3), 4))  # which keeps the step
    del viewed


# --------------------------------------------------------------------------------------------------------- MPI cohorts

MPI_PROGRAM = """
import sys
import numpy as np
import penstock
from mpi4py import MPI

role, plane, directory = sys.argv[1:]
comm = MPI.COMM_WORLD
context = penstock.Context(directory=directory, listen="127.0.0.1")
whole = np.arange(60.0).reshape(12, 5)
if role == "write":
    with context.create("all", comm=comm, timeout=40, data_plane=plane) as stream:
        if comm.rank == 0:
            stream.attributes["program"] = "heat"
        for t in range(4):
            cut = 3 + 2 * t  # another decomposition each step
            low, high = [(0, cut), (cut, 12)][comm.rank]
            with stream.step() as step:
                step.put("field", whole[low:high] + t, start=(low, 0), shape=(12, 5))
                step.put_value("load", np.int32(10 * comm.rank + t), local=True)
    with context.create("left", comm=comm, timeout=40, data_plane=plane, queue_steps=1) as stream:
        for t in range(20):
            with stream.step() as step:
                step["t"] = t
else:
    with context.open("all", comm=comm, timeout=40, data_plane=plane) as stream:
        for t, step in enumerate(stream):
            np.testing.assert_array_equal(step["field"][:, comm.rank :: 2], whole[:, comm.rank :: 2] + t)
            assert step["load"].value == [t, 10 + t] and step.attributes["program"] == "heat"
        assert t == 3 and stream.statistics.data_plane == plane
    with context.open("left", comm=comm, timeout=40, data_plane=plane) as stream:
        for t in range(3):
            with stream.step() as step:
                assert step["t"].value == t
"""


def test_mpi_cohorts(plane, tmp_path):
    pytest.importorskip("mpi4py")
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores
    }
    sides = []
    try:
        for role in ("write", "read"):
            command = ["mpiexec", "-n", "2", sys.executable, "-c", MPI_PROGRAM, role, plane, str(tmp_path)]
            own = environment | {"OMPI_MCA_orte_tmpdir_base": str(tmp_path / f"mpi-{role}")}
            sides.append(subprocess.Popen(command, env=own, stderr=subprocess.PIPE, text=True))
        errors = [side.communicate(timeout=PROCESS_S)[1] for side in sides]
    except FileNotFoundError:
        pytest.skip("mpiexec is not installed")
    finally:
        for side in sides:
            side.kill()
            side.wait()
    assert [side.returncode for side in sides] == [0, 0], "\n".join(errors)
