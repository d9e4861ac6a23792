"""Help and wrong options of the simulations: written once, whatever the number of ranks."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = 60
DEFAULTS = {
    "exploding-pipe": ["--cells N", "default: 32)", "--end TIME", "0.08 for pipe"],
    "gray-scott": ["SETTINGS", "Du: 0.2", "--restart STREAM"],
    "sedov": ["--elements N", "(2 to 500; default: 32)", "--end TIME", "default: 0.8)"],
}


@pytest.fixture(params=DEFAULTS)
def name(request):
    return request.param


@pytest.fixture
def run(name, tmp_path):
    """run(*words, ranks=) gives the exit status, the output and the errors; without ranks there is no launcher."""
    build = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
    folders = [os.environ.get("PENSTOCK_BIN"), str(build / "bin"), os.environ.get("PATH")]
    program = shutil.which(name, path=os.pathsep.join(filter(None, folders)))
    if not program or not shutil.which("mpiexec"):
        pytest.skip(f"{name} is not built (it needs MPI)")

    def run(*words, ranks=0, **environment):
        launcher = ["mpiexec", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks else []
        done = subprocess.run(
            [*launcher, program, *words], cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True,
            timeout=DEADLINE_S,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    run.program = program
    return run


def test_help_needs_no_mpi(name, run):
    code, out, err = run("--help", OMPI_MCA_pml="none-of-this-name")
    assert (code, err) == (0, "") and out.startswith(f"usage: mpiexec -n RANKS {name} ")
    for text in DEFAULTS[name]:
        assert text in out
    assert run("--help", ranks=2)[:2] == (0, out)


@pytest.mark.parametrize(
    "name, words, error",
    [
        ("exploding-pipe", ["--cels", "8"], "unknown option --cels; there are --problem, --cells, "),
        ("exploding-pipe", ["--cells=4"], "--cells takes a number from 8 to 1024, not '4'"),
        ("exploding-pipe", ["--cells", "31"], "a multiple of 8"),
        ("gray-scott", [], "SETTINGS is missing: "),
        ("gray-scott", ["a", "b"], "more than one SETTINGS: a, b"),
        ("gray-scott", ["/"], "/: cannot be read"),
        ("gray-scott", ["/dev/null", "--set", "F=["], "--set F=[: yaml-cpp: error at line 1"),
        ("sedov", ["--end", "soon"], "--end takes a number from 1e-09 to 1, not 'soon'"),
        ("sedov", ["--states"], "--states needs a value, N"),
        ("sedov", ["three"], "'three' is no option"),
    ],
)
def test_what_is_wrong_is_written_once(name, run, words, error):
    code, _, err = run(*words, ranks=2)
    assert code == 2 and error in err and err.count(f"{name}: ") == 1


@pytest.mark.parametrize("name", ["gray-scott"])
@pytest.mark.parametrize("rank", [0, 1])
def test_settings_are_those_of_rank_0(name, run, tmp_path, rank):
    """A file that one node alone has."""
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        folder.mkdir()
    (folders[rank] / "s.yaml").write_text("{L: 8, box: 4, steps: 2, plot_every: 1}")
    each = [["-n", "1", "-wdir", str(folder), run.program, "s.yaml"] for folder in folders]
    done = subprocess.run(
        ["mpiexec", "--oversubscribe", "--bind-to", "none", *each[0], ":", *each[1]],
        env=os.environ | {"PENSTOCK_STREAM_GRAY_SCOTT": "rendezvous_readers=0"}, capture_output=True, text=True,
        timeout=DEADLINE_S,
    )  # fmt: skip
    if rank == 0:
        assert done.returncode == 0 and "2 time steps on 2 ranks" in done.stdout
    else:
        assert done.returncode == 2 and done.stderr.count(f"{name}: s.yaml: cannot be read") == 1
