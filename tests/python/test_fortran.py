"""The Fortran API: its programs (tests/fortran) against streams of Python.

tests/conformance/scenarios.yaml names tests of this file, which are the column Fortran of the scenario table.
"""

import shutil

import numpy as np
import pytest
from fortran_programs import BIN, DEADLINE_S, ended, needs_fortran, starter

pytestmark = needs_fortran
SHAPES = [(), (2,), (2, 3), (2, 3, 4), (2, 3, 4, 5)]


@pytest.fixture(params=["shm", "tcp", "pool_shm", "pool_tcp"])
def place(request, pool_servers, monkeypatch, tmp_path):
    """Where the streams of the test are, as the scenario table names it: a data plane of engine direct or pool."""
    if request.param.startswith("pool_"):
        monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", pool_servers(1, memory="512MiB", http="off").directory)
        return {"engine": "pool", "data_plane": request.param.removeprefix("pool_")}
    return {"data_plane": request.param}


@pytest.fixture
def start(tmp_path):
    yield from starter(tmp_path)


# --------------------------------------------------------------------------------------------------------------- echo

NAMES = {"int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "float32": "f4", "float64": "f8"}
NAMES |= {"complex64": "c8", "complex128": "c16", "bool": "?", "wide": "?"}  # wide: a logical of 4 bytes


def numbers(dtype, shape, order, step):
    """Values that differ from their neighbours, in either order."""
    count = int(np.prod(shape))
    values = np.arange(count) * 7 % 120 - step
    if dtype == "?":
        values = np.arange(count) % 3 == step % 3
    if np.dtype(dtype).kind == "c":
        values = values - 1j * np.arange(count)
    return np.asarray(values, dtype).reshape(shape, order=order)


@pytest.mark.parametrize("order", ["C", "F"])
def test_every_type_and_rank_comes_back(order, context, start, place):
    """Python writes, Fortran reads and writes, Python reads. An array has one shape on all sides, in either order."""
    process = start("fortran_echo", **place)
    out = context.create("in", timeout=DEADLINE_S, **place)
    back = context.open("out", timeout=DEADLINE_S, **place)
    with out, back:
        for number in range(2):
            with out.step() as step:
                for name, dtype in NAMES.items():
                    for rank, shape in enumerate(SHAPES):
                        step[f"{name}{rank}"] = numbers(dtype, shape, order, number)
                    step.attributes[name] = numbers(dtype, (), order, number)[()]
                    step.attributes[f"{name}_vector"] = numbers(dtype, (3,), order, number)
                step["label"] = f"größe {number}"
                step.attributes["text"] = "K m"
                step.attributes["texts"] = ["x", "yy", ""]
            with back.step() as step:
                check_echo(step, number, order)
    assert ended(process) == ""


def check_echo(step, number, order):
    for name, dtype in NAMES.items():
        for rank, shape in enumerate(SHAPES):
            expected = numbers(dtype, shape, order, number)
            variable = step[f"{name}{rank}"]
            assert variable.dtype == np.dtype(dtype) and variable.shape == shape
            assert rank == 0 or variable.order == "column"
            np.testing.assert_array_equal(variable.value if rank == 0 else variable[...], expected)
            if rank > 0:
                np.testing.assert_array_equal(step[f"{name}{rank}_element"].value, expected[(1,) + (0,) * (rank - 1)])
        value, vector = step.attributes[name], step.attributes[f"{name}_vector"]
        assert vector.dtype == np.dtype(dtype) and value == numbers(dtype, (), order, number)
        np.testing.assert_array_equal(vector, numbers(dtype, (3,), order, number))
    assert step["label"].value == f"größe {number}"
    assert step["label_length"].value == len(f"größe {number}".encode())
    assert step.attributes["text"] == step.attributes["text_again"] == "K m"
    assert list(step.attributes["texts"]) == ["x", "yy", ""]
    assert step.attributes["texts_second"] == "yy"


# -------------------------------------------------------------------------------------------------------------- cases


def matrix(rows, columns):
    """As in cases.f90: element (i, j), from 1, is 10 i + j."""
    return 10.0 * np.arange(1, rows + 1)[:, None] + np.arange(1, columns + 1)


def test_sections(context, start, place):
    """Sections with strides of any sign are put and got without gaps or copies of what lies between."""
    process = start("fortran_cases", "sections", **place)
    with context.create("matrix", timeout=DEADLINE_S, **place) as out:
        with context.open("sections", timeout=DEADLINE_S, **place) as stream, stream.step() as step:
            a = matrix(6, 5)
            expected = {"odd_rows": a[::2], "reversed": a[::-1, :0:-1], "row": a[2], "expression": 2 * a}
            expected |= {"masks": a[:4:2, 3::-1] > 30, "lent": a[1:5, 1:4]}
            for name, values in expected.items():
                np.testing.assert_array_equal(step[name][...], values, name)
            assert step.attributes["row"].tolist() == [21, 23, 25]
        with out.step() as step:
            step["M"] = matrix(6, 5)
            step["mask"] = np.array([[True, True, False, False], [False, False, True, True]])
    ended(process)


def test_kinds(context, start, place):
    process = start("fortran_cases", "kinds", **place)
    with context.open("kinds", timeout=DEADLINE_S, **place) as stream, stream.step() as step:
        assert step["bytes"].dtype == np.uint8 and step["bytes"][...].tolist() == [255, 0, 127]
        np.testing.assert_array_equal(step["range"][...], matrix(2, 3))
        assert step["range"].min_max == (11, 23)
        assert step["host"].kind == step["seconds"].kind == "local_value"
        assert step["seconds"][...].tolist() == [1.5] and step["time"].value == 2.5
        assert [step["particles"].block(number).tolist() for number in range(2)] == [[1, 2, 3], [4]]
        box = step["box"][...]
        assert box.shape == (2, 3, 2)
        np.testing.assert_array_equal(box[:, :, 1], matrix(2, 3))
        np.testing.assert_array_equal(box[1, :, 0], matrix(2, 3)[0])
        assert step["one"].shape == (5,) and step["one"][3] == 7
        assert step["empty"].shape == (0, 3)
    ended(process)


def test_selections(context, start, place):
    process = start("fortran_cases", "select", **place)
    with context.create("all", timeout=DEADLINE_S, **place) as stream, stream.step() as step:
        step.put("M", matrix(3, 5), start=(0, 0), shape=(6, 5))
        step.put("M", matrix(6, 5)[3:], start=(3, 0))
        step["V"] = np.stack([matrix(2, 2), matrix(2, 2).T], axis=1)
        step.put_local("particles", np.array([1, 2], np.int32))
        step.put_local("particles", np.array([3], np.int32))
        step["bytes"] = np.array([255, 1], np.uint8)
        step.attributes["M/units"] = ["m", "s"]
    ended(process)


def test_outcomes(start, place):
    ended(start("fortran_cases", "outcomes", **place))


def test_a_lost_writer(start, place):
    ended(start("fortran_cases", "lost", **place))


def test_attributes(start, place):
    ended(start("fortran_cases", "attributes", **place))


def test_seek(context, start, file_engine, tmp_path):
    with context.create("kept", engine="file", folder=str(tmp_path / "kept.steps")) as stream:
        for number in range(5):
            with stream.step() as step:
                step["value"] = np.int32(10 * number)
    ended(start("fortran_cases", "seek", engine="file"))


def test_a_shape_that_changes(context, start, place):
    process = start("fortran_cases", "reshape", **place)
    with context.open("grows", timeout=DEADLINE_S, **place) as stream:
        found = [step["v"][...].tolist() for step in stream]
    assert found == [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1, 2, 3]]
    ended(process)


