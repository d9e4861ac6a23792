"""The workflow of examples/heterogeneous, smaller: its results are equal wherever layouts are converted."""

import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("PIL", reason="needs Pillow (pip install pillow)")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "heterogeneous"
DEADLINE_S = 100
# Uneven over two ranks and two analyses.
SETTINGS = "{shape: [22, 21, 19], F: 0.025, k: 0.0595, dt: 2.0, noise: 0.01, box: 8, plot_every: 4}"
PLACES = ("at_reader", "on_request", "in_advance", "automatic")
STEPS = 3


def load(name):
    spec = importlib.util.spec_from_file_location(f"heterogeneous_{name}", EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def programs(monkeypatch):
    """Found by `penstock run`."""
    folder = Path(os.environ.get("PENSTOCK_BIN", Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "bin"))
    if not (folder / "gray-scott-arrays").exists() or not shutil.which("mpiexec"):
        pytest.skip("gray-scott-arrays is not built (it needs MPI)")
    if not (folder / "array-gradient").exists():
        pytest.skip("array-gradient is not built (it needs a Fortran compiler)")
    monkeypatch.setenv("PENSTOCK_BIN", str(folder))


def test_results_are_equal_wherever_layouts_are_converted(programs, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "streams"))
    example = tmp_path / "example"
    shutil.copytree(EXAMPLE, example, ignore=shutil.ignore_patterns("__pycache__"))
    (example / "settings.yaml").write_text(SETTINGS)
    output = tmp_path / "output"
    words = [sys.executable, example / "compare.py", "--output", output, "--steps", STEPS]
    done = subprocess.run(list(map(str, words)), cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    logs = "".join(path.read_text() for path in output.glob("*/logs/[!s]*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    assert f"results: {STEPS + 1} files, the same in all runs" in done.stdout

    converted = {}
    for place in PLACES:
        with open(output / place / "statistics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [int(row["version"]) for row in rows] == list(range(STEPS))
        assert all(0 < float(row["mean"]) < float(row["max"]) for row in rows)
        assert "largest difference from NumPy" in (output / place / "logs" / "check.log").read_text()
        servers = json.loads((output / place / "servers.json").read_text())
        converted[place] = sum(server["converted_bytes"] for server in servers)
    assert converted["at_reader"] == 0
    whole = STEPS * 22 * 21 * 19 * 4
    assert converted["in_advance"] >= whole  # what the analyses get, and at most the pictures' planes on top
    assert converted["on_request"] >= whole


def test_magnitude_of_a_wave():
    x = 2 * np.pi * np.arange(16) / 16
    wave = np.broadcast_to(np.sin(x)[:, None], (16, 5))
    expected = np.abs(np.sin(x[1]) * np.cos(x))[:, None]  # of central differences
    np.testing.assert_allclose(load("check").magnitude(wave), np.broadcast_to(expected, wave.shape), atol=1e-15)


def test_a_picture_that_differs_is_found(tmp_path):
    compare = load("compare")
    for number, folder in enumerate((tmp_path / "a", tmp_path / "b")):
        (folder / "frames").mkdir(parents=True)
        (folder / "statistics.csv").write_text("version\n0\n")
        (folder / "frames" / "0000.png").write_bytes(b"picture" + bytes([number]))
    first, other = compare.results(tmp_path / "a"), compare.results(tmp_path / "b")
    assert {name for name, _ in first.items() ^ other.items()} == {"frames/0000.png"}
