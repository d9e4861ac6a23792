"""The example runs, and the servers compute what NumPy does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def test_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "streams"))
    build = Path(os.environ.get("PENSTOCK_BUILD", HERE.parents[1] / "build"))
    monkeypatch.setenv("PENSTOCK_BIN", os.environ.get("PENSTOCK_BIN", str(build / "bin")))
    monkeypatch.setenv("PENSTOCK_SERVER_COMPUTE_PYTHON", sys.executable)
    words = [sys.executable, "-m", "penstock.cli.main", "run", HERE / "compute.yaml", "--output", tmp_path / "output"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    said = (tmp_path / "output" / "logs" / "wave.log").read_text()
    wave = np.sin(np.linspace(0, 2 * np.pi, 1000))
    assert f"largest {wave.max()}" in said
    assert f"histogram {np.histogram(wave, bins=4, range=(-1, 1))[0]}" in said
    assert f"every 250th {wave[:500:250]}" in said
    assert np.isclose(float(re.search(r"energy (\S+)", said)[1]), 0.5 * (wave**2).sum())
