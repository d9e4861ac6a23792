"""The study "restart" of `penstock bench pool`: Gray-Scott whose steps are checkpoints, durable in a pool, beside the
same simulation with checkpoints in files that all ranks write together (parallel HDF5)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ..workflow.launch import LaunchError
from ..workflow.servers import PoolServers
from .programs import mpi
from .runner import MPI_ENVIRONMENT, RunFailed, run_programs
from .stores import START_S, pool
from .studies import Claim, Column, Figures, Panel, Row, Run, Sheet

STUDY = "restart"
TEXT = "what a checkpoint costs Gray-Scott on n ranks, and how soon m ranks go on; beside parallel HDF5 files"
PAIRS = ((2, 2), (2, 1), (1, 2))  # ranks before and after
RESTARTS = 5  # from one checkpoint; where it must come from the disk, only the first does
# Ranks, servers and the kernel's writing share the cores: whoever waits gives way.
ENVIRONMENT = MPI_ENVIRONMENT | {"OMPI_MCA_mpi_yield_when_idle": "1"}


class Plan:
    """How much is computed and written."""

    def __init__(self, quick: bool):
        self.side = 48 if quick else 256
        self.every = 4 if quick else 12  # time steps between checkpoints
        self.checkpoints = 3

    def write_settings(self, run: Run) -> Path:
        path = run.folder / "settings.yaml"
        steps = self.every * self.checkpoints
        values = {"L": self.side, "F": 0.025, "k": 0.0595, "dt": 2.0, "noise": 0.01, "box": 12}
        values |= {"steps": steps, "plot_every": self.every}
        path.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
        return path

    @property
    def megabytes(self) -> float:
        return 2 * 8 * self.side**3 / 1e6


def figures_of(before: dict[str, Any], after: list[dict[str, Any]]) -> Figures:
    """Of the report of the run that wrote checkpoints, and of those that went on from the last."""
    return {
        "checkpoint_ms": 1e3 * median(before["outputs_s"]),
        "worst_ms": 1e3 * max(before["outputs_s"]),
        "run_s": before["total_s"],
        "fresh_ms": 1e3 * before["start_s"],
        "state_ms": 1e3 * median(one["restart_s"] for one in after),
        "restart_ms": 1e3 * median(one["start_s"] for one in after),
        "checkpoints_ms": [1e3 * seconds for seconds in before["outputs_s"]],
    }


def first_output_ms(resumed: dict[str, Any]) -> float:
    """Of a run that went on from a checkpoint and wrote one more: from its start until that was written."""
    return float(1e3 * (resumed["start_s"] + resumed["simulation_s"] + resumed["outputs_s"][0]))


def forget(folder: Path) -> None:
    """The kernel keeps none of these files' pages: who reads them next waits for the disk, as after a night's queue."""
    for path in filter(Path.is_file, folder.rglob("*")):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def start_again(servers: PoolServers, disk: Path) -> float:
    """kill -9 of the servers, and the same ones again, which find what they had on disk. Returns the seconds until they
    are ready."""
    numbers = [server.number for server in servers.servers]
    for server in list(servers.servers):
        servers.stop_one(server, number=signal.SIGKILL)
    forget(disk)
    began = time.monotonic()
    try:
        for number in numbers:
            servers.start_one(number)
        servers.wait_ready(START_S)
    except LaunchError as error:
        raise RunFailed(str(error)) from None
    return time.monotonic() - began


def through_pool(program: Path, plan: Plan, n: int, m: int, again: bool, run: Run, options: str = "") -> Figures:
    settings = plan.write_settings(run)
    configuration = run.folder / "penstock.yaml"
    configuration.write_text(f'streams: {{"*": {{engine: pool, acknowledge: durable, queue_steps: 2{options}}}}}\n')

    def simulate(ranks: int, name: str, *words: object) -> dict[str, Any]:
        report = run.folder / f"{name}.json"
        environment = ENVIRONMENT | started.environment() | {"PENSTOCK_CONFIG": str(configuration)}
        command = mpi(ranks, program, settings, "--set", f"stream={name}", "--report", report, *words)
        run_programs([command], environment, run.folder, run.deadline_s)
        said: dict[str, Any] = json.loads(report.read_text())
        return said

    with pool(run, 1, "2GiB", disk=True) as started:
        before = simulate(n, "first")
        recovery_s = start_again(started, run.disk) if again else None
        # They are ready for their first time step, and end.
        times = 1 if again else RESTARTS
        after = [simulate(m, f"restart-{number}", "--restart", "first") for number in range(times)]
        steps = plan.every * (plan.checkpoints + 1)
        resumed = simulate(m, "resumed", "--restart", "first", "--set", f"steps={steps}") if not again else None
    figures = figures_of(before, after)
    if resumed:
        figures["resumed_ms"] = first_output_ms(resumed)
    return figures | {"recovery_s": recovery_s} if again else figures


def through_files(
    plan: Plan, n: int, m: int, run: Run, synced: bool = True, collective: bool = True, cold: bool = False
) -> Figures:
    settings = plan.write_settings(run)

    def simulate(ranks: int, *words: object) -> dict[str, Any]:
        program = run.programs / "checkpoint_files"
        options = ("--settings", settings, "--data", run.disk, "--fsync", int(synced), "--collective", int(collective))
        command = mpi(ranks, program, *options, *words)
        said: dict[str, Any] = json.loads(run_programs([command], ENVIRONMENT, run.folder, run.deadline_s)[0])
        return said

    before = simulate(n)
    if cold:
        forget(run.disk)
    figures = figures_of(before, [simulate(m, "--restart", 1) for _ in range(1 if cold else RESTARTS)])
    if not cold:
        figures["resumed_ms"] = first_output_ms(simulate(m, "--restart", 1, "--more", plan.every))
    return figures


def rows_of(programs: Path, quick: bool) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    left_out: list[str] = []
    plan = Plan(quick)
    program = programs.parent / "bin" / "gray-scott"
    if program.exists() and shutil.which("mpiexec"):
        for n, m in PAIRS:
            run = partial(through_pool, program, plan, n, m, False)
            rows.append(Row(STUDY, "penstock", f"{n}_{m}", f"{n} → {m}, durable", run))
        run = partial(through_pool, program, plan, 2, 2, False, options=", step_bytes: 0")
        rows.append(Row(STUDY, "penstock", "as_needed_2_2", "2 → 2, durable, memory made as needed", run))
        run = partial(through_pool, program, plan, 2, 2, True)
        rows.append(Row(STUDY, "penstock", "again_2_2", "2 → 2, durable, server killed between", run))
    else:
        left_out.append("restart: the Gray-Scott simulation was not built, or there is no mpiexec")
    if (programs / "checkpoint_files").exists() and shutil.which("mpiexec"):
        for n, m in PAIRS:
            for synced, words in ((True, "fsync"), (False, "no fsync")):
                name = f"{'fsync' if synced else 'plain'}_{n}_{m}"
                run = partial(through_files, plan, n, m, synced=synced)
                rows.append(Row(STUDY, "hdf5 files", name, f"{n} → {m}, {words}", run))
        run = partial(through_files, plan, 2, 2, collective=False)
        rows.append(Row(STUDY, "hdf5 files", "independent_2_2", "2 → 2, fsync, each rank alone", run))
        run = partial(through_files, plan, 2, 2, cold=True)
        rows.append(Row(STUDY, "hdf5 files", "cold_2_2", "2 → 2, fsync, read from the disk", run))
    else:
        left_out.append("restart: checkpoint_files was not built (no parallel HDF5)")
    return rows, left_out


def claims_of() -> list[Claim]:
    def theirs(*variants: str) -> tuple[tuple[str, str, str], ...]:
        return tuple((STUDY, "hdf5 files", variant) for variant in variants)

    def less(text: str, ours: str, figure: str, files: tuple[tuple[str, str, str], ...]) -> Claim:
        key = (STUDY, "penstock", ours)
        return Claim(text, key, (figure,), 1.0, theirs=files, sense="at_most", theirs_lower=True)

    synced, cached = theirs("fsync_2_2", "independent_2_2"), theirs("fsync_2_2", "plain_2_2", "independent_2_2")
    checkpoint = "a checkpoint that becomes durable costs the simulation less than one in a file"
    claims = [
        less(f"{checkpoint} that is synced", "2_2", "checkpoint_ms", synced),
        less(f"{checkpoint} without fsync", "2_2", "checkpoint_ms", theirs("plain_2_2")),
    ]
    for n, m in PAIRS:
        files = cached if (n, m) == (2, 2) else theirs(f"fsync_{n}_{m}", f"plain_{n}_{m}")
        text = f"the state of {n} rank{'s' if n > 1 else ''} is back on {m} sooner than from files in the page cache"
        claims.append(less(text, f"{n}_{m}", "state_ms", files))
    text = "the first time step after a restart is sooner than from files, where memory is made as needed"
    claims.append(less(text, "as_needed_2_2", "restart_ms", cached))
    text = "the first time step after a restart is sooner than from files, where memory is made while it computes"
    claims.append(less(text, "2_2", "restart_ms", cached))
    text = "the restarted run has its next checkpoint out sooner than with files"
    claims.append(less(text, "2_2", "resumed_ms", cached))
    text = "from servers that were killed, the state is back sooner than from files, both read from the disk"
    claims.append(less(text, "again_2_2", "state_ms", theirs("cold_2_2")))
    return claims


def sheet(quick: bool) -> Sheet:
    plan = Plan(quick)
    return Sheet(
        STUDY,
        f"restart: {plan.checkpoints} checkpoints of {plan.megabytes:.0f} MB; {TEXT}",
        (
            Column("checkpoint_ms", "a checkpoint\nms"),
            Column("worst_ms", "the worst\nms"),
            Column("run_s", "the run, all\nsafe s"),
            Column("fresh_ms", "start\nms"),
            Column("state_ms", "restart: has\nits state ms"),
            Column("restart_ms", "first time\nstep ms"),
            Column("resumed_ms", "next check-\npoint out ms"),
            Column("recovery_s", "servers up\nagain s"),
        ),
    )


PANELS = (
    Panel(STUDY, "a checkpoint, as the simulation sees it, ms", (("checkpoint_ms", 0),)),
    Panel(STUDY, "restart, until the state is back, ms", (("state_ms", 0),)),
    Panel(STUDY, "restart, from nothing to the first time step, ms", (("restart_ms", 0),)),
)
