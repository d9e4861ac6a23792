"""Runs one case: starts its programs, waits for them under a deadline, and pairs the figures that they print."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..workflow.launch import SESSION_FOLDER
from .cases import Case

# Open MPI 4 and 5; other MPIs take no notice.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "true",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class RunFailed(Exception):
    """A program of a case failed or did not end in time."""


@contextlib.contextmanager
def run_directories(case: Case, disk: Path) -> Iterator[tuple[Path, Path]]:
    """A fresh directory in which the programs of one run find each other, and one for files of steps."""
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        data = directory
        if case.files:
            data = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/dev/shm" if case.files == "memory" else disk))
            stack.callback(shutil.rmtree, data, ignore_errors=True)
        yield directory, data


def run_case(case: Case, disk: Path, deadline_s: float) -> list[dict[str, Any]]:
    """The figures of each program. Nothing that was started is left when this returns or raises."""
    with run_directories(case, disk) as (directory, data):
        registry = directory / "streams"
        registry.mkdir(mode=0o700)
        environment = MPI_ENVIRONMENT | case.environment | {"PENSTOCK_DIRECTORY": str(registry)}
        commands = [[word.format(directory=directory, data=data) for word in command] for command in case.commands]
        figures = [json.loads(line) for line in run_programs(commands, environment, directory, deadline_s)]
    if not any("seconds" in one for one in figures):
        raise RunFailed(f"{case.system} printed no figures")
    return figures


def run_programs(
    commands: Sequence[Sequence[str]],
    environment: dict[str, str],
    directory: Path,
    deadline_s: float,
    start: str = "{",
    needed: Sequence[subprocess.Popen[Any]] = (),
) -> list[str]:
    """Starts all together and waits for them. Returns those lines of standard output that begin with `start`, in the
    order of the commands. Output goes to files in `directory`. A process that is `needed` and ends
    fails the run at once. Nothing that was started is left when this ends."""
    children: list[subprocess.Popen[Any]] = []
    outputs = []
    try:
        for number, command in enumerate(commands):
            out = open(directory / f"out-{number}", "w+b")  # noqa: SIM115 closed below, after reading
            errors = open(directory / f"err-{number}", "w+b")  # noqa: SIM115
            outputs.append((out, errors))
            session = {SESSION_FOLDER: str(directory / f"mpi-{number}")}  # launchers must not share one
            # A session of its own: Ctrl-C reaches this program only, which then ends each by its group.
            children.append(
                subprocess.Popen(
                    command,
                    stdout=out,
                    stderr=errors,
                    stdin=subprocess.DEVNULL,
                    env=os.environ | session | environment,
                    start_new_session=True,
                )
            )
        wait_for_all(children, deadline_s, needed)
        return lines_of(outputs, start)
    except RunFailed as failure:
        raise RunFailed(f"{failure}{last_words(outputs)}") from None
    finally:
        end_all(children)
        for out, errors in outputs:
            out.close()
            errors.close()


def wait_for_all(
    children: list[subprocess.Popen[Any]], deadline_s: float, needed: Sequence[subprocess.Popen[Any]] = ()
) -> None:
    """Sleeps until every child has ended; raises when one fails or the deadline passes. Does not poll: a driver that
    wakes up takes time from the programs."""
    end = time.monotonic() + deadline_s
    if any(process.poll() is not None for process in needed):
        raise RunFailed("a server has ended")
    waiting = {os.pidfd_open(child.pid): child for child in children}
    servers = [os.pidfd_open(process.pid) for process in needed]
    try:
        poll = select.poll()
        for descriptor in (*waiting, *servers):
            poll.register(descriptor, select.POLLIN)
        left = len(waiting)
        while left:
            ready = poll.poll(max(0, int(1000 * (end - time.monotonic()))))
            if not ready:
                raise RunFailed(f"not done after {deadline_s:.0f} s")
            for descriptor, _ in ready:
                if descriptor in servers:
                    raise RunFailed("a server has ended")
                poll.unregister(descriptor)
                left -= 1
                code = waiting[descriptor].wait()
                if code != 0:
                    words: Any = waiting[descriptor].args
                    raise RunFailed(f"{Path(words[0]).name} ended with {code}")
    finally:
        for descriptor in (*waiting, *servers):
            os.close(descriptor)


def end_all(children: list[subprocess.Popen[Any]]) -> None:
    for child in children:
        if child.poll() is None:
            # mpiexec takes its ranks along on SIGTERM.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
    for child in children:
        try:
            child.wait(timeout=3)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def lines_of(outputs: list[Any], start: str) -> list[str]:
    lines: list[str] = []
    for out, _ in outputs:
        out.seek(0)
        lines += [line for line in out.read().decode(errors="replace").splitlines() if line.startswith(start)]
    return lines


def last_words(outputs: list[Any]) -> str:
    """The last line that says something, of each program."""
    words = []
    for _, errors in outputs:
        errors.seek(0)
        lines = errors.read().decode(errors="replace").splitlines()
        words += [line.strip() for line in lines if any(c.isalnum() for c in line)][-1:]
    return ": " + " | ".join(words)[:300] if words else ""


def pair_figures(case: Case, figures: list[dict[str, Any]]) -> dict[str, float]:
    """One run. Times are the slowest rank's, memory the largest rank's; CPU seconds and faults are of all ranks of a
    side.

    seconds: all steps. step_s: one step in the steady state, which is all steps but the first ones. startup_s: what
    the first steps took beyond as many steady ones. opened_s: from a program's start to the barrier. begun_s: both.
    """
    steps, first = figures[0]["steps"], figures[0]["first_steps"]
    whole = max(one["seconds"] for one in figures if "seconds" in one)
    first_s = max(one["first_s"] for one in figures if "first_s" in one)
    step_s = (whole - first_s) / (steps - first)
    startup_s, opened_s = first_s - first * step_s, max(one["opened_s"] for one in figures)
    run = {
        "seconds": case.scale * whole,
        "step_s": step_s,
        "startup_s": startup_s,
        "opened_s": opened_s,
        "begun_s": opened_s + startup_s,
    }
    for role in ("writer", "reader"):
        mine = [one for one in figures if one["role"] == role]
        run[f"cpu_{role}_s"] = sum(one["cpu_s"] for one in mine)
        run[f"rss_{role}_mb"] = max((one["rss_mb"] for one in mine), default=0.0)
        for name in ("step_cpu_s", "opened_faults", "first_faults", "first_system_s"):
            run[f"{role}_{name}"] = sum(one[name] for one in mine)
    run["bytes"] = figures[0]["bytes_per_step"]
    run["first_steps"] = first
    return run
