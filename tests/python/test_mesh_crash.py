"""Exodus files whose writer is killed at each of its writes, whose machine fails, or that the disk has no room for."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from penstock import mesh

BUILD = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build")) / "tests/unsynced"

pytestmark = pytest.mark.skipif(not (BUILD / "mesh_child").exists(), reason="mesh_child is not built (it needs netCDF)")


def run_child(*words, **environment):
    return subprocess.run(
        [BUILD / "mesh_child", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def states_of(path):
    """How many states there are; fails where a value is wrong."""
    with mesh.open(path) as region:
        x, y, z = region["nodeblock_1", "coordinates"].T
        assert len(np.unique(region["block_1", "connectivity"])) == len(x) == 13 * 11 * 9
        count = 0
        for state in region:
            assert state.time == count
            np.testing.assert_array_equal(state["nodeblock_1", "nodal1"], x + 0.5 * y - 0.25 * z + 4 * count)
            assert state["block_1", "element1"].shape == (960,) and state["block_1", "element1"][0] == 4 * count
            assert state["region", "global1"] == count + 1
            count += 1
    return count


def states_vtk_reads(path):
    exodus = pytest.importorskip("vtkmodules.vtkIOExodus", reason="needs VTK (pip install vtk)")
    from vtkmodules.util.numpy_support import vtk_to_numpy

    reader = exodus.vtkExodusIIReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    reader.SetAllArrayStatus(exodus.vtkExodusIIReader.NODAL, 1)
    count = reader.GetNumberOfTimeSteps()
    for time in range(count):
        reader.UpdateTimeStep(time)
        block = reader.GetOutput().GetBlock(0).GetBlock(0)
        x, y, z = vtk_to_numpy(block.GetPoints().GetData()).T
        values = vtk_to_numpy(block.GetPointData().GetArray("nodal1"))
        np.testing.assert_array_equal(values, x + 0.5 * y - 0.25 * z + 4 * time)
    return count


@pytest.mark.skipif(
    not list(BUILD.glob("*kill_preload*")),
    reason="kill_preload is not built (it is left out of builds with sanitizers)",
)
@pytest.mark.parametrize("mode", ["write", "shared"])
@pytest.mark.parametrize("format", ["offset64", "cdf5"])
def test_a_writer_killed_at_every_write(tmp_path, format, mode):
    preload = str(next(BUILD.glob("*kill_preload*.so")))
    for n in range(1, 1000):
        path = tmp_path / f"{n}.e"
        child = run_child(
            mode, path, format, 4, LD_PRELOAD=preload, PENSTOCK_KILL_ROOT=str(path), PENSTOCK_KILL_AT=str(n)
        )
        said = len(child.stdout.split())
        if child.returncode == 0:
            assert states_of(path) == said == 4
            break
        assert child.returncode == -9, child.stderr
        if said:  # before that there may be no file, or one without its model
            assert said <= states_of(path) <= said + 1, f"killed at {n}"
            assert states_vtk_reads(path) == states_of(path)
    else:
        pytest.fail("it never came to its end")
    print(f"killed at {n - 1} writes")
    assert n > 10


@pytest.mark.parametrize("format", ["offset64", "cdf5"])
def test_a_full_disk_keeps_what_was_complete(tmp_path, format):
    run_child("write", tmp_path / "whole.e", format, 4)
    size = (tmp_path / "whole.e").stat().st_size
    kept = set()
    for room in range(size // 4, size, 15_311):
        path = tmp_path / f"{room}.e"
        child = run_child("full", path, format, room)
        said = len(child.stdout.split())
        assert child.returncode == 1
        assert str(path) in child.stderr and "File too large" in child.stderr, child.stderr
        if said:
            assert states_of(path) == said
        kept.add(said)
    assert len(kept) >= 4


WRITER = """
import sys
from penstock import mesh

source = mesh.open("12x10x8|times:4|nodal:2|element:2|global:2", database="generated")

def pause(number, time):
    print(number, flush=True)
    if number == 2:
        sys.stdin.readline()

options = dict(each.split("=") for each in sys.argv[2:])
mesh.copy(source, sys.argv[1], progress=pause, choice=mesh.Choice(integers=32), **options)
"""


@pytest.mark.skipif(
    not list(BUILD.glob("*unsynced_preload*")),
    reason="unsynced_preload is not built (it is left out of builds with sanitizers)",
)
@pytest.mark.parametrize("sync", ["true", "false"])
@pytest.mark.parametrize(
    "options", [["format=offset64"], ["format=cdf5"], ["format=netcdf4", "states_per_file=1"]], ids=str
)
def test_a_machine_that_loses_its_power(tmp_path, options, sync):
    folder, journal = tmp_path / "files", tmp_path / "journal"
    folder.mkdir()
    environment = {
        "LD_PRELOAD": str(next(BUILD.glob("*unsynced_preload*.so"))),
        "PENSTOCK_UNSYNCED_ROOT": str(folder),
        "PENSTOCK_UNSYNCED_JOURNAL": str(journal),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder / "a.e"), *options, f"sync={sync}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert [process.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    script = Path(__file__).parents[1] / "unsynced/roll_back.py"
    done = subprocess.run(
        [sys.executable, script, folder, journal], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)
    if sync == "true":
        assert states_of(folder / "a.e") == 3
    else:  # nothing was on the disk
        assert not (folder / "a.e").exists()
