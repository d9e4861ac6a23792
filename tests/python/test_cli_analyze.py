"""penstock analyze as a program: its ranks, its report, its errors; ranks and analyses that are killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

TIMEOUT_S = 60
PIPELINE = "extracts: {t: {type: csv, values: {top: max(T)}}}"
SIMULATION = """
    import sys
    import numpy as np
    import penstock

    with penstock.create("heat", timeout=30) as stream:
        for cycle in range(int(sys.argv[1])):
            with stream.step() as step:
                step["cycle"] = cycle
                step["T"] = np.full((8, 9), float(cycle))
            print(cycle, flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """start(words...) starts a Python program in the test's folder, which ends with the test."""
    (tmp_path / "simulation.py").write_text(textwrap.dedent(SIMULATION))
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    environment |= {"PENSTOCK_DIRECTORY": str(tmp_path / "streams"), "PENSTOCK_LISTEN": "127.0.0.1"}
    running = []

    def start(*words):
        program = subprocess.Popen(
            [sys.executable, *map(str, words)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(program)
        return program

    yield start
    for program in running:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def analyze(start, *words):
    return start("-m", "penstock.cli.main", "analyze", "heat", "pipeline.yaml", *words)


@pytest.mark.parametrize("ranks", [1, 3])
def test_report(ranks, start, tmp_path):
    simulation = start("simulation.py", 4)
    out, errors = analyze(start, "--ranks", ranks, "--json", "--steps", 4, "-o", "results").communicate(
        timeout=TIMEOUT_S
    )
    report = json.loads(out)
    assert report["frames"] == 4 and report["files"] == ["results/t.csv"], errors
    assert report == json.loads((tmp_path / "results/report.json").read_text())
    assert (tmp_path / "results/t.csv").read_text().splitlines()[1:] == [f"{n},{float(n)},{float(n)}" for n in range(4)]
    assert simulation.wait(TIMEOUT_S) == 0


def test_what_is_printed(start):
    start("simulation.py", 2)
    out, errors = analyze(start).communicate(timeout=TIMEOUT_S)
    assert "2 steps analysed" in out and "output/t.csv" in out and "report: output/report.json" in out, errors


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["no.yaml"], 1, "there is no file no.yaml"),
        (["wrong.yaml"], 1, "wrong.yaml:1"),
        (["pipeline.yaml", "--partition", "diagonal", "--steps", "1"], 1, "there are block, planar, morton"),
        (["pipeline.yaml", "--timeout", "0.2"], 124, "heat"),
    ],
)
def test_errors(words, status, message, start, tmp_path):
    (tmp_path / "wrong.yaml").write_text("scenes: {a: {slice: q}}")
    if "--partition" in words:
        start("simulation.py", 2)
    program = start("-m", "penstock.cli.main", "analyze", "heat", *words)
    _, errors = program.communicate(timeout=TIMEOUT_S)
    assert message in " ".join(errors.split()) and "Traceback" not in errors
    assert program.returncode == status


def test_a_rank_that_is_killed_ends_the_analysis_and_not_the_simulation(start, tmp_path):
    simulation = start("simulation.py", 1 << 30)
    program = analyze(start, "--ranks", 3)
    assert simulation.stdout.readline() == "0\n" and simulation.stdout.readline() == "1\n"
    children = subprocess.run(["pgrep", "-P", str(program.pid)], capture_output=True, text=True).stdout.split()
    assert len(children) == 2
    os.kill(int(children[1]), signal.SIGKILL)
    _, errors = program.communicate(timeout=TIMEOUT_S)
    assert program.returncode == 1 and "rank 2" in errors and "Traceback" not in errors
    before = int(simulation.stdout.readline())
    assert int(simulation.stdout.readline()) == before + 1


