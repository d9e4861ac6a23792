"""The example runs, and its programs meet in one space."""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "streams"))
    build = Path(os.environ.get("PENSTOCK_BUILD", HERE.parents[1] / "build"))
    monkeypatch.setenv("PENSTOCK_BIN", os.environ.get("PENSTOCK_BIN", str(build / "bin")))
    words = [sys.executable, "-m", "penstock.cli.main", "run", HERE / "arrays.yaml", "--steps", "4"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    said = (tmp_path / "output/arrays/logs/analysis.log").read_text()
    assert re.findall(r"version (\d+): (\d+) waves along y, (\d+) along x", said) == [
        (str(version), "3", "4") for version in range(4)
    ]
