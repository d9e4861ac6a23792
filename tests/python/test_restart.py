"""n-to-m restart: Gray-Scott on n ranks, killed, goes on on m ranks from the newest step that the pool keeps.

All steps of both runs are compared, bit by bit, with those of a run that nothing interrupted. The results are written
as a table, restart-table.md in the build folder.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
import yaml

penstock = pytest.importorskip("penstock")

ROOT = Path(__file__).parents[2]
DEADLINE_S = 90.0
EVERY = 5  # time steps between two outputs
LAST = 60
# Uneven over two, three and four ranks; the noise makes every cell and time step count.
SETTINGS = {"shape": [22, 21, 19], "F": 0.025, "k": 0.05, "dt": 1.5, "noise": 1e-3, "box": 6, "seed": 7,
            "steps": LAST, "plot_every": EVERY}  # fmt: skip
# One step on its way at a time: when an output begins, the pool has all before it.
STREAM = {"engine": "pool", "acknowledge": "durable", "queue_steps": 1}
TABLE = {}  # scenario -> row


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    build = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
    if TABLE and build.is_dir():
        head = ("ranks", "killed", "servers", "a second kill", "went on from time step", "fields after it", "result")
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += ["| " + " | ".join(map(str, row)) + " |" for row in TABLE.values()]
        (build / "restart-table.md").write_text("\n".join(lines) + "\n")


def find_program(name):
    build = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
    folders = [os.environ.get("PENSTOCK_BIN"), str(build / "bin")]
    path = shutil.which(name, path=os.pathsep.join(filter(None, folders)))
    if not path or not shutil.which("mpiexec"):
        pytest.skip(f"{name} is not built (it needs MPI)")
    return path


class Simulation:
    """Runs of gray-scott whose streams live in the pool of `servers`."""

    def __init__(self, folder, servers, **stream):
        self.folder, self.servers = folder, servers
        self.program = find_program("gray-scott")
        (folder / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
        (folder / "penstock.yaml").write_text(yaml.safe_dump({"streams": {"*": STREAM | stream}}))

    @contextlib.contextmanager
    def running(self, ranks, name, *words, **changes):
        """A run that writes the stream `name`; none of its processes outlives the block."""
        settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        launcher = ["mpiexec", "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
        # Four ranks may share two cores: whoever waits gives way.
        mpi = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_MCA_orte_tmpdir_base": tempfile.mkdtemp(dir=self.folder),
        }
        process = subprocess.Popen(
            [*launcher, self.program, "settings.yaml", "--set", f"stream={name}", *settings, *map(str, words)],
            env=os.environ | mpi | self.servers.environment() | {"PENSTOCK_CONFIG": "penstock.yaml"},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            kill_all(process)
            process.communicate(timeout=DEADLINE_S)

    def run(self, ranks, name, *words, **changes):
        """The exit code and what was said."""
        with self.running(ranks, name, *words, **changes) as process:
            output, _ = process.communicate(timeout=DEADLINE_S)
            return process.returncode, output


def descendants(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def kill_all(process):
    """kill -9 for every rank and for what launched them, at once: nobody is left to tidy up."""
    if process.poll() is None:
        for pid in [*descendants(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(DEADLINE_S)


def kept(context, name, newest=LAST):
    """The newest steps that the pool keeps of a stream, whatever became of its writer: {sim_step: (U, V)}."""
    fields = {}
    with context.open(name, engine="pool", timeout=DEADLINE_S) as stream:
        for number in stream.steps[-newest:]:
            with stream[number] as step:
                fields[step["sim_step"].value] = (step["U"][...], step["V"][...])
    return fields


def same(ours, theirs):
    return all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))


def restart_servers(servers, monkeypatch):
    """kill -9 of all of them, and the same ones again: what they know then is what they had on disk."""
    numbers = [server.number for server in servers.servers]
    for server in list(servers.servers):
        servers.stop_one(server, number=signal.SIGKILL)
    for number in numbers:
        servers.start_one(number)
    servers.wait_ready(DEADLINE_S)
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """{sim_step: (U, V)} of the run that nothing interrupts, on one rank and without Penstock."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
    program = find_program("gray-scott-fields")
    done = subprocess.run([program, "settings.yaml", "."], cwd=folder, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr

    def field(name, step):
        return np.fromfile(folder / f"{name}.{step}.raw").reshape(SETTINGS["shape"])

    return {step: (field("U", step), field("V", step)) for step in range(EVERY, LAST + 1, EVERY)}


@pytest.fixture
def simulation(pool_servers, tmp_path, monkeypatch):
    servers = pool_servers(2, disk=True, memory="128MiB", http="off")
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    return Simulation(tmp_path, servers)


CASES = [
    # n, m, k: ranks of the first run, of the restart, of a second one (0: none); whether the servers are killed, too
    (1, 2, 0, True),
    (2, 1, 0, True),
    (2, 2, 0, False),
    (4, 3, 0, True),
    (3, 4, 0, False),
    (4, 1, 0, True),
    (1, 4, 2, True),
    (3, 2, 3, True),
]


@pytest.mark.parametrize("n, m, k, servers_too", CASES)
def test_restart_is_bit_identical(simulation, context, whole, monkeypatch, n, m, k, servers_too):
    """Killed in the fifth output: its U is in the stream, its V is not, and the other ranks have ended the step."""
    code, output = simulation.run(n, "run-1", "--die-in", 5)
    assert code != 0, output
    if servers_too:
        restart_servers(simulation.servers, monkeypatch)
    before = kept(context, "run-1")
    assert sorted(before) == [5, 10, 15, 20]  # the half step was never there for anybody

    last, runs = "run-1", [m]
    if k:
        code, output = simulation.run(m, "run-2", "--restart", last, "--die-in", 3)
        assert code != 0, output
        if servers_too:
            restart_servers(simulation.servers, monkeypatch)
        before |= kept(context, "run-2")
        assert sorted(before) == [5, 10, 15, 20, 25, 30]
        last, runs = "run-2", [m, k]
    code, output = simulation.run(runs[-1], "run-3", "--restart", last)
    assert code == 0, output
    after = kept(context, "run-3")
    first = max(before)
    assert sorted(after) == list(range(first + EVERY, LAST + 1, EVERY))

    identical = [step for step, fields in (before | after).items() if same(fields, whole[step])]
    TABLE[n, m, k] = (
        " → ".join(map(str, [n, *runs])),
        "one rank, within output 5",
        "killed, started again" if servers_too else "went on",
        "within output 3" if k else "–",
        first,
        len(after),
        "bit-identical" if len(identical) == len(whole) else "DIFFERENT",
    )
    assert len(identical) == len(whole)


@pytest.mark.parametrize("n, m", [(3, 2), (2, 4)])
def test_killed_from_outside(simulation, context, monkeypatch, tmp_path, n, m):
    """All processes at once, while the simulation computes, writes and has steps on their way."""
    simulation = Simulation(tmp_path, simulation.servers, queue_steps=4, retain_steps=5)
    with simulation.running(n, "endless", steps=10**8) as process:
        with context.open("endless", engine="pool", timeout=DEADLINE_S) as stream:
            for step in stream:
                if step.number >= 7:
                    break
        kill_all(process)
    restart_servers(simulation.servers, monkeypatch)
    before = kept(context, "endless", 3)  # retention may let older ones go meanwhile
    newest = max(before)
    assert newest >= 8 * EVERY
    assert sorted(before) == [newest - 2 * EVERY, newest - EVERY, newest]

    last = newest + 4 * EVERY
    code, output = simulation.run(m, "rest", "--restart", "endless", steps=last)
    assert code == 0, output
    code, output = simulation.run(1, "whole", steps=last)  # keeps the last five, as the others
    assert code == 0, output
    expected = kept(context, "whole", 5)
    together = before | kept(context, "rest", 4)
    compared = [step for step in together if step in expected]
    assert newest in compared and last in compared and len(compared) == 5
    identical = all(same(together[step], expected[step]) for step in compared)
    TABLE["outside", n, m] = (
        f"{n} → {m}",
        "all processes, from outside",
        "killed, started again",
        "–",
        "the newest",
        4,
        "bit-identical" if identical else "DIFFERENT",
    )
    assert identical


def test_one_stream_for_all_runs(simulation, context, whole, monkeypatch, tmp_path):
    """resume: append, so that the restarted run adds its steps to those it goes on from."""
    assert simulation.run(2, "one", "--die-in", 5)[0] != 0
    restart_servers(simulation.servers, monkeypatch)
    simulation = Simulation(tmp_path, simulation.servers, resume="append")
    code, output = simulation.run(3, "one", "--restart", "one")
    assert code == 0, output
    with context.open("one", engine="pool", timeout=DEADLINE_S) as stream:
        assert stream.steps == list(range(len(whole)))
    fields = kept(context, "one")
    assert sorted(fields) == sorted(whole)
    identical = all(same(fields[step], whole[step]) for step in whole)
    TABLE["append"] = (
        "2 → 3, into the same stream",
        "one rank, within output 5",
        "killed, started again",
        "–",
        20,
        8,
        "bit-identical" if identical else "DIFFERENT",
    )
    assert identical


def test_what_cannot_be_gone_on_from(simulation, tmp_path):
    code, output = simulation.run(2, "nothing", "--die-in", 1)
    assert code != 0
    assert simulation.run(1, "run-1", steps=EVERY)[0] == 0
    for words, changes, message in [
        (("--restart", "nothing"), {}, "--restart nothing: the stream holds no step to go on from"),
        (("--restart", "run-1"), {"shape": "[22,21,20]"}, "its fields have another shape than the settings say"),
        (("--restart", "run-2"), {}, "this run would replace it"),
    ]:
        code, output = simulation.run(2, "run-2", *words, **changes)
        assert code == 2 and message in output, output
        TABLE[message] = ("1 → 2", "–", "went on", "–", "–", 0, f"refused: {message.partition(': ')[2] or message}")
    # A run that is complete has nothing left to do.
    code, output = simulation.run(2, "run-2", "--restart", "run-1", steps=EVERY)
    assert code == 0 and "0 time steps on 2 ranks, 0 steps written" in output, output
