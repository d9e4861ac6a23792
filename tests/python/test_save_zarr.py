"""penstock stream save OUT.zarr."""

import json
import os
import subprocess
import sys

import numpy as np
import penstock
import pytest

zarr = pytest.importorskip("zarr")
xarray = pytest.importorskip("xarray")

from penstock.save import save_stream  # noqa: E402

pytestmark = pytest.mark.usefixtures("file_engine")


@pytest.fixture
def write(tmp_path):
    """write(more) writes steps 0 to 5 in files, and returns the folder."""

    def write(more=lambda step: None):
        with penstock.create("heat", engine="file", folder=tmp_path / "heat.steps") as stream:
            for n in range(6):
                with stream.step() as step:
                    step["T"] = np.full((2, 3), float(n))
                    step["n"] = n
                    step["word"] = f"step {n}"
                    step["on"] = np.array([True, False])
                    step["z"] = np.full(2, 1j * n, np.complex64)
                    step["a/b"] = np.arange(4, dtype=np.uint16) + n
                    step.put_local("part", np.arange(5) * n)
                    step.attributes.update({"T/dims": ["y", "x"], "T/units": "K", "time": 0.5 * n, "code": "test"})
                    step.attributes.update({"on/dims": ["x"]})  # another length
                    more(step)
        return tmp_path / "heat.steps"

    return write


@pytest.mark.parametrize("compression", [0, 3])
def test_xarray_opens_it(write, tmp_path, compression):
    result = save_stream(write(), tmp_path / "out.zarr", first=1, every=2, compression=compression)
    assert (result.steps, result.problem) == (3, "")
    with xarray.open_zarr(tmp_path / "out.zarr") as data:
        numbers = np.array([1, 3, 5])
        assert data["step"].values.tolist() == [1, 3, 5] and data["time"].values.tolist() == [0.5, 1.5, 2.5]
        assert data["T"].dims == ("step", "y", "x") and data["T"].attrs == {"units": "K"}
        np.testing.assert_array_equal(data["T"], numbers[:, None, None] + np.zeros((3, 2, 3)))
        assert data["n"].values.tolist() == [1, 3, 5] and data["word"].values.tolist() == ["step 1", "step 3", "step 5"]
        assert data["on"].dims == ("step", "x_2") and data["on"].dtype == bool and data["z"].dtype == np.complex64
        assert data["a_b"].dtype == np.uint16 and data["part"][2].values.tolist() == [0, 5, 10, 15, 20]
        assert data.attrs["code"] == "test" and data.attrs["penstock_complete"] == 1
        assert data.attrs["penstock_stream"] == "heat" and data.attrs["penstock_attributes"] == "{}"


@pytest.mark.parametrize(
    "more, match",
    [
        (lambda step: step.__setitem__("T", np.zeros((2, 3 + (step.number == 3)))), "the shape or type of 'T' changes"),
        (lambda step: step.number == 3 and step.__setitem__("new", 1), "'new' is not in every step"),
        (lambda step: step.number == 3 and step.put_local("part", np.zeros(5, int)), "'part' is a local array of 2"),
    ],
)
def test_what_only_hdf5_holds_ends_the_store(write, tmp_path, more, match):
    result = save_stream(write(more), tmp_path / "out.zarr")
    assert result.steps == 3 and f"step 3 cannot be kept in Zarr: {match}" in result.problem
    with xarray.open_zarr(tmp_path / "out.zarr") as data:
        assert data["n"].values.tolist() == [0, 1, 2] and data.attrs["penstock_complete"] == 0
    assert sorted(os.listdir(tmp_path)) == ["heat.steps", "out.zarr"]


def test_attributes_that_are_no_json(write, tmp_path):
    def more(step):
        step.attributes.update({"bad": 1j, "T/missing": float("nan"), "bias": [float(step.number), float("inf")]})

    result = save_stream(write(more), tmp_path / "out.zarr")
    assert result.steps == 6 and result.problem == "attributes that Zarr cannot hold: bad, T/missing, bias"
    assert xarray.open_zarr(tmp_path / "out.zarr").attrs["penstock_complete"] == 0


