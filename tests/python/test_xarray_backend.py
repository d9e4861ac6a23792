"""xarray.open_dataset(name, engine="penstock"): the class is given, so that the package need not be installed anew."""

import importlib
import pickle
import tomllib
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import penstock
import pytest

xarray = pytest.importorskip("xarray")

from penstock.xarray_backend import PenstockBackend  # noqa: E402

TIMEOUT_S = 20.0
STEPS = 6


def temperature(number):
    return 100.0 * number + np.arange(24.0).reshape(4, 6)


def put(step, number):
    step["T"] = temperature(number)
    step["x"] = 0.5 * np.arange(6.0)
    step["note"] = f"step {number}"
    step["seconds"] = 2.0 * number
    step.put_local("part", np.arange(3) + number)
    step.attributes.update({"T/dims": ["y", "x"], "T/units": "K", "x/dims": "x", "title": "run"})
    step.attributes["time"] = 0.25 * number
    step.attributes["cycle"] = 10 * number


def fill(stream, steps=STEPS, put=put):
    for number in range(steps):
        with stream.step() as step:
            put(step, number)


def opened(name, **options):
    return xarray.open_dataset(name, engine=PenstockBackend, **options)


@pytest.fixture
def write(tmp_path, file_engine):
    """write(put, steps) writes a stream in files and returns its folder."""

    def write(put=put, steps=STEPS):
        folder = tmp_path / "heat.steps"
        with penstock.create("heat", engine="file", folder=folder) as stream:
            fill(stream, steps, put)
        return folder

    return write


@pytest.fixture
def reads(monkeypatch):
    """What is read: (step, index) of each read of a variable."""
    found = []
    read = penstock.Variable.read

    def recorded(self, index=..., **how):
        found.append((self._step.number, index))
        return read(self, index, **how)

    monkeypatch.setattr(penstock.Variable, "read", recorded)
    return found


@pytest.fixture
def own_directory(tmp_path):
    penstock.config(directory=tmp_path / "streams")
    yield
    penstock.config(directory="")


def test_kept_steps_are_a_dimension(write, reads):
    folder = write()
    with opened(folder) as data:
        assert [step for step, _ in reads] == list(range(STEPS))  # the coordinate x alone
        assert data["T"].dims == ("step", "y", "x") and data["T"].shape == (STEPS, 4, 6)
        assert data["T"].attrs == {"units": "K"} and data.attrs == {"title": "run"}
        assert set(data.coords) == {"step", "time", "x"} and data["x"].dims == ("x",)
        assert data["time"].dims == ("step",) and data["time"].values.tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25]
        assert data["cycle"].values.tolist() == [0, 10, 20, 30, 40, 50] and data["seconds"].dtype == float
        assert data["part"].dims == ("step", "part_dim_0") and data["part"][2].values.tolist() == [2, 3, 4]
        assert data["note"][[1, 4]].values.tolist() == ["step 1", "step 4"]
        np.testing.assert_array_equal(data["T"], [temperature(number) for number in range(STEPS)])


def test_names_agree_with_to_xarray(write):
    folder = write()
    with penstock.open(folder) as stream, opened(folder) as data, stream[3] as step:
        one = step.to_xarray()
        assert set(one.variables) == set(data.variables) - {"step", "time", "cycle"}  # attributes of one step
        for name in one.variables:
            ours = data[name].isel(step=3, missing_dims="ignore").drop_vars(["step", "time"], errors="ignore")
            xarray.testing.assert_equal(one[name].variable, ours.variable)
            assert one[name].attrs == ours.attrs
        assert one.attrs["time"] == data["time"][3] and one.attrs["step"] == data["step"][3]


def test_a_slice_reads_only_what_it_names(write, reads):
    data = opened(write())
    reads.clear()
    assert data["T"].sel(step=3, x=1.0).values.tolist() == temperature(3)[:, 2].tolist()
    ((step, box),) = reads
    assert step == 3 and penstock.selection.pick(box, (4, 6)).count == (4, 1)
    reads.clear()
    data["T"][[5, 1], 1:3].load()
    assert sorted(step for step, _ in reads) == [1, 5]
    assert all(penstock.selection.pick(box, (4, 6)).count == (2, 6) for _, box in reads)
    data.close()


