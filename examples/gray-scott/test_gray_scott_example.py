"""The example from end to end, smaller: `penstock run` with its check, a late reader, the notebook."""

import csv
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import yaml

penstock = pytest.importorskip("penstock")
pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
pytest.importorskip("PIL", reason="needs Pillow (pip install pillow)")
pytest.importorskip("matplotlib")

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DEADLINE_S = 100
SMALL = {"L": 20, "box": 8, "steps": 36, "plot_every": 3, "noise": 0.01, "F": 0.025, "k": 0.0595, "dt": 2.0}


def program_folder():
    build = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
    folder = Path(os.environ.get("PENSTOCK_BIN", build / "bin"))
    if not (folder / "gray-scott").exists() or not shutil.which("mpiexec"):
        pytest.skip("gray-scott is not built (it needs MPI)")
    return str(folder)


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Streams of this test meet in a folder of their own."""
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "directory"))
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    return dict(os.environ)


@pytest.fixture
def example(tmp_path):
    """A copy of the example, outside of the tree, with small settings."""
    folder = tmp_path / "copy"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    (folder / "settings.yaml").write_text(yaml.safe_dump(SMALL))
    return folder


def run(command, **options):
    """Runs a command in a session of its own, all of which ends at the deadline. Returns code and output."""
    process = subprocess.Popen(
        list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        **options,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # the runner ends its programs, which have sessions of their own
        output, _ = process.communicate(timeout=30)
        pytest.fail(f"no end after {DEADLINE_S} s\n{output}")
    return process.returncode, output


def load(path):
    """A module by its file: the example's scripts are no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(output):
    with open(output / "statistics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def seen():
    """What runs of this module have drawn and computed, by name: the same, whatever the engine."""
    return {}


@pytest.mark.parametrize(
    "study", ["run.yaml", "one word changed", "pool.yaml", "space.yaml", "later.yaml", "insitu.yaml", "file.yaml"]
)
def test_run_file(example, environment, tmp_path, seen, study):
    environment["PENSTOCK_BIN"] = program_folder()
    output = tmp_path / "output"
    if study == "one word changed":
        study = "run.yaml"
        text = (example / study).read_text()
        assert text.count("engine: direct") == 1
        (example / study).write_text(text.replace("engine: direct", "engine: pool"))
    words = ["run", example / study, "--output", output, "--steps", 10]  # of the 12 that the settings would give
    code, text = run([sys.executable, "-m", "penstock.cli.main", *words], env=environment, cwd=tmp_path)
    assert code == 0, text
    assert [int(row["sim_step"]) for row in rows_of(output)] == list(range(3, 31, 3))
    for name in ("statistics.png", "isosurface.png", "gray-scott.gif"):
        assert (output / name).stat().st_size > 1000
    assert (output / "gray-scott.gif").stat().st_size <= 2_000_000
    frames = sorted((output / "frames").glob("*.png"))
    assert len(frames) == 10
    for path in [*frames, output / "statistics.csv"]:
        assert seen.setdefault(path.name, path.read_bytes()) == path.read_bytes(), f"{path.name} is another than before"
    simulation = json.loads((output / "simulation.json").read_text())
    analysis = json.loads((output / "analysis.json").read_text())
    assert (simulation["steps_written"], simulation["steps_dropped"], simulation["ranks"]) == (10, 0, 2)
    assert analysis["steps"] == analysis["pictures"] == 10
    assert analysis["bytes"] == 10 * 2 * 20**3 * 8
    for report in (simulation, analysis):  # init, steady and drain apart, as the table shows them
        assert report["start_s"] > 0 and report["steady_s"] > 0 and report["close_s"] >= 0
    assert all(word in text for word in ("init (to its", "steady (to its", "drain (until"))


def test_check_finds_a_difference(example, environment, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    reference = load(HERE / "reference.py")
    analysis = load(HERE / "analysis.py")
    settings = reference.load_settings(example / "settings.yaml")
    rows = [{"sim_step": step} | analysis.statistics(U, V) for step, U, V in reference.run(settings)]

    def check(rows):
        with open(output / "statistics.csv", "w", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)
        return run([sys.executable, example / "check.py", output], env=environment)

    code, text = check(rows)
    assert code == 0, text
    rows[3]["U_mean"] += 1e-9
    code, text = check(rows)
    assert code == 1
    assert "differ from the reference" in text


class Source(threading.Thread):
    """A stand-in for the simulation: writes its variables for some steps."""

    def __init__(self, directory, steps):
        super().__init__()
        self.context, self.steps = penstock.Context(directory=directory), steps
        self.error = None

    def run(self):
        V = np.linspace(0, 0.4, 16**3).reshape(16, 16, 16)
        try:
            with self.context.create("gray-scott", timeout=DEADLINE_S) as stream:
                for number in range(self.steps):
                    with stream.step() as step:
                        step["U"] = np.full_like(V, 0.5)
                        step["V"] = V
                        step["sim_step"] = number
                        step["time"] = 2.0 * number
        except Exception as error:
            self.error = error

    def finish(self):
        self.join(DEADLINE_S + 20)
        assert not self.is_alive()
        if self.error:
            raise self.error


def test_analysis_alone_from_a_second_terminal(environment, tmp_path):
    source = Source(environment["PENSTOCK_DIRECTORY"], steps=4)
    source.start()
    code, text = run(
        [sys.executable, HERE / "analysis.py", "gray-scott", "--output", tmp_path / "out"], env=environment
    )
    source.finish()
    assert code == 0, text
    assert "4 steps" in text
    assert [float(row["V_fraction"]) for row in rows_of(tmp_path / "out")] == pytest.approx([0.5] * 4, abs=1e-3)


def test_live_plot_notebook(environment, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(HERE.parent / "live-plot.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "stored outputs"
    source = Source(environment["PENSTOCK_DIRECTORY"], steps=5)
    source.start()
    try:
        nbclient.NotebookClient(notebook, timeout=DEADLINE_S, kernel_name="python3").execute(cwd=str(tmp_path))
    finally:
        source.finish()
    kinds = [list(output.get("data", {})) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in kind for kind in kinds)
    assert "steps seen, the last at t = 8" in notebook.cells[-1].outputs[0].text
