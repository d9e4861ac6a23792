"""The file that `penstock stream save` writes, made of values that no stream was needed for, and of kept streams."""

import os
import signal
import subprocess
import sys

import numpy as np
import penstock
import pytest

h5py = pytest.importorskip("h5py")

from penstock import save  # noqa: E402
from penstock.archive import Archive, LocalBlocks, Value  # noqa: E402
from penstock.save import save_stream  # noqa: E402


def write(path, steps, **finish):
    """steps: a list of (number, {name: data}, attributes)"""
    with Archive(path) as archive:
        for number, values, attributes in steps:
            archive.add_step(number, {name: Value(data) for name, data in values.items()}, attributes)
        archive.finish(**({"complete": True} | finish))
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    return h5py.File(path)


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    return folder / "out.h5"


TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"


@pytest.mark.parametrize("dtype", TYPES.split())
def test_every_type_comes_back(path, dtype):
    arrays = [np.arange(24).reshape(4, 6).astype(dtype) + np.ones((), dtype) * i for i in range(3)]
    with write(path, [(i, {"T": array}, {}) for i, array in enumerate(arrays)]) as file:
        assert file["T"].shape == (3, 4, 6)
        assert file["T"].maxshape == (None, 4, 6)
        expected = np.stack(arrays).astype("int8") if dtype == "bool" else np.stack(arrays)
        np.testing.assert_array_equal(file["T"][...], expected)


def test_values_texts_and_lists(path):
    steps = [(i, {"n": np.int32(i), "word": f"step {i}", "words": np.array(["a", "ü"], object)}, {}) for i in (0, 1)]
    with write(path, steps) as file:
        assert list(file["n"]) == [0, 1]
        assert list(file["word"].asstr()[...]) == ["step 0", "step 1"]
        assert file["words"].asstr()[1].tolist() == ["a", "ü"]


def test_step_numbers_with_gaps(path):
    with write(path, [(n, {"x": np.float64(n)}, {}) for n in (3, 7, 1000)], complete=False, steps_dropped=995) as file:
        assert list(file["step"]) == [3, 7, 1000]
        assert (file.attrs["penstock_complete"], file.attrs["penstock_steps_dropped"]) == (0, 995)


def test_a_shape_that_changes_moves_into_groups(path):
    steps = [(i, {"x": np.full(2 + (i >= 2), i), "T": np.zeros(2)}, {"x/units": "m"}) for i in range(4)]
    with write(path, steps) as file:
        assert "x" not in file
        for i in range(4):
            np.testing.assert_array_equal(file[f"steps/{i:08d}/x"], np.full(2 + (i >= 2), i))
        assert file["steps/00000003/x"].attrs["units"] == "m"
        assert file["T"].shape == (4, 2)


def test_variables_that_come_and_go_and_local_arrays(path):
    steps = [
        (0, {"a": np.ones(2), "p": LocalBlocks([np.ones(1), np.ones(3)])}, {}),
        (1, {"b": np.ones(2), "p": LocalBlocks([np.ones(0)])}, {}),
        (2, {"a": np.ones(2), "b": np.ones(2), "empty": np.ones((0, 4))}, {}),
    ]
    with write(path, steps) as file:
        assert sorted(file) == ["a_dim_0", "penstock", "step", "steps"]
        assert sorted(file["steps/00000000"]) == ["a", "p"]
        assert file["steps/00000000/p/1"].shape == (3,)
        assert sorted(file["steps/00000001"]) == ["b", "p"]
        assert file["steps/00000002/empty"].shape == (0, 4)


def test_variables_may_be_called_step_and_steps(path):
    values = {"step": np.int64(5), "steps": np.int64(9), "steps_dim_0": np.ones(3)}
    with write(path, [(0, values, {"step": 1}), (1, values, {"step": 2})]) as file:
        assert list(file["step"]) == [5, 5]
        assert list(file["penstock_step"]) == [0, 1]
        assert file["steps_dim_0"].shape == (2, 3)
        assert list(file["_step"]) == [1, 2]