def test_every_index_gives_what_numpy_gives(write):
    expected = np.array([temperature(number) for number in range(STEPS)])
    indices = [
        (2, 1, 3),
        (slice(None, None, -2), slice(None), slice(None, None, -1)),
        ([4, 0, 4], slice(1, 3), slice(None)),
        (slice(1, 4), [2, 0], [5, 1, 1]),
        (-1, [3], 0),
        (slice(0, 0), slice(None), 1),
        (slice(None), [], slice(None)),
        (slice(2, 4), [-1, 0], [-1, 3, -2]),
        ([0, -1], slice(3, 1), slice(None)),
    ]
    with opened(write()) as data:
        for index in indices:
            orthogonal = xarray.Variable(("s", "y", "x"), expected)[index]
            np.testing.assert_array_equal(data["T"].variable[index], orthogonal, err_msg=str(index))
        pointwise = {"step": xarray.DataArray([0, 5], dims="p"), "x": xarray.DataArray([1, 2], dims="p")}
        np.testing.assert_array_equal(data["T"].isel(pointwise), expected[[0, 5], :, [1, 2]])


def test_choice_of_steps(write):
    folder = write()
    for steps, numbers in [(slice(1, 3), [1, 2]), (slice(-2, None), [4, 5]), ([4, 1], [4, 1]), (np.array([3]), [3])]:
        with opened(folder, steps=steps) as data:
            assert data["step"].values.tolist() == numbers and data["T"][-1, 0, 0] == 100 * numbers[-1]
            assert data["time"].dims == ("step",)
    with opened(folder / "00000002.h5") as data:  # the file of one step
        assert data["step"].values.tolist() == [2]
    with opened(folder, drop_variables=["T", "time"]) as data:
        assert "T" not in data and "part" in data
    with pytest.raises(penstock.NotFound, match="does not keep step 17"):
        opened(folder, steps=[1, 17])
    with pytest.raises(penstock.NotFound, match="selects none of 6 steps"):
        opened(folder, steps=slice(9, None))
    with pytest.raises(penstock.InvalidArgument, match="a slice or a list of step numbers, not 3"):
        opened(folder, steps=3)
    with pytest.raises(penstock.UnknownOption, match="folde"):
        opened(folder, folde="elsewhere")


def test_what_does_not_fit_is_left_out_with_a_warning(write):
    def put_changing(step, number):
        put(step, number)
        step["grows"] = np.zeros(3 + (number >= 2))
        step["turns"] = np.zeros((2, 2))
        step.attributes["turns/dims"] = ["a", "b"] if number != 1 else ["b", "a"]
        step["moving"] = np.arange(3.0) + (number == 1)  # there and back
        step["missing"] = np.array([0.0, np.nan])
        step.attributes["missing/dims"] = "missing"
        step.attributes["moving/dims"] = "moving"
        step["grid"] = np.arange(4) + number
        step.put_local("pieces", np.zeros(2))
        step.put_local("pieces", np.zeros(3))
        if number != 4:
            step["absent"] = np.zeros(2)
        if number == 0:
            step["once"] = np.arange(4)  # a coordinate may be put once
            step.attributes["once/dims"] = ["once"]

    folder = write(put_changing)
    with pytest.warns(UserWarning) as told, opened(folder) as data:
        assert {"T", "x", "once", "grid", "missing"} < set(data.variables) and "once" in data.coords
    texts = sorted(str(each.message).partition("the dataset is without ")[2] for each in told)
    assert [text.split(":")[0] for text in texts] == ["'absent'", "'grows'", "'moving'", "'pieces'", "'turns'"]
    reasons = ["not in step 4", "step 2 it is float64 (4,)", "step 1 has other values", "2 blocks", "('b', 'a')"]
    for text, reason in zip(texts, reasons, strict=True):
        assert reason in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(folder, steps=slice(2, 4), drop_variables=["pieces"]).close()