# (case of errors() in cases.f90, stat, words of errmsg), in its order
ERRORS = [
    ("not open", 2, "the writer is not open: call create_stream first"),
    ("no writer", 1, "the writer is not open: call create_stream first"),
    ("no reader", 1, "the reader is not open: call open_stream first"),
    ("no context", 1, "the context is not open: call create first"),
    ("nobody", 40, "nobody"),
    ("option", 4, "no_such_option"),
    ("no step", 2, "the writer has no step open"),
    ("none", 0, "unchanged"),
    ("type", 1, "'a' is a global array of float64; what was given is a global array of float32"),
    ("kind", 1, "'a' is a global array of float64; what was given is a global value of float64"),
    ("part", 1, "'b': a part of an array needs shape= the first time"),
    ("start", 1, "'a': start(2) is 0; the least is 1"),
    ("outside", 1, "a"),
    ("rank", 1, "'a': the array is (3, 2), and the box is (3)"),
    ("vectors", 1, "'a': count has 2 elements, not one for each dimension"),
    ("reals", 1, "'a': start is not a vector of integers of 4 or 8 bytes"),
    ("derived", 1, "'c': there are no variables of this type or rank"),
    ("deep", 1, "'d': there are no variables of this type or rank"),
    ("texts", 1, "'c': there are no arrays of text; vectors of text can be attributes"),
    ("matrix", 1, "'m': an attribute is a value or a vector"),
    ("NUL in a text", 1, "text 'ab' goes on after its character 3, a NUL, which ends texts: take the NUL out"),
    ("NUL in a name", 1, "name 'a' goes on after its character 2, a NUL"),
    ("NUL in a vector", 1, "text '' goes on after its character 1, a NUL"),
    ("NUL in options", 1, "options 'shm' goes on after its character 4, a NUL"),
    ("never allocated", 1, "'never': the array is not allocated"),
    ("deallocated", 1, "'freed': the array is not allocated"),
    ("got type", 1, "'a' has elements of float64; what was given to receive them has int32"),
    ("got shape", 1, "'a': the array is (3), and the box is (3, 2)"),
    ("narrow", 1, "'text' has more texts, or longer ones, than there is room for"),
    ("got never allocated", 1, "'a': the array is not allocated"),
    ("block 0", 1, "'a': block is 0; blocks count from 1"),
    ("block -1", 1, "'a': block is -1; blocks count from 1"),
    ("block and start", 1, "'a': block, points, and start, count or stride exclude each other; give one"),
    ("points and stride", 1, "'a': block, points, and start, count or stride exclude each other; give one"),
    ("got NUL", 1, "name 'a' goes on after its character 2, a NUL"),
    ("NUL for text", 1, "name 'text' goes on after its character 5, a NUL"),
    ("NUL inquired", 1, "name 'a' goes on after its character 2, a NUL"),
    ("not found", 3, "b"),
    ("size", 1, "attribute 'n' has 2 elements; what was given to receive them is ()"),
    ("no text", 1, "'n' is no text"),
]


