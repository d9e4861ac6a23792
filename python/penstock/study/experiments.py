"""The experiments of SAND2021-10271, sections 4.1 and 4.2, as cases; and how one case runs: servers, writers, readers.

Every case moves the same array step by step from writers that have rows to readers that want columns (or rows), and
again to a second group of readers when the first has ended. What is kept is raw: seconds of each rank and step, counts
and memory of the servers.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from ..bench.runner import RunFailed, run_programs
from ..workflow.servers import PoolServers
from ..workflow.study import PoolPlan
from .program import Box, Job

PLACES = ("at_reader", "on_request", "in_advance", "automatic")
FILES = ("files", "files_fsync", "hdf5", "hdf5_fsync")
EXPERIMENTS = {
    "cycle": "metric 1, figure 4-2: the time between two transfers of a program",
    "servers": "metric 2, figures 4-3 and 4-4: eight readers and few servers",
    "subset": "metric 3, figures 4-5 and 4-6: readers get a cube in the middle",
    "scaling": "section 4.2, figure 4-8: beside files, in the same and in another layout",
    "sharing": "sections 2.2 and 3: programs that get the same at once",
    "tight": "section 4.1.3: servers without memory for the copies",
}
READY_S = 60.0
SETTLE_S = 10.0  # conversions in advance that nobody waits for


@dataclass(frozen=True)
class Case:
    """at: what the experiment varies (delay in conversions, servers, side of the cube, writers)."""

    experiment: str
    system: str  # one of PLACES or FILES, or full; with "_same": readers want rows
    at: float
    writers: tuple[int, int, int] = (2, 2, 1)
    readers: int = 2
    servers: int = 1
    delay: float = 0.0  # in units of the time that converts one step
    cube: int = 0  # 0: readers get the whole
    together: bool = False  # each reader gets all of it, not its share
    memory: float = 3.0  # of each server, in units of what is put; less than 3: with the default room for copies

    @property
    def key(self) -> str:
        return f"{self.experiment}/{self.system}/{self.at:g}"

    @property
    def through_files(self) -> bool:
        return self.system.removesuffix("_same") in FILES


@dataclass(frozen=True)
class Plan:
    """How much is moved, and which values the experiments take."""

    side: int
    steps: int
    delays: tuple[float, ...]
    servers: tuple[int, ...]
    many_readers: int
    cubes: tuple[int, ...]
    scales: tuple[tuple[tuple[int, int, int], int, int], ...]  # writers, readers, servers

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.side,) * 3

    @property
    def step_bytes(self) -> int:
        return 8 * self.side**3

    @property
    def put_bytes(self) -> int:
        return self.steps * self.step_bytes


DEFAULT = Plan(
    side=128,
    steps=20,
    delays=(0, 1, 2, 4),
    servers=(1, 2, 4),
    many_readers=8,
    cubes=(16, 32, 64),
    scales=(((2, 1, 1), 1, 1), ((2, 2, 1), 2, 1), ((2, 2, 2), 4, 2)),
)
QUICK = Plan(side=48, steps=4, delays=(0,), servers=(2,), many_readers=2, cubes=(12,), scales=(((2, 1, 1), 1, 1),))


def cases_of(plan: Plan, quick: bool) -> tuple[list[Case], list[str]]:
    """All cases in order, and what is left out and why."""
    reorganised = PLACES[:3]
    cases = [Case("cycle", place, delay, delay=delay) for delay in plan.delays for place in PLACES]
    cases += [
        Case("servers", place, count, servers=count, readers=plan.many_readers)
        for count in plan.servers
        for place in (reorganised[1:2] if quick else reorganised)
    ]
    cases += [
        Case("subset", place, cube, cube=cube)
        for cube in plan.cubes
        for place in (reorganised[1:2] if quick else reorganised)
    ]
    files = FILES if importlib.util.find_spec("h5py") else FILES[:2]
    systems = (*PLACES, "full", *files, "at_reader_same", *(f"{name}_same" for name in files))
    if quick:
        systems = ("full", *files[2:3], "files_fsync_same")
    cycle = plan.delays[-1]
    cases += [
        Case("scaling", system, writers[0] * writers[1] * writers[2], writers, readers, servers, cycle)
        for writers, readers, servers in plan.scales
        for system in systems
    ]
    cases += [Case("sharing", place, 4, readers=4, together=True) for place in (() if quick else reorganised)]
    cases += [] if quick else [Case("tight", "in_advance", 1.25, memory=1.25)]
    return cases, [] if len(files) == len(FILES) else ["HDF5: h5py is not installed (pip install h5py)"]


def grid_boxes(shape: Iterable[int], grid: tuple[int, int, int]) -> tuple[Box, ...]:
    """The whole array in a box for each writer."""
    edges = [[size * n // parts for n in range(parts + 1)] for size, parts in zip(shape, grid, strict=True)]
    axes = [list(itertools.pairwise(one)) for one in edges]
    return tuple(
        (tuple(low for low, _ in spans), tuple(high - low for low, high in spans)) for spans in itertools.product(*axes)
    )


def reader_boxes(plan: Plan, case: Case) -> tuple[Box, ...]:
    side = case.cube or plan.side
    shift = (plan.side - side) // 2
    boxes = grid_boxes((side,) * 3, (1 if case.together else case.readers, 1, 1))
    moved = tuple((tuple(shift + n for n in start), count) for start, count in boxes)
    return moved * case.readers if case.together else moved


class Runner:
    """Runs cases. on_ready(servers): called when the servers of a case are ready, before its programs start."""

    def __init__(
        self, plan: Plan, disk: Path, deadline_s: float, on_ready: Callable[[PoolServers], None] | None = None
    ):
        self.plan = plan
        self.disk = disk
        self.deadline_s = deadline_s
        self.on_ready = on_ready or (lambda servers: None)
        self.conversion_s = 0.0  # of one step, all servers' threads together

    def calibrate(self) -> float:
        """Measures the unit of the delays, with servers that do nothing else."""
        figures = self.run(Case("calibration", "on_request", 0, readers=1))
        self.conversion_s = figures["servers"]["conversion_s"] / self.plan.steps
        return self.conversion_s

    def run(self, case: Case) -> dict[str, Any]:
        """The figures of one run. Throws RunFailed; whatever was started has ended then."""
        folder = Path(tempfile.mkdtemp(prefix="penstock-study-"))
        data = Path(tempfile.mkdtemp(prefix="penstock-study-", dir=self.disk)) if case.through_files else folder
        begun = time.monotonic()
        try:
            found = self.through_files(case, folder, data) if case.through_files else self.through_space(case, folder)
        except RunFailed as failure:
            raise RunFailed(f"{case.key}: {failure}") from None
        finally:
            for each in {folder, data}:
                shutil.rmtree(each, ignore_errors=True)
        return found | {"elapsed_s": time.monotonic() - begun}

    # --------------------------------------------------------------------------------------------------------- programs

    def jobs(self, case: Case, data: Path) -> tuple[list[Job], list[Job]]:
        """Of the writers and of one group of readers."""
        plan = self.plan
        system = case.system.removesuffix("_same")
        way = system.removesuffix("_fsync") if case.through_files else "full" if system == "full" else "space"
        written = grid_boxes(plan.shape, case.writers)
        common: dict[str, Any] = {
            "way": way,
            "shape": plan.shape,
            "steps": plan.steps,
            "delay_s": case.delay * self.conversion_s,
            "order": "C" if case.system.endswith("_same") else "F",
            "place": system if system in PLACES else "at_reader",
            "folder": str(data),
            "fsync": system.endswith("_fsync"),
            "written": written,
        }
        writers = [Job("writer", box=box, **common) for box in written]
        return writers, [Job("reader", box=box, **common) for box in reader_boxes(plan, case)]

    def together(
        self, jobs: list[Job], folder: Path, environment: dict[str, str], needed: Sequence[Popen[Any]] = ()
    ) -> dict[str, dict[str, list[Any]]]:
        """Runs them at once. By role, by figure: a list for each rank."""
        commands = [[sys.executable, "-m", "penstock.study.program", job.words()] for job in jobs]
        lines = run_programs(commands, environment, folder, self.deadline_s, needed=needed)
        if len(lines) != len(jobs):
            raise RunFailed(f"{len(lines)} of {len(jobs)} programs printed figures")
        found: dict[str, dict[str, list[Any]]] = {}
        for line in lines:
            figures = json.loads(line)
            role = found.setdefault(figures.pop("role"), {})
            for name, seconds in figures.items():
                role.setdefault(name, []).append(seconds)
        return found

    def through_files(self, case: Case, folder: Path, data: Path) -> dict[str, Any]:
        """One group after the other, as programs that couple through files must."""
        writers, readers = self.jobs(case, data)
        return {
            "writer": self.together(writers, folder, {})["writer"],
            "reader_1": self.together(readers, folder, {})["reader"],
            "reader_2": self.together(readers, folder, {})["reader"],
        }

    def through_space(self, case: Case, folder: Path) -> dict[str, Any]:
        plan = self.pool_plan(case)
        writers, readers = self.jobs(case, folder)
        first = [Job(**job.__dict__ | {"gate": n, "members": len(writers) + len(readers)})
                 for n, job in enumerate([*writers, *readers])]  # fmt: skip
        with PoolServers(plan, logs=folder, folder=folder / "own") as servers:
            servers.wait_ready(READY_S)
            self.on_ready(servers)
            needed = [server.process for server in servers.servers]
            environment = servers.environment() | {"PENSTOCK_DIRECTORY": str(folder / "streams")}
            try:
                found = self.together(first, folder, environment, needed)
                counted = self.count(case, servers)
                again = self.together(readers, folder, environment, needed)
                memory = self.count(case, servers)
            except Exception as error:
                if gone := servers.ended():
                    raise RunFailed("; ".join(end_of(server) for server in gone)) from error
                raise
        return {
            "writer": found["writer"],
            "reader_1": found["reader"],
            "reader_2": again["reader"],
            "servers": memory,
            "servers_after_reader_1": counted,
        }

    # ---------------------------------------------------------------------------------------------------------- servers

    def pool_plan(self, case: Case) -> PoolPlan:
        """Parts are spread over servers evenly enough for a quarter more than a share each."""
        share = self.plan.put_bytes * (1.25 if case.servers > 1 else 1.0) / case.servers
        options = {"listen": "127.0.0.1", "log": "warn"}
        if case.memory >= 3:
            options["array_replicas"] = str(int(1.5 * share))
        return PoolPlan(servers=case.servers, memory=str(int(case.memory * share) + (64 << 20)), options=options)

    def count(self, case: Case, servers: PoolServers) -> dict[str, Any]:
        """Sums over the servers, when they have converted what they would in advance."""
        import penstock

        everything = case.system == "in_advance" and case.memory >= 3
        with penstock.Space(directory=servers.directory) as space:
            end = time.monotonic() + SETTLE_S
            status = space.status
            while everything and total(status, "converted_bytes") < self.plan.put_bytes and time.monotonic() < end:
                time.sleep(0.05)
                status = space.status
        names = [name for name, value in status[0].items() if isinstance(value, int | float)]
        own = servers.status()
        if len(own) != case.servers:
            raise RunFailed(f"{case.servers - len(own)} of {case.servers} servers do not answer")
        counted = {name: total(status, name) for name in names}
        counted["memory_peak"] = sum(one["memory"]["peak"] for one in own)
        counted["pss"] = sum(pss_of(server.process.pid) for server in servers.servers)
        return counted


def total(status: list[dict[str, Any]], name: str) -> float:
    return float(sum(one[name] for one in status))


def pss_of(pid: int) -> int:
    """A process's proportional share of memory, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def end_of(server: Any) -> str:
    code = server.process.returncode
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"server {server.number} ended {how}"
