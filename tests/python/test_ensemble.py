"""The ensemble of examples/ensemble, small: the model that is built while the members run is the one that all their
snapshots give at once, and neither the members nor the model open a file. The results are written as a table,
ensemble-table.md in the build folder.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

penstock = pytest.importorskip("penstock")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ensemble"
DEADLINE_S = 120.0
MEMBERS, HELD_OUT, CELLS, SNAPSHOTS = 14, 2, 20, 6
ERROR = 0.2  # of a model of so few members

# Where a Python program finds itself: interpreter, packages, shared libraries, what the system says of itself.
OWN = [sys.prefix, sys.base_prefix, EXAMPLE, Path(penstock.__file__).parent, "/usr", "/lib", "/lib64", "/etc", "/proc",
       "/sys", "/dev"]  # fmt: skip


def load(name):
    spec = importlib.util.spec_from_file_location(f"ensemble_{name}", EXAMPLE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(4))
def test_modes_are_those_of_the_whole_matrix(seed):
    """Blocks of any width; columns that are zero, repeated, or of a lower rank than there are."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(60, 12)) @ np.diag(10.0 ** -np.arange(12)) @ rng.normal(size=(12, 40))
    matrix[:, 7] = 0
    matrix[:, 21] = matrix[:, 3]
    modes = load("model").Modes()
    for block in np.split(matrix, np.sort(rng.choice(np.arange(1, 40), 6, replace=False)), axis=1):
        modes.add(block)
    basis, values, _ = np.linalg.svd(matrix, full_matrices=False)
    np.testing.assert_allclose(modes.basis.T @ modes.basis, np.eye(len(modes.values)), atol=1e-13)
    np.testing.assert_allclose(modes.values[:6], values[:6], rtol=1e-9)
    np.testing.assert_allclose(modes.basis @ modes.coefficients, matrix, atol=1e-8 * values[0])
    for count in range(1, 7):
        ours, theirs = modes.basis[:, :count], basis[:, :count]
        assert np.linalg.norm(ours - theirs @ (theirs.T @ ours), 2) < 1e-7


def test_known_points_are_met():
    model = load("model")
    points = np.random.default_rng(1).random((9, 2))
    np.testing.assert_allclose(model.weights(points, points), np.eye(9), atol=1e-9)


