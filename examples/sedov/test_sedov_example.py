"""The blast through each database: the same pictures and statistics."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from penstock import mesh

pytest.importorskip("matplotlib")
pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

HERE = Path(__file__).parent
BUILD = Path(os.environ.get("PENSTOCK_BUILD", HERE.parents[1] / "build"))
BIN = Path(os.environ.get("PENSTOCK_BIN", BUILD / "bin"))

pytestmark = pytest.mark.skipif(
    not (BIN / "sedov").exists() or not shutil.which("mpiexec"), reason="sedov is not built (it needs MPI)"
)


def run(words, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "streams"))
    monkeypatch.setenv("PENSTOCK_BIN", str(BIN))
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sedov")
    shutil.copytree(HERE, folder / "example", ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    text = (folder / "example" / "run.yaml").read_text()
    (folder / "example" / "run.yaml").write_text(text.replace("--elements, 32", "--elements, 16"))
    return folder / "example"


def test_each_database_gives_the_same(tmp_path, monkeypatch, example):
    results = {}
    for name in ("run", "pool", "exodus", "nemesis"):
        words = [sys.executable, "-m", "penstock.cli.main", "run", str(example / f"{name}.yaml"), "--steps", "3"]
        run(words, tmp_path, monkeypatch)
        output = tmp_path / "output" / ("sedov" if name == "run" else f"sedov-{name}")
        files = [output / "statistics.csv", output / "radius.png", *sorted((output / "frames").iterdir())]
        results[name] = {str(file.relative_to(output)): file.read_bytes() for file in files}
        assert len(results[name]) == 5
        with mesh.open(output / "sedov-surface.e") as surface:
            assert len(surface.times) == 3 and surface.model.count("element_block") == 16 * 16
    for name in ("pool", "exodus", "nemesis"):
        for file, content in results["run"].items():
            assert results[name][file] == content, f"{name}: {file}"
