"""Two programs that read each other's streams compute what one program with both would."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def test_it_equals_one_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "streams"))
    words = [sys.executable, "-m", "penstock.cli.main", "run", HERE / "coupled.yaml", "--output", tmp_path / "output"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    air, water = np.linspace(0.0, 30.0, 64), np.full(64, 10.0)
    for _ in range(100):
        air, water = air + 0.1 * (water - air), water + 0.02 * (air - water)
    for name, T in (("air", air), ("water", water)):
        said = (tmp_path / "output" / "logs" / f"{name}.log").read_text()
        figures = [float(word) for word in re.findall(r"\d+\.\d{4}", said)]
        np.testing.assert_allclose(figures, [T.min(), T.max(), T.mean()], atol=1e-4)