def test_an_analysis_that_is_killed_and_started_again_goes_on(start, tmp_path):
    simulation = start("simulation.py", 1 << 30)
    table = tmp_path / "output/t.csv"
    for _ in range(3):
        program = analyze(start)
        for _ in range(20):
            simulation.stdout.readline()
        os.killpg(program.pid, signal.SIGKILL)
        program.wait(TIMEOUT_S)
    program = analyze(start, "--steps", 5)
    for line in simulation.stdout:
        if program.poll() is not None or int(line) > 1_000_000:
            break
    assert program.wait(TIMEOUT_S) == 0, program.stderr.read()
    rows = [line.split(",") for line in table.read_text().splitlines()]
    assert rows[0] == ["cycle", "time", "top"]
    cycles = [int(row[0]) for row in rows[1:]]
    assert cycles == sorted(set(cycles)) and len(cycles) >= 5
    assert all(float(row[2]) == int(row[0]) for row in rows[1:])


@pytest.mark.soak  # X servers started at the same time get in each other's way
@pytest.mark.skipif(shutil.which("pvbatch") is None, reason="ParaView is not installed")
def test_paraview_runs_catalysts_scripts(start, tmp_path):
    (tmp_path / "view.py").write_text(
        textwrap.dedent("""
            from paraview import catalyst
            from paraview.simple import CreateExtractor, CreateView, Show, TrivialProducer

            mesh = TrivialProducer(registrationName="mesh")
            view = CreateView("RenderView")
            Show(mesh, view)
            pictures = CreateExtractor("PNG", view, registrationName="pictures")
            pictures.Trigger = "TimeStep"
            pictures.Trigger.Frequency = 2
            pictures.Writer.FileName = "picture-{timestep}.png"
            options = catalyst.Options()
            options.GlobalTrigger = "TimeStep"
        """)
    )
    simulation = start("simulation.py", 4)
    program = start("-m", "penstock.cli.main", "analyze", "heat", "view.py", "--paraview", "-o", "out")
    out, errors = program.communicate(timeout=TIMEOUT_S)
    assert program.returncode == 0, errors
    assert json.loads(out.splitlines()[-1]) == {"frames": 4}, errors
    assert sorted(path.name for path in tmp_path.glob("out/**/*.png")) == ["picture-0.png", "picture-2.png"]
    assert simulation.wait(TIMEOUT_S) == 0


@pytest.fixture
def over_mpi(start):
    """over_mpi(program) starts `penstock analyze heat PROGRAM --json` on two ranks."""
    pytest.importorskip("mpi4py", reason="needs mpi4py (pip install mpi4py)")
    if shutil.which("mpiexec") is None:
        pytest.skip("mpiexec is not installed")

    def over_mpi(program):
        words = ["mpiexec", "-n", "2", sys.executable, "-m", "penstock.cli.main", "analyze", "heat", program, "--json"]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        allowed |= {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
        return start("-c", f"import os; os.execvpe('mpiexec', {words}, os.environ | {allowed})")

    return over_mpi


def test_one_rank_of_mpi_reports(start, over_mpi):
    start("simulation.py", 2)
    out, errors = over_mpi("pipeline.yaml").communicate(timeout=TIMEOUT_S)
    assert json.loads(out)["frames"] == 2, errors


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "failure, said",
    [
        ("raise KeyboardInterrupt", ""),
        ("raise asyncio.CancelledError('the task')", "CancelledError: the task"),
        ("raise Odd(7)", "the odd 7"),
        ("raise RuntimeError", "RuntimeError in "),
    ],
)
def test_what_ends_one_rank_of_mpi_ends_the_others(rank, failure, said, start, over_mpi, tmp_path):
    (tmp_path / "script.py").write_text(
        "import asyncio\n"
        "class Odd(OSError):\n"
        "    def __init__(self, number): super().__init__(5, f'the odd {number}', 'here')\n"
        f"def analyze(step):\n    if step.cohort.rank == {rank}: {failure}\n"
    )
    start("simulation.py", 2)
    program = over_mpi("script.py")
    _, errors = program.communicate(timeout=TIMEOUT_S)
    assert program.returncode != 0 and said in errors