def test_dimensions_that_do_not_fit(write):
    def put_badly(step, number):
        step["T"] = np.zeros((2, 3))
        step.attributes["T/dims"] = ["x"]

    with pytest.raises(penstock.InvalidArgument, match="'T/dims' names 1 dimensions, 'T' has 2"):
        opened(write(put_badly))


def test_a_variable_called_step(write):
    def put_step(step, number):
        step["step"] = 7
        step["time"] = 0.5 * number

    with opened(write(put_step)) as data:
        assert data["step"].dims == ("penstock_step",) and data["step"].values.tolist() == [7] * STEPS
        assert data["penstock_step"].values.tolist() == list(range(STEPS))
        assert data["time"].dims == ("penstock_step",) and "time" in data.coords and data["time"][3] == 1.5


def test_closing_closes_the_stream(write):
    data = opened(write())
    reader = data["T"].variable._data  # xarray's wrappers around our array
    while not hasattr(reader, "source"):
        reader = reader.array
    reader = reader.source.manager.acquire()
    assert not reader.closed
    data.close()
    assert reader.closed


def test_threads_and_copies_share_the_reader(write):
    with opened(write(), cache=False) as data, pickle.loads(pickle.dumps(data)) as copy:
        with ThreadPoolExecutor(4) as pool:
            means = list(pool.map(lambda n: float((data, copy)[n % 2]["T"][n % STEPS].mean()), range(24)))
        assert means == [temperature(n % STEPS).mean() for n in range(24)]


def test_a_chunk_of_dask_is_a_step(write, reads):
    pytest.importorskip("dask")
    with opened(write(), chunks={}) as data:
        assert data["T"].chunks == ((1,) * STEPS, (4,), (6,))
        reads.clear()
        np.testing.assert_array_equal(data["T"][2:4].mean(("y", "x")).compute(), [211.5, 311.5])
        assert sorted(step for step, _ in reads) == [2, 3]


def test_a_folder_is_recognized(write, tmp_path):
    backend = PenstockBackend()
    assert backend.guess_can_open(write()) and backend.guess_can_open(str(tmp_path / "heat.steps"))
    for other in (tmp_path, tmp_path / "heat.steps/00000000.h5", "heat", b"bytes", 3):
        assert not backend.guess_can_open(other)


def test_the_entry_point_names_the_class():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["xarray.backends"]["penstock"].partition(":")
    assert getattr(importlib.import_module(module), name) is PenstockBackend


def test_a_stream_in_a_pool(pool_servers, monkeypatch):
    servers = pool_servers(1, memory="256MiB", http="off")
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    with penstock.create("heat", engine="pool", pool="default", timeout=TIMEOUT_S) as stream:
        fill(stream)
        with opened("heat", stream_engine="pool", pool="default", timeout=TIMEOUT_S) as data:  # it is still written
            assert data.sizes["step"] == STEPS
            np.testing.assert_array_equal(data["T"][-2:], [temperature(4), temperature(5)])


def test_the_next_step_of_a_live_stream(own_directory):
    with penstock.create("heat", timeout=TIMEOUT_S, queue_steps=2) as stream, ThreadPoolExecutor() as pool:
        writing = pool.submit(fill, stream, 1)
        with opened("heat", timeout=TIMEOUT_S) as data:
            assert data["T"].dims == ("y", "x") and data.attrs["step"] == 0 and data["T"][1, 1] == 7
        writing.result(TIMEOUT_S)
        fill(stream, 8)  # the reader has left: nothing waits for it
        with pytest.raises(penstock.Unsupported, match="steps= needs a stream whose steps are kept"):
            opened("heat", steps=slice(3), timeout=TIMEOUT_S)


def test_a_stream_without_steps(tmp_path, file_engine):
    with penstock.create("heat", engine="file", folder=tmp_path / "heat.steps") as stream, ThreadPoolExecutor() as pool:
        opening = pool.submit(opened, tmp_path / "heat.steps", timeout=TIMEOUT_S)
        fill(stream, 1)
        with opening.result(TIMEOUT_S) as data:
            assert data.sizes["step"] == 1
    with penstock.create("none", engine="file", folder=tmp_path / "none.steps"):
        pass
    with pytest.raises(penstock.EndOfStream):
        opened(tmp_path / "none.steps")
