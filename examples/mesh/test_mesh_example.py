"""The example runs through a stream and through a file, and its reader sees the same."""

import os
import re
import subprocess
import sys
from pathlib import Path

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
