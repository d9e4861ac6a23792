"""The example runs through a stream and through a file, and its reader sees the same."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from penstock import mesh

HERE = Path(__file__).parent


def run(words, tmp_path, monkeypatch, **environment):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "streams"))
    build = Path(os.environ.get("PENSTOCK_BUILD", HERE.parents[1] / "build"))
    monkeypatch.setenv("PENSTOCK_BIN", os.environ.get("PENSTOCK_BIN", str(build / "bin")))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    words = [sys.executable, *words]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_stream_and_a_file_say_the_same(tmp_path, monkeypatch):
    run(["-m", "penstock.cli.main", "run", HERE / "mesh.yaml", "--steps", "4"], tmp_path, monkeypatch)
    live = (tmp_path / "output" / "mesh" / "logs" / "analysis.log").read_text()
    assert len(re.findall(r"time 0\.0\d: mean 0\.\d+, flux \d", live)) == 4
    run([HERE / "plate.py", "--states", "4"], tmp_path, monkeypatch, PENSTOCK_MESH_PLATE="exodus,path=plate.e")
    later = run([HERE / "warmest.py", "plate.e"], tmp_path, monkeypatch)
    assert [line for line in later.splitlines() if line.startswith("time")] == [
        line for line in live.splitlines() if line.startswith("time")
    ]
    with mesh.open(tmp_path / "plate.e") as region:
        assert region.model.title == "a plate that is heated at one edge"


def test_ranks_write_strips(tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    if not shutil.which("mpiexec"):
        pytest.skip("mpiexec is not installed")
    monkeypatch.setenv("PENSTOCK_MESH_STRIPS", "exodus,path=strips.e")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"):
        monkeypatch.setenv(name, "1")
    command = ["mpiexec", "-n", "3", sys.executable, HERE / "strips.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    with mesh.open(tmp_path / "strips.e") as region:
        assert region.model.count("node_block") == 9 * 13 and region.model.count("element_block") == 8 * 12
        assert region.times == [0, 1, 2, 3, 4]
        region.seek(-1)
        state = region.next_state()
        x, y = region["nodes", "coordinates"].T
        assert abs(state["nodes", "height"] - np.sin(x + 1.2) * y).max() < 1e-14