def test_attributes_that_stay_and_that_change(path):
    steps = [
        (
            i,
            {"T": np.ones(2)},
            {"time": 0 if i == 0 else i / 2, "code": "gs", "T/units": "K", "note": f"n{i}", "v": [1, 2]},
        )
        for i in range(3)
    ]
    steps[2][2]["late"] = 4
    with write(path, steps) as file:
        assert list(file["time"]) == [0.0, 0.5, 1.0]  # a whole number at first
        assert file["T"].attrs["units"] == "K"
        assert (file.attrs["code"], file.attrs["note"], file.attrs["late"]) == ("gs", "n2", 4)
        assert list(file.attrs["v"]) == [1, 2]
        assert file["steps/00000001"].attrs["note"] == "n1"


@pytest.mark.parametrize("append", [False, True], ids=["at_once", "appended"])
def test_attributes_whose_names_collide_are_all_kept(path, append):
    """A slash becomes "_"; the file, its datasets and the groups of steps have attributes of their own."""
    constant = {"a/b": 1, "a_b": 2, "T/DIMENSION_LIST": "mine", "penstock_complete": "said"}
    steps = [(i, {"T": np.zeros(3)}, constant | {"c/d": f"step {i}", "c_d": f"other {i}"}) for i in range(4)]
    with write(path, steps[:2] if append else steps):
        pass
    if append:
        with Archive(path, append=True) as archive:
            for number, values, attributes in steps[2:]:
                archive.add_step(number, {name: Value(data) for name, data in values.items()}, attributes)
            archive.finish(complete=True)
    with h5py.File(path) as file:
        assert (file.attrs["a_b"], file.attrs["_a_b"]) == (1, 2)
        assert (file.attrs["penstock_complete"], file.attrs["_penstock_complete"]) == (1, "said")
        assert file["T"].attrs["_DIMENSION_LIST"] == "mine" and file["T"].dims[0].keys() == ["step"]
        for i in range(1, 4):
            assert file[f"steps/{i:08d}"].attrs["c_d"] == f"step {i}"
            assert file[f"steps/{i:08d}"].attrs["_c_d"] == f"other {i}"


def test_a_number_that_becomes_a_text(path):
    with write(path, [(i, {"T": np.ones(2)}, {"a": a}) for i, a in enumerate([1, 2, "three"])]) as file:
        assert "a" not in file
        assert [file[f"steps/0000000{i}"].attrs["a"] for i in range(3)] == [1, 2, "three"]


