"""Streams in files: what h5py and xarray see of them, and what is left of writers that were killed at every write."""

import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import penstock
import pytest

h5py = pytest.importorskip("h5py")
BUILD = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build")) / "tests/unsynced"
pytestmark = pytest.mark.usefixtures("file_engine")


def write(folder, steps=3, **options):
    with penstock.create("heat", engine="file", folder=folder, **options) as stream:
        for t in range(steps):
            with stream.step() as step:
                step["T"] = np.full((4, 6), 10.0 * t) + np.arange(6)
                step.attributes["T/dims"] = ["y", "x"]
                step["time"] = 0.5 * t
                step["name"] = f"step {t}"
                step["flags"] = np.array([True, False])
                step["z"] = np.array([1 + 2j])
                step.attributes["T/units"] = "K"


def test_h5py_reads_masters(tmp_path):
    write(tmp_path / "heat.steps")
    with h5py.File(tmp_path / "heat.steps/00000002.h5") as file:
        assert file["T"].shape == (1, 4, 6) and (file["T"][0] == 20 + np.arange(6)).all()
        assert file["T"].attrs["units"] == "K" and file["step"][0] == 2
        assert [dimension[0].name for dimension in file["T"].dims] == ["/step", "/y", "/x"]
        assert file["name"].asstr()[0] == "step 2" and file["time"][0] == 1.0
        assert file["z"][0, 0] == 1 + 2j and file["flags"].attrs["dtype"] == "bool"


@pytest.mark.parametrize(
    "paths",
    [
        {
            "penstock": "_penstock",
            "penstock/x": "penstock_x",
            "penstock/y/z": "penstock_y_z",
            "_penstock": "__penstock",
        },
        {"penstock/blocks/0": "penstock_blocks_0"},
        {"_a": "_a", "a//b": "a/_/b", "a/_/b": "_a___b"},  # the free name would be below a variable
    ],
)
def test_names_that_are_in_each_others_way(tmp_path, paths):
    with penstock.create("heat", engine="file", folder=tmp_path / "heat.steps") as stream, stream.step() as step:
        for number, name in enumerate(paths):
            step[name] = np.full(3, number)
    with h5py.File(tmp_path / "heat.steps/00000000.h5") as file:
        assert [file[path][0, 0] for path in paths.values()] == list(range(len(paths)))
    with penstock.open(tmp_path / "heat.steps") as stream, stream[0] as step:
        assert [step[name][0] for name in paths] == list(range(len(paths)))


def test_a_chunk_that_claims_not_to_be_compressed_is_an_error(tmp_path):
    with penstock.create("heat", engine="file", folder=tmp_path / "heat.steps", compression=3) as stream:
        with stream.step() as step:
            step["T"] = np.full((100, 100), 5.0)
    with h5py.File(tmp_path / "heat.steps/00000000.h5", "r+") as damaged:
        block = damaged["penstock/blocks/0"]
        mask, raw = block.id.read_direct_chunk((0,) * block.ndim)
        assert mask == 0 and len(raw) < 80_000
        block.id.write_direct_chunk((0,) * block.ndim, raw + bytes(8), filter_mask=3)
    with penstock.open(tmp_path / "heat.steps") as stream, stream.step() as step:
        with pytest.raises(penstock.ProtocolError, match="neither whole nor compressed"):
            step["T"][...]


def test_what_does_not_compress_is_read_back(tmp_path):
    noise = np.random.default_rng(1).integers(0, 256, 3 << 20, dtype=np.uint8)  # deflate leaves such chunks as they are
    with penstock.create("noise", engine="file", folder=tmp_path / "noise.steps", compression=1) as stream:
        with stream.step() as step:
            step["x"] = noise
    with penstock.open(tmp_path / "noise.steps") as stream, stream.step() as step:
        assert np.array_equal(step["x"][...], noise)