def test_attributes_that_change(write, tmp_path):
    def more(step):
        n = step.number
        step.attributes.update({"phase": "ramp" if n < 3 else "hold", "range": [0, n // 4], "T/greatest": n // 5})
        step.attributes.update({"count": n if n < 5 else "many"})
        if n > 1:
            step.attributes["late"] = 4
        if n > 3:
            step.attributes["T/dims"] = ["v", "u"]

    result = save_stream(write(more), tmp_path / "out.zarr", first=1)
    assert (result.steps, result.problem) == (5, "")
    with xarray.open_zarr(tmp_path / "out.zarr") as data:
        assert (data.attrs["phase"], data.attrs["count"], data.attrs["late"]) == ("hold", "many", 4)
        assert data.attrs["range"] == [0, 1] and data["T"].attrs == {"units": "K", "greatest": 1}
        assert data["time"].values.tolist() == [0.5, 1.0, 1.5, 2.0, 2.5] and data.attrs["penstock_complete"] == 1
        assert json.loads(data.attrs["penstock_attributes"]) == {
            "T/dims": {"1": ["y", "x"], "4": ["v", "u"]},
            "T/greatest": {"1": 0, "5": 1},
            "count": {"1": 1, "2": 2, "3": 3, "4": 4, "5": "many"},
            "late": {"2": 4},
            "phase": {"1": "ramp", "3": "hold"},
            "range": {"1": [0, 0], "4": [0, 1]},
        }


def test_attributes_whose_names_are_taken(write, tmp_path):
    def more(step):
        step.attributes.update({"c/d": 1, "c_d": "other", "penstock_complete": "mine", "a_b": step.number, "step": "s"})

    assert save_stream(write(more), tmp_path / "out.zarr", steps=2).problem == ""
    with xarray.open_zarr(tmp_path / "out.zarr") as data:
        assert (data.attrs["c_d"], data.attrs["penstock_complete"]) == (1, 1)
        assert data["a_b"].shape == (2, 4) and data["step"].values.tolist() == [0, 1]  # the variable a/b, and ours
        assert json.loads(data.attrs["penstock_attributes"]) == {
            "a_b": {"0": 0, "1": 1},
            "c_d": {"0": "other"},
            "penstock_complete": {"0": "mine"},
        }


def test_variables_whose_names_are_taken(write, tmp_path):
    def penstock_step(step):
        step["step"] = step["penstock/step"] = 2

    save_stream(write(penstock_step), tmp_path / "out.zarr", steps=1)
    assert zarr.open_group(tmp_path / "out.zarr")["penstock_penstock_step"][...].tolist() == [0]
    with pytest.raises(penstock.Unsupported, match="two variables would be 'a_b'"):
        save_stream(write(lambda step: step.__setitem__("a_b", 1)), tmp_path / "other.zarr")


def test_a_link_stays(write, tmp_path):
    folder, there = write(), tmp_path / "there"
    there.mkdir()
    link = tmp_path / "link.zarr"
    link.symlink_to(there / "out.zarr")
    for first in (0, 4):
        save_stream(folder, link, first=first, force=first > 0)
        assert link.is_symlink() and xarray.open_zarr(there / "out.zarr")["step"].values.tolist()[0] == first
    assert os.listdir(there) == ["out.zarr"] and sorted(os.listdir(tmp_path)) == ["heat.steps", "link.zarr", "there"]


def test_what_is_there_is_replaced_only_with_force(write, tmp_path):
    folder, out = write(), tmp_path / "out.zarr"
    out.mkdir()
    (out / "precious").touch()
    with pytest.raises(IsADirectoryError):
        save_stream(folder, out, force=True)
    (out / "precious").unlink()
    out.rmdir()
    save_stream(folder, out)
    with pytest.raises(FileExistsError):
        save_stream(folder, out)
    with pytest.raises(penstock.NotFound):
        save_stream(folder, out, force=True, first=20)
    with pytest.raises(penstock.InvalidArgument, match="only HDF5 files are appended to"):
        save_stream(folder, out, append=True)
    assert save_stream(folder, out, force=True, first=4).steps == 2
    assert xarray.open_zarr(out)["step"].values.tolist() == [4, 5]
    assert sorted(os.listdir(tmp_path)) == ["heat.steps", "out.zarr"]


def test_the_command(write, tmp_path):
    write()
    command = [sys.executable, "-m", "penstock.cli.main", "stream", "save", "heat", "out.zarr", "-v", "T,n"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    assert result.returncode == 0 and "6 steps, 336 B of data, in out.zarr" in result.stdout, result.stderr