def test_errors_are_in_stat_and_errmsg(start):
    lines = [line.split("|") for line in ended(start("fortran_cases", "errors", data_plane="shm")).splitlines()]
    assert [(case, int(stat)) for case, stat, _ in lines] == [(case, stat) for case, stat, _ in ERRORS]
    for (case, _, message), (_, _, words) in zip(lines, ERRORS, strict=True):
        assert words in message, case


def test_an_error_without_stat_ends_the_program(start):
    process = start("fortran_cases", "stop", data_plane="shm")
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert errors.startswith("ERROR STOP penstock: 'a': a part of an array needs shape= the first time\n")


@pytest.mark.skipif(not (BIN / "fortran_ranks").exists() or not shutil.which("mpiexec"), reason="needs MPI for Fortran")
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks(ranks, context, start, place):
    """Each rank puts its columns and gets its rows. Python reads all of it."""
    # Room for all steps: a program that writes and reads reads none while it waits for room.
    process = start("fortran_ranks", launcher=["mpiexec", "-n", ranks], rendezvous_readers=2, queue_steps=8, **place)
    with context.open("ranks", timeout=DEADLINE_S, **place) as stream:
        for number, step in enumerate(stream):
            expected = 100 * number + matrix(5, 7)
            np.testing.assert_array_equal(step["T"][...], expected)
            assert step["rank"][...].tolist() == list(range(ranks))
    assert number == 2
    ended(process)


def test_array_space(pool_servers, open_space, start, monkeypatch):
    servers = pool_servers(2)
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    space = open_space(servers)
    T = space.define("T", "float64", (6, 5))
    process = start("fortran_space")
    T[3][...] = matrix(6, 5)
    U = space.wait("U", timeout=DEADLINE_S)
    np.testing.assert_array_equal(U[0].get(), matrix(6, 5))
    ended(process)
    np.testing.assert_array_equal(space["masks", 0].get(), matrix(6, 5) > 30)