def test_xarray_opens_one_and_all(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    with penstock.create("heat", engine="file", folder=tmp_path / "heat.steps") as stream:
        for t in range(3):
            with stream.step() as step:
                step["T"] = np.full((4, 6), 10.0 * t)
                step.attributes["T/dims"] = ["y", "x"]
                step["time"] = 0.5 * t
    with xarray.open_dataset(tmp_path / "heat.steps/00000001.h5", engine="h5netcdf") as data:
        assert data["T"].dims == ("step", "y", "x") and float(data["T"].mean()) == 10
    pytest.importorskip("dask")
    with xarray.open_mfdataset(str(tmp_path / "heat.steps/*.h5"), engine="h5netcdf") as data:
        assert data["T"].sizes["step"] == 3 and data["T"][:, 0, 0].values.tolist() == [0, 10, 20]


def test_saved_steps_are_those_of_the_masters(tmp_path):
    """Decision 16: a master is a saved file of one step."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    from penstock.save import save_stream

    with penstock.create("heat", engine="file", folder=tmp_path / "heat.steps") as stream:
        stream.attributes["code"] = "heat 1.0"
        for t in range(3):
            with stream.step() as step:
                step["T"] = np.full((4, 6), 10.0 * t) + np.arange(6)
                step.attributes["T/dims"] = ["y", "x"]
                step.attributes["T/units"] = "K"
                step["group/U"] = np.full((4, 6), t, np.float16)
                step["time"] = 0.5 * t
                step["name"] = f"step {t}"
                step["flags"] = np.array([True, False])
                step["z"] = np.array([1 + 2j])
                step["empty"] = np.zeros((0, 3), np.int32)
    assert save_stream(str(tmp_path / "heat.steps"), tmp_path / "heat.h5").steps == 3
    with h5py.File(tmp_path / "heat.h5") as saved, xarray.open_dataset(tmp_path / "heat.h5", engine="h5netcdf") as all:
        for t in range(3):
            path = tmp_path / f"heat.steps/{t:08d}.h5"
            with h5py.File(path) as master, xarray.open_dataset(path, engine="h5netcdf") as one:
                assert set(one.variables) == {*all.variables, "empty"}
                for name in all.variables:
                    xarray.testing.assert_identical(one[name], all[name].isel(step=[t]))
                    assert master[name].dtype == saved[name].dtype
                assert master.attrs["code"] == saved.attrs["code"]
                assert (master["group/U"][0] == saved["group/U"][t]).all()  # xarray shows no groups
                assert master["empty"].shape[1:] == saved[f"steps/{t:08d}/empty"].shape  # no chunks of nothing


def test_names_that_collide_are_kept_apart(tmp_path):
    """In masters and in saved files alike: a variable named like a dimension, like a group, or oddly."""
    from penstock.save import save_stream

    names = ["T", "x", "a", "a/b", "a//b", "T/units", "/T", "T/", ".", "trail/", "step", "steps", "penstock"]
    with penstock.create("heat", engine="file", folder=tmp_path / "heat.steps") as stream:
        stream.attributes["T/dims"] = ["x"]
        for t in range(2):
            with stream.step() as step:
                for number, name in enumerate(names):
                    step[name] = np.arange(3.0) + 10 * number + 100 * t
    assert not save_stream(str(tmp_path / "heat.steps"), tmp_path / "heat.h5").problem

    def first_elements(group):
        """Of the last step, by variable: what has a dimension `step` and another."""
        for name, item in group.items():
            if isinstance(item, h5py.Group):
                yield from first_elements(item) if name != "penstock" else ()
            elif item.ndim == 2:
                yield item[-1, 0]

    with h5py.File(tmp_path / "heat.steps/00000001.h5") as master, h5py.File(tmp_path / "heat.h5") as saved:
        assert sorted(first_elements(master)) == [100 + 10 * number for number in range(len(names))]
        assert sorted(first_elements(saved)) == [100 + 10 * number for number in range(len(names))]
        assert master["x"][0, 0] == saved["x"][1, 0] == 110 and master["a_b"][0, 0] == saved["a_b"][1, 0] == 130


def test_what_hdf5_cannot_hold_costs_one_step(tmp_path):
    from penstock.save import save_stream

    def save(put):
        folder, path = tmp_path / "live.steps", tmp_path / "live.h5"
        with penstock.create("live", engine="file", folder=folder) as stream:
            for t in range(6):
                with stream.step() as step:
                    step["T"] = np.full(4, float(t))
                    put(stream, step, t)
        result = save_stream(str(folder), path, force=True)
        with h5py.File(path) as file:
            steps = file["step"][...].tolist()
            assert file["T"][:, 0].tolist() == steps == list(range(result.steps))
        return result

    def text(stream, step, t):
        step["name"] = "a\0b" if t == 3 else "ab"

    assert (result := save(text)).steps == 3 and "step 3 cannot be kept in HDF5" in result.problem

    def late_attribute(stream, step, t):
        if t == 3:
            stream.attributes["large"] = np.arange(10_000.0)

    assert (result := save(late_attribute)).steps == 6 and not result.problem

    def attribute(stream, step, t):
        stream.attributes["bad"] = "a\0b"

    assert (result := save(attribute)).steps == 6 and "HDF5 cannot hold: bad" in result.problem


def test_a_selection_of_several_steps_is_one_array(tmp_path):
    write(tmp_path / "heat.steps", steps=7)
    (tmp_path / "heat.steps/00000001.h5").unlink()
    with penstock.open(tmp_path / "heat.steps") as stream:
        numbers = np.array(stream.steps)
        T = 10.0 * numbers[:, None, None] + np.arange(6) + np.zeros((1, 4, 1))
        for index in [
            (slice(None),),
            (slice(1, 4), ..., 3),
            (slice(None, None, -2), slice(None, None, -1), 2),
            (slice(-2, None), 1, slice(1, None, 2), None),
            (slice(0, 1), 0, 0),
        ]:
            got = stream[("T", *index)]
            assert got.dtype == T.dtype
            np.testing.assert_array_equal(got, T[index])
        assert stream["time", 1:].tolist() == (numbers[1:] / 2).tolist()
        assert stream["name", -2:].tolist() == ["step 5", "step 6"] and stream["z", :2, 0].tolist() == [1 + 2j] * 2
        for wrong in [("T", 3), (slice(3), "T"), ("T",)]:
            with pytest.raises(penstock.InvalidArgument, match="a variable's name, a slice of steps"):
                stream[wrong]
        with pytest.raises(
            penstock.NotFound, match=r"the slice 9:12 counts positions among the 6 kept steps \(numbers 0 to 6\)"
        ):
            stream["T", 9:12]
        with pytest.raises(IndexError):
            stream["T", :, 4]
    with penstock.create("heat", engine="file", folder=tmp_path / "heat.steps", resume="append") as stream:
        with stream.step() as step:
            step["T"] = np.zeros((4, 5))
    with penstock.open(tmp_path / "heat.steps") as stream:
        with pytest.raises(
            penstock.InvalidArgument, match=r"float64 \(4, 5\) in step 7, and float64 \(4, 6\) in step 5"
        ):
            stream["T", -3:, 0]
        with pytest.raises(penstock.NotFound, match="time"):
            stream["time", -3:]
        assert stream._step is None  # a failed read has ended its step


def test_a_path_opens_a_stream(tmp_path):
    write(tmp_path / "heat.steps", compression=3)
    with penstock.open(str(tmp_path / "heat.steps")) as stream:
        assert stream.steps == [0, 1, 2]
        assert [step.number for step in stream] == [0, 1, 2]
    with penstock.open(tmp_path / "heat.steps/00000001.h5") as stream:
        with stream.step() as step:
            assert step.number == 1 and (step["T"][1:3, 2] == 12).all()


def test_steps_from_the_end_and_slices(tmp_path):
    write(tmp_path / "heat.steps", steps=7)
    (tmp_path / "heat.steps/00000001.h5").unlink()  # so that numbers and places differ
    with penstock.open(tmp_path / "heat.steps") as stream:
        for number, expected in [(-1, 6), (-6, 0), (3, 3), (np.int64(-2), 5)]:
            with stream[number] as step:
                assert step.number == expected and step["T"][0, 0] == 10 * expected
        for part in (slice(1, 3), slice(None, None, 2), slice(-2, None), slice(None, None, -1), slice(9, 12)):
            assert [step["time"].value for step in stream[part]] == [number / 2 for number in stream.steps[part]]
        assert [step.number for step in stream[1:3]] == [2, 3]
        earlier = None
        for step in stream[:2]:
            assert earlier is None or "over" in repr(earlier)
            earlier = step
        next(stream[2:])  # dropped, and so ended
        assert stream[0].number == 0
        for number in (-7, 1, 7):
            with pytest.raises(penstock.NotFound, match=f"{number}$"):
                stream[number]
        with pytest.raises(penstock.InvalidArgument, match=r"a variable's name and such a slice .*, not str"):
            stream["T"]
        rest = stream[-3:]
        assert next(rest).number == 4
        (tmp_path / "heat.steps/00000005.h5").unlink()
        with pytest.raises(penstock.NotFound, match="does not keep step 5 any more"):
            next(rest)
        (tmp_path / "heat.steps/00000006.h5").unlink()
        with pytest.raises(penstock.NotFound, match="does not keep step 6"):
            stream._kept(6)


def test_a_reader_may_come_before_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(lambda: [step.number for step in penstock.open("heat.steps", timeout=20)])
        write("heat.steps")
        assert reading.result(20) == [0, 1, 2]


def test_a_folder_is_inspected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(penstock.NotFound, match="no stream heat was written in "):
        penstock.inspect("heat", engine="file")
    write("heat.steps")
    for name, options in [("heat", {"engine": "file"}), ("heat.steps", {}), (str(tmp_path / "heat.steps"), {})]:
        told = penstock.inspect(name, **options)
        assert told["stream"] == "heat" and told["state"] == "ended" and told["ranks"] == 1
        assert (told["steps"], told["first"], told["last"]) == (3, 0, 2)
        assert told["writer"].endswith(f":{os.getpid()}")
    command = [sys.executable, "-m", "penstock.cli.main", "stream", "show"]
    shown = subprocess.run([*command, "heat.steps"], capture_output=True, text=True, timeout=60)
    assert f"stream heat, step 2 by process {os.getpid()}" in shown.stdout, shown.stderr
    assert "ended, 3 steps" in shown.stdout
    shown = subprocess.run([*command, "heat.steps/00000001.h5"], capture_output=True, text=True, timeout=60)
    assert "stream heat, step 1 " in shown.stdout
    with pytest.raises(penstock.NotFound, match="there is no file"):
        penstock.open("heat.steps/00000020.h5")
    shown = subprocess.run([*command, "heat", "--json"], capture_output=True, text=True, timeout=60)
    found = json.loads(shown.stdout)
    assert (found["kind"], found["where"], found["step"], found["steps"]) == ("files", "heat.steps", 2, 3)
    dump = [*command[:-1], "dump", "heat", "--from", "1", "--limit", "2"]
    dumped = subprocess.run(dump, capture_output=True, text=True, timeout=60)
    assert dumped.stdout.startswith("stream heat, step 1\n") and "left out" in dumped.stdout, dumped.stderr
    shown = subprocess.run([*command, "haet"], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 1 and "did you mean 'heat'?" in shown.stderr


@pytest.mark.parametrize("name", ["00000500.h5", "00000001.rank1", ".00000003.h5.part", "notes.txt"])
@pytest.mark.parametrize("before", ["nothing", "a stream"])
@pytest.mark.parametrize("resume", ["no", "append"])
def test_files_that_no_stream_wrote_are_left_alone(tmp_path, name, before, resume):
    folder = tmp_path / "heat.steps"
    if before == "a stream":
        write(folder)
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("precious")
    if before == "a stream" and name.endswith(".part"):
        return  # left by a crash: the stream's own
    with pytest.raises(penstock.Error, match="which no stream has written"):
        penstock.create("heat", engine="file", folder=folder, resume=resume, timeout=20)
    assert (folder / name).read_text() == "precious"
    assert before == "nothing" or len(list(folder.glob("0000000[012].h5"))) == 3


@pytest.mark.parametrize("first", ["h5py", "penstock"])
def test_h5py_in_the_same_process(tmp_path, first):
    """Each uses its own HDF5, in either order."""
    program = f"""
        import sys
        import numpy as np
        if {first!r} == "h5py":
            import h5py
            h5py.File({str(tmp_path / "a.h5")!r}, "w")["a"] = np.arange(3)
        import penstock
        with penstock.create("heat", engine="file", folder={str(tmp_path / "heat.steps")!r}, compression=1) as stream:
            for t in range(3):
                with stream.step() as step:
                    step["T"] = np.full(5000, 1.0 * t)
                import h5py
                h5py.File({str(tmp_path / "b.h5")!r}, "a")[f"b{{t}}"] = np.arange(3)
        with penstock.open({str(tmp_path / "heat.steps")!r}) as stream:
            for step in stream:
                assert (step["T"][...] == step.number).all()
        with h5py.File({str(tmp_path / "heat.steps/00000002.h5")!r}) as file:
            assert (file["T"][0] == 2).all()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


def complete(folder):
    """The steps that h5py reads; fails where a value is wrong."""
    numbers = []
    for path in sorted(folder.glob("*.h5")):
        with h5py.File(path) as file:
            number = int(path.stem)
            assert file["step"][0] == number
            assert (file["T"][0] == 10 * number + np.array([[0], [1]])).all(), path
            assert file["each"][0].tolist() == [0, 1]
        numbers.append(number)
    return numbers


def run_child(*arguments, **environment):
    return subprocess.run(
        [BUILD / "file_child", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.skipif(
    not list(BUILD.glob("*kill_preload*")),
    reason="file_child and kill_preload are not built (they need HDF5, and no sanitizer)",
)
def test_a_writer_killed_at_every_write(tmp_path):
    preload = str(next(BUILD.glob("*kill_preload*.so")))
    for n in range(1, 1000):
        folder = tmp_path / f"{n}.steps"
        child = run_child(
            "write", folder, 3, "no", LD_PRELOAD=preload, PENSTOCK_KILL_ROOT=str(folder), PENSTOCK_KILL_AT=str(n)
        )
        committed = child.stdout.split()
        found = complete(folder) if folder.exists() else []
        assert found == list(range(len(found))), f"killed at {n}"
        if child.returncode == 0:
            assert found == [0, 1, 2]
            break
        assert child.returncode == -9, child.stderr
        assert len(committed) - 4 <= len(found)  # queue_steps are committed and not yet complete at most
        if (folder / "stream.json").exists():
            ended = '"ended": true' in (folder / "stream.json").read_text()
            read = run_child("verify", folder, int(ended))
            assert read.returncode == 0 and [int(number) for number in read.stdout.split()] == found, f"killed at {n}"
        again = run_child("write", folder, 2, "append")
        assert again.returncode == 0, f"killed at {n}: {again.stderr}"
        assert complete(folder) == list(range(len(found) + 2))
        assert not [path for path in folder.iterdir() if path.name.endswith(".part")]
        assert run_child("verify", folder, 1).returncode == 0
    else:
        pytest.fail("it never came to its end")
    print(f"killed at {n - 1} writes")
    assert n > 30
