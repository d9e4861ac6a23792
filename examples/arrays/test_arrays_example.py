"""The example runs, and its programs meet in one space."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def run(name, tmp_path, monkeypatch, *words):
    """Runs `name`.yaml; the folder of its programs' logs."""
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "streams"))
    build = Path(os.environ.get("PENSTOCK_BUILD", HERE.parents[1] / "build"))
    monkeypatch.setenv("PENSTOCK_BIN", os.environ.get("PENSTOCK_BIN", str(build / "bin")))
    words = [sys.executable, "-m", "penstock.cli.main", "run", HERE / f"{name}.yaml", *words]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / "output" / name / "logs"


def test_what_it_prints(tmp_path, monkeypatch):
    said = (run("arrays", tmp_path, monkeypatch, "--steps", "4") / "analysis.log").read_text()
    assert re.findall(r"version (\d+): (\d+) waves along y, (\d+) along x", said) == [
        (str(version), "3", "4") for version in range(4)
    ]


def test_particles(tmp_path, monkeypatch):
    said = (run("particles", tmp_path, monkeypatch) / "particles.log").read_text()
    x = np.sqrt(np.arange(1000))
    assert re.search(rf"particle 700: .*{x[700]:.4f}.*, .*1\.0.*, .*700", said)
    assert f"mass 1500, centre {np.average(x, weights=np.where(np.arange(1000) < 500, 2, 1)):.3f}" in said
    assert re.search(r"at most \d\.\de-0[67]", said)