@contextlib.contextmanager
def started(command, environment, folder):
    """A program in a session of its own, all of which ends with the block at the latest."""
    with open(folder / "out", "w+") as out:
        process = subprocess.Popen(
            list(map(str, command)),
            env=os.environ | environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def opened(trace):
    """What was opened according to strace: (path, flags), of calls that succeeded."""
    calls = re.compile(r'(?:openat\([^,]+, |open\(|creat\()"([^"]*)"(?:, ([A-Z_|0-9]+))?.*\) = \d')
    found = [calls.search(line) for file in trace for line in file.read_text(errors="replace").splitlines()]
    return [(call[1], call[2] or "O_CREAT|O_WRONLY") for call in found if call]


def is_own(path):
    path = Path(path)
    if re.search(r"\.so(\.\d+)*$", path.name):
        return True  # a library, wherever it was built
    return any(path == Path(own) or Path(own) in path.parents for own in OWN)


def writes(calls):
    """Those that could change a file; devices are none."""
    flags = re.compile("O_WRONLY|O_RDWR|O_CREAT|O_TMPFILE")
    return [call for call in calls if flags.search(call[1]) and not call[0].startswith(("/dev/", "/proc/"))]


def tracing(folder):
    """What comes before a command for its opening of files to be written into the folder; empty without strace."""
    strace = shutil.which("strace")
    return [strace, "-ff", "-o", folder / "trace", "-e", "trace=open,openat,creat"] if strace else []


def test_tracing_sees_files(tmp_path):
    """What the next test finds nothing of."""
    words = tracing(tmp_path)
    if not words:
        pytest.skip("needs strace")
    (tmp_path / "data").touch()
    program = "import subprocess, sys; open('made', 'w'); subprocess.run([sys.executable, '-c', 'open(\"data\")'])"
    with started([*words, sys.executable, "-B", "-c", program], {}, tmp_path) as process:
        assert process.wait(DEADLINE_S) == 0
    calls = opened(tmp_path.glob("trace.*"))
    assert [path for path, _ in writes(calls)] == ["made"]
    assert "data" in {path for path, _ in calls if not is_own(path)}


def test_ensemble_opens_no_file(pool_servers, open_pool, tmp_path, monkeypatch):
    servers = pool_servers(2, memory="64MiB", http="off")
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    environment = servers.environment() | {"OMP_NUM_THREADS": "1"}
    sizes = ["--members", MEMBERS, "--held-out", HELD_OUT, "--snapshots", SNAPSHOTS]
    programs = {"ensemble": [*sizes, "--cells", CELLS], "model": sizes}
    with contextlib.ExitStack() as stack:
        running = {}
        for name, words in programs.items():
            folder = tmp_path / name
            folder.mkdir()
            command = [*tracing(folder), sys.executable, "-B", EXAMPLE / f"{name}.py", *words]
            running[name] = stack.enter_context(started(command, environment, folder))
        for name, process in running.items():
            assert process.wait(DEADLINE_S) == 0, (tmp_path / name / "out").read_text()

    pool = open_pool(servers)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    used, difference, angle, error = load("check").compare(pool)
    assert difference < 1e-8 and angle < 1e-8
    assert error < ERROR
    history = pool.get("model", "history").array()
    assert history[:, 0].tolist() == list(range(6, MEMBERS + 1))  # it was tested while the others still ran
    errors = pool.get("model", "errors").array()

    figures = ["runs of their own", "snapshots of each", "modes", "error of runs held out, median and worst"]
    figures += ["largest difference of a singular value from one decomposition of all", "angle between the two bases"]
    figures += ["files opened for writing", "files read that are not the programs' own", "files on the servers' disks"]
    values = [f"{MEMBERS} + {HELD_OUT} held out", SNAPSHOTS, used, f"{np.median(errors):.1e}, {errors.max():.1e}"]
    values += [f"{difference:.0e}", f"{angle:.0e}"]
    if tracing(tmp_path):
        calls = {name: opened((tmp_path / name).glob("trace.*")) for name in programs}
        assert sum(is_own(path) for path, _ in calls["ensemble"]) > 100 * MEMBERS  # it is seen what Python itself reads
        everything = [call for found in calls.values() for call in found]
        written = writes(everything)
        foreign = {path for path, flags in everything if not is_own(path) and "O_DIRECTORY" not in flags}
        values += [len(written), len(foreign)]
    else:
        written, foreign = [], set()
        values += ["not traced: no strace"] * 2
    values.append(0 if servers.plan.disk is None else "some")
    build = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
    if build.is_dir():
        lines = ["| ensemble | |", "|---|---|", *(f"| {a} | {b} |" for a, b in zip(figures, values, strict=True))]
        (build / "ensemble-table.md").write_text("\n".join(lines) + "\n")
    assert not written
    assert not foreign


def test_run_file(tmp_path):
    """The study as it is given, but for its sizes."""
    pytest.importorskip("matplotlib")
    example = tmp_path / "ensemble"
    shutil.copytree(EXAMPLE, example, ignore=shutil.ignore_patterns("__pycache__"))
    study = yaml.safe_load((example / "ensemble.yaml").read_text())
    sizes = {"--members": MEMBERS, "--held-out": HELD_OUT}
    for program in ("ensemble", "model"):
        command = study["programs"][program]["command"]
        for option, value in sizes.items():
            command[command.index(option) + 1] = value
        command += ["--snapshots", SNAPSHOTS]
    study["programs"]["ensemble"]["command"] += ["--cells", CELLS]
    study["check"] += ["--error", ERROR]
    (example / "ensemble.yaml").write_text(yaml.safe_dump(study))
    folder = tmp_path / "run"
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "run",
        example / "ensemble.yaml",
        "--output",
        tmp_path / "out",
    ]
    with started(command, {"PENSTOCK_DIRECTORY": str(tmp_path / "directory")}, folder) as process:
        code = process.wait(DEADLINE_S)
    assert code == 0, (folder / "out").read_text()
    assert (tmp_path / "out" / "ensemble.png").stat().st_size > 10_000
    assert f"{MEMBERS} members" in (tmp_path / "out" / "logs" / "check.log").read_text()