def test_xarray_opens_it(path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    steps = [
        (10 * i, {"T": np.full((2, 3), i), "U": np.ones((2, 3)), "on": np.array([True, False])}, {"time": i / 4})
        for i in range(4)
    ]
    write(path, steps).close()
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        assert data["T"].dims == ("step", "T_dim_0", "T_dim_1")
        assert list(data["step"].values) == [0, 10, 20, 30]
        assert int(data["T"].sel(step=20)[0, 0]) == 2
        assert data["on"].dtype == bool
        assert list(data["time"].values) == [0, 0.25, 0.5, 0.75]


def test_dimensions_may_have_names(path):
    with Archive(path) as archive:
        archive.add_step(0, {"T": Value(np.ones((4, 6)), ("x", "y")), "E": Value(np.ones(5), ("x",))}, {})
        archive.finish(complete=True)
    with h5py.File(path) as file:
        assert file["T"].dims[1][0].name == "/x"
        assert file["E"].dims[1][0].name == "/x_5"


def test_what_is_not_finished_leaves_nothing(path):
    with pytest.raises(RuntimeError), Archive(path) as archive:
        archive.add_step(0, {"T": Value(np.ones(3))}, {})
        assert not path.exists()
        raise RuntimeError
    assert os.listdir(path.parent) == []
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Archive(path.parent / "nowhere" / "out.h5")


def test_large_arrays_are_cut_into_chunks(path):
    with Archive(path) as archive:
        archive.add_step(0, {"T": Value(np.zeros((5_000_000, 3), np.float32))}, {})
        archive.finish(complete=True)
    with h5py.File(path) as file:
        assert file["T"].chunks[0] == 1
        assert np.prod(file["T"].chunks) * 4 <= 32 << 20


# ------------------------------------------------------------------------------------------------- from kept streams


@pytest.fixture
def folder(tmp_path, file_engine):
    """A stream in files: steps 0 to 19, without 4 and 5."""
    folder = tmp_path / "heat.steps"
    extend(folder, 20)
    for number in (4, 5):
        (folder / f"{number:08d}.h5").unlink()
    return folder


def extend(folder, count, more=lambda step: None):
    with penstock.create("heat", engine="file", folder=folder, resume="append") as stream:
        for _ in range(count):
            with stream.step() as step:
                step["T"] = np.full((2, 3), float(step.number))
                step["n"] = step.number
                step.attributes.update(
                    {"T/dims": ["y", "x"], "T/units": "K", "time": 0.5 * step.number, "code": "test"}
                )
                more(step)


def steps_in(path):
    """The numbers, once every dataset has been found to fit them."""
    with h5py.File(path) as file:
        numbers = file["step"][...].tolist()
        assert file["T"][:, 1, 2].tolist() == file["n"][...].tolist() == numbers
        assert len(numbers) == 1 or file["time"][...].tolist() == [0.5 * number for number in numbers]
        return numbers


@pytest.mark.parametrize(
    "choice, numbers",
    [
        ({"first": 17}, [17, 18, 19]),
        ({"first": 5, "steps": 2}, [6, 7]),
        ({"every": 5}, [0, 6, 10, 15]),
        ({"first": 2, "every": 4, "steps": 3}, [2, 6, 10]),
        ({"first": 3, "every": 100}, [3]),
    ],
)
def test_some_of_the_steps(folder, path, choice, numbers):
    result = save_stream(folder, path, **choice)
    assert steps_in(path) == numbers and result.steps == len(numbers) and not result.problem


def test_steps_that_are_skipped_are_not_read(folder, path, monkeypatch):
    seen = []
    read = penstock.Reader.step
    monkeypatch.setattr(penstock.Reader, "step", lambda self, *how: seen.append(read(self, *how)) or seen[-1])
    save_stream(folder, path, first=8, every=6)
    assert [step.number for step in seen] == [8, 14, 19]  # the last one is read to know that it is before 20


BAD_CHOICES = [{"first": -1}, {"every": 0}, {"steps": 0}, {"steps": 1.5}, {"compression": -1}, {"compression": 10}]


@pytest.mark.parametrize("choice", [{"first": 20}, *BAD_CHOICES])
def test_a_bad_choice_leaves_what_was_there(folder, path, choice):
    path.write_text("precious")
    error = penstock.NotFound if choice == {"first": 20} else penstock.InvalidArgument
    with pytest.raises(error, match=r"ended before step 20|is a whole number from [01] on|at most 9, not 10"):
        save_stream(folder, path, force=True, **choice)
    assert path.read_text() == "precious" and os.listdir(path.parent) == [path.name]


def test_compression(folder, path):
    def more(step):
        step["flat"] = np.full((100, 100), 1.5)
        step["grows"] = np.full((100, 100 + step.number // 21), 1.5)  # each step has its own
        step["word"] = "text"
        step["empty"] = np.zeros((0, 3))

    extend(folder, 3, more)
    sizes = {}
    for level in (0, 1, 9):
        assert not save_stream(folder, path, first=20, compression=level, force=True).problem
        assert steps_in(path) == [20, 21, 22]
        with h5py.File(path) as file:
            assert (file["flat"][...] == 1.5).all() and file["word"].asstr()[2] == "text"
            for name in ("flat", "T", "steps/00000020/grows", "steps/00000022/grows"):
                assert (file[name].compression, file[name].compression_opts) == (
                    ("gzip", level) if level else (None,) * 2
                )
        sizes[level] = path.stat().st_size
    assert sizes[1] < sizes[0] / 5 and sizes[9] <= sizes[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_never_leaves_half_a_step(folder, path, monkeypatch, number):
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    append, finish, places = Archive._append, Archive.finish, []

    def append_and_signal(dataset, index, value):
        if index == 3:
            os.kill(os.getpid(), number)
            places.append(dataset.name)
        append(dataset, index, value)

    def signal_and_finish(self, **how):
        os.kill(os.getpid(), number)
        return finish(self, **how)

    monkeypatch.setattr(Archive, "_append", staticmethod(append_and_signal))
    monkeypatch.setattr(Archive, "finish", signal_and_finish)
    try:
        result = save_stream(folder, path)
        assert (result.problem, result.steps) == ("interrupted", 4) and steps_in(path) == [0, 1, 2, 3]
        assert len(places) == 4
        assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def contents(path):
    """All datasets and attributes but the layout."""
    found = {}
    with h5py.File(path) as file:

        def note(name, item):
            if isinstance(item, h5py.Dataset):
                found[name] = (item.asstr() if h5py.check_string_dtype(item.dtype) else item)[...].tolist()
            for key, value in item.attrs.items():
                if key not in ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", "_Netcdf4Dimid", "layout"):
                    found[f"{name}@{key}"] = np.asarray(value).tolist()

        note("", file)
        file.visititems(note)
    return found


def put_all_kinds(step):
    """What is odd about a stream from step 23 on, of which 20 to 25 are saved."""
    number = step.number
    step["word"] = f"step {number}"
    step["a"] = np.arange(3)
    step["a/b"] = np.arange(4) * number
    step["y"] = np.arange(2.0)  # a dimension's name
    step["step"] = number * 10
    step["on"] = np.array([True, False])
    step["grows"] = np.full(2 + (number >= 24), number)
    step["late"] = np.full(2 + (number >= 21), number)
    step.put_local("part", np.arange(number - 18))
    if number != 24:
        step["gone"] = number
    step.attributes.update({"flag": True, "names": ["a", "b"], "vector": [1.0, float(number >= 25)], "a/dims": ["y"]})
    step.attributes.update({"level": 3 if number < 24 else 4, "note": f"n{number // 2}", "z": 1j, "a/b/c": 1})
    step.attributes["kind"] = 1 if number < 25 else "one"


@pytest.mark.parametrize("parts", [[3], [1, 1], [5], [1, 1, 1, 2]])
@pytest.mark.parametrize("compression", [0, 3])
def test_appended_steps_are_as_if_saved_at_once(folder, path, parts, compression):
    extend(folder, 6, put_all_kinds)
    whole = path.with_name("whole.h5")
    assert not save_stream(folder, whole, first=20, compression=compression).problem
    for steps in parts:
        result = save_stream(folder, path, first=20, steps=steps, append=True, compression=compression)
        assert (result.steps, result.problem) == (steps, "")
    result = save_stream(folder, path, append=True, compression=compression)
    assert (result.steps, result.problem) == (6 - sum(parts), "")
    ours, expected = contents(path), contents(whole)
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert ours[name] == value, name
    if xarray := pytest.importorskip("xarray"):
        pytest.importorskip("h5netcdf")
        with xarray.open_dataset(path, engine="h5netcdf") as data, xarray.open_dataset(whole, engine="h5netcdf") as all:
            xarray.testing.assert_identical(data, all)


def test_append_skips_what_is_there_and_counts_on(folder, path):
    assert save_stream(folder, path, every=5, steps=2, append=True).steps == 2  # a new file
    assert steps_in(path) == [0, 6]
    assert save_stream(folder, path, every=5, append=True).steps == 2 and steps_in(path) == [0, 6, 10, 15]
    before = path.read_bytes()
    assert save_stream(folder, path, every=5, append=True).steps == 0 and path.read_bytes() == before
    extend(folder, 2)
    assert save_stream(folder, path, first=20, append=True).steps == 2
    assert steps_in(path) == [0, 6, 10, 15, 20, 21] and os.listdir(path.parent) == [path.name]


def test_append_after_an_attribute_that_hdf5_cannot_hold(folder, path):
    extend(folder, 2, lambda step: step.attributes.__setitem__("bad", "a\0b"))
    for steps in (1, None):
        result = save_stream(folder, path, first=20, steps=steps, append=True)
        assert (result.steps, result.problem) == (1, "attributes that HDF5 cannot hold: bad")
    assert steps_in(path) == [20, 21]


def test_append_keeps_the_choice_of_variables(folder, path):
    save_stream(folder, path, variables=["n"], steps=2)
    save_stream(folder, path, append=True, steps=2)
    with h5py.File(path) as file:
        assert "T" not in file and file["n"][...].tolist() == [0, 1, 2, 3]
    save_stream(folder, path, append=True, variables=["n"], steps=1)
    with pytest.raises(penstock.InvalidArgument, match="has the variables n, not n, T"):
        save_stream(folder, path, append=True, variables=["n", "T"])


def test_what_cannot_be_appended_to_stays_as_it_was(folder, path, tmp_path):
    def refused(match, **more):
        before = path.read_bytes()
        with pytest.raises(penstock.InvalidArgument, match=match):
            save_stream(folder, path, append=True, **more)
        assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]

    path.write_text("precious")
    refused("is no HDF5 file")
    with h5py.File(path, "w") as file:
        file["step"] = [1, 2]
    refused("this version of penstock stream save has not written it")
    for layout in ("{}", "[", "[]", '{"names": 3}'):
        with h5py.File(path, "a") as file:
            file.require_group("penstock").attrs["layout"] = layout
        refused("cannot be appended to")
    save_stream(folder, path, first=18, force=True)
    refused("either replaced", force=True)
    extend(folder, 2)
    steps = save_stream(folder, path, append=True)
    assert steps.steps == 2
    others = {"is an array of 2 dimensions of float64 there": np.zeros((2, 3), np.float32)}
    others |= {"an array of 1 dimensions of float64 in the step": np.zeros(3), "the step has no 'T'": None}
    for count, (match, T) in enumerate(others.items()):
        folder = tmp_path / f"{count}.steps"
        with penstock.create("heat", engine="file", folder=folder) as stream:
            for number in range(24):
                with stream.step() as step:
                    step["n"] = number
                    if T is not None:
                        step["T"] = T
        refused(match)


def test_an_append_that_is_interrupted_keeps_whole_steps(folder, path, monkeypatch):
    save_stream(folder, path, steps=3)
    read = save._values

    def interrupted(step, names):
        if step.number == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return read(step, names)

    monkeypatch.setattr(save, "_values", interrupted)
    result = save_stream(folder, path, append=True)
    assert (result.steps, result.problem) == (2, "interrupted") and steps_in(path) == [0, 1, 2, 3, 6]
    with h5py.File(path) as file:
        assert file.attrs["penstock_complete"] == 0
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        save_stream(folder, path, append=True)
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


def test_append_after_a_step_that_hdf5_cannot_hold(folder, path):
    def more(step):
        step["name"] = "a\0b" if step.number == 21 else "ab"
        if step.number == 21:
            step["new"] = np.ones(3)

    extend(folder, 4, more)
    result = save_stream(folder, path, first=20)
    assert result.steps == 1 and "step 21 cannot be kept in HDF5" in result.problem
    with pytest.raises(penstock.Unsupported, match="step 21 cannot be kept"):
        save_stream(folder, path, append=True)
    result = save_stream(folder, path, first=22, append=True)
    assert (result.steps, result.problem) == (2, "") and steps_in(path) == [20, 22, 23]


def test_an_error_after_the_first_step_keeps_the_steps(folder, path):
    def fail(steps, size):
        if steps == 3:
            raise MemoryError

    result = save_stream(folder, path, on_step=fail)
    assert (result.steps, result.problem) == (3, "MemoryError") and steps_in(path) == [0, 1, 2]


def test_append_to_a_link_and_to_another_stream(folder, path, tmp_path):
    save_stream(folder, path, steps=2)
    path.chmod(0o640)
    link = tmp_path / "link.h5"
    link.symlink_to(path)
    save_stream(folder, link, append=True, steps=1)
    assert link.is_symlink() and steps_in(path) == [0, 1, 2] and path.stat().st_mode & 0o777 == 0o640
    other = tmp_path / "other.steps"
    with penstock.create("wake", engine="file", folder=other) as stream, stream.step() as step:
        step["T"] = np.zeros((2, 3))
    with pytest.raises(penstock.InvalidArgument, match="it has steps of stream 'heat', not 'wake'"):
        save_stream(other, path, append=True)


@pytest.mark.parametrize(("limit", "steps"), [(3_000_000, 20), (100, 1)])  # in a step; at the end
def test_a_file_that_cannot_grow_is_one_clear_error(path, tmp_path, limit, steps):
    with penstock.create("large", engine="file", folder=tmp_path / "large.steps") as stream:
        for number in range(steps):
            with stream.step() as step:
                step["T"] = np.random.default_rng(number).random((256, 512))
    program = f"""
import resource, sys
import penstock
from penstock.save import save_stream

resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    save_stream(sys.argv[1], sys.argv[2])
except penstock.SystemFailure as error:
    print(error)
"""
    words = [sys.executable, "-c", program, tmp_path / "large.steps", path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{path} cannot grow (File too large); nothing was kept\n"), (
        done.stderr
    )
    assert list(path.parent.iterdir()) == []
