"""Running a study: the output folder, the environment of its programs, the supervision, the summary."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from .display import Display
from .launch import Launch, LaunchError, prepare, with_environment
from .registry import directory_is_known, registered
from .servers import READY_S, PoolServers
from .study import PoolPlan, Study, engine_in_effect, engine_of
from .summary import summarise, write_summary
from .supervisor import GRACE_S, TERM_S, Child, Supervisor, Verdict, describe_exit

LOG_TAIL_LINES = 15
REPORT = "report.json"  # of an analysis: penstock.analysis.run
FIND_S = 3.0
LOG_TAIL_BYTES = 64 << 10

Status = Verdict


@dataclass(frozen=True)
class Failure:
    """A program that failed by itself, in order of time."""

    program: str
    outcome: str
    log: Path
    log_tail: tuple[str, ...]


@dataclass(frozen=True)
class RunResult:
    status: Status
    output: Path
    elapsed_s: float
    summary: dict[str, Any]
    failures: tuple[Failure, ...] = field(default=())
    running: tuple[str, ...] = field(default=())  # what still ran when the run was timed out or interrupted

    @property
    def ok(self) -> bool:
        return self.status is Status.succeeded

    @property
    def exit_code(self) -> int:
        return {Status.succeeded: 0, Status.failed: 1, Status.timed_out: 124, Status.interrupted: 130}[self.status]


def run_study(
    study: Study, *, console: Console | None = None, grace_s: float = GRACE_S, term_s: float = TERM_S
) -> RunResult:
    """Starts the study's programs, waits for all of them, runs its check, and writes `summary.json`.

    Returns also when a program fails, the deadline passes, or the run is interrupted; nothing is left running. Throws
    LaunchError before anything is started when a program cannot be found. Call it from the main thread: it takes
    SIGINT, SIGTERM and SIGHUP while it runs.
    """
    console = console or Console(quiet=True)
    started = time.monotonic()
    with _output_folder(study), registered(study):
        _clear(study)
        plan = pool_plan(study)
        launches = [_launch(study, program.name, program) for program in study.programs]
        check = _launch(study, "check", study.check) if study.check else None
        _write_configuration(study)

        with _pool_servers(study, plan, console, started + study.timeout_s) as servers:
            if servers:
                launches = [with_environment(launch, servers.environment()) for launch in launches]
                check = with_environment(check, servers.environment()) if check else None
            with Display(study, console, study.output / ".statistics") as display:
                tick = _watching(servers, display.tick, console)
                supervisor = Supervisor(started + study.timeout_s, tick, grace_s, term_s)
                started_at = datetime.now(UTC)
                supervisor.run(launches)
                programs = list(supervisor.children)
                if check and supervisor.verdict is Verdict.succeeded:
                    supervisor.run([check])
                display.finish(supervisor.children)
            pool = {"name": servers.plan.name, "servers": servers.status()} if servers else None

        elapsed_s = time.monotonic() - started
        summary = summarise(study, programs, supervisor.children, supervisor.verdict, started_at, elapsed_s, pool)
        write_summary(study.output / "summary.json", summary)
    failed = sorted((c for c in supervisor.children if c.failed), key=lambda c: c.ended or 0.0)
    verdict = supervisor.verdict
    inside = _failed_inside(study) if verdict is Verdict.succeeded else ()
    if inside:
        verdict = Verdict.failed
    return RunResult(
        status=verdict,
        output=study.output,
        elapsed_s=elapsed_s,
        summary=summary,
        failures=(*(_failure(c) for c in failed), *inside),
        running=tuple(c.launch.name for c in supervisor.children if c.stopped),
    )


def _failed_inside(study: Study) -> tuple[Failure, ...]:
    """Analyses that simulations ran in their processes, and that failed: a simulation goes on without its analysis."""
    failures = []
    for channel in study.coprocessing:
        if engine_in_effect(study.streams, channel) != "insitu":
            continue
        try:
            error = json.loads((study.output / REPORT).read_text(encoding="utf-8"))["error"]
        except (OSError, ValueError, KeyError):
            error = "it has left no report; the simulation's log may say why"
        if error:
            failures.append(Failure(f"analysis of {channel}", error, study.output / "logs", ()))
    return tuple(failures)


# ----------------------------------------------------------------------------------------------------------- the pool


def pool_plan(study: Study) -> PoolPlan | None:
    """The servers that the run starts: those of the study, or two when a stream wants a pool and there is none."""
    if study.pool is not None:
        return study.pool
    wanted = {"pool", "space"} & set(map(engine_of, study.streams.values()))
    return PoolPlan(servers=2) if wanted and not _pool_is_there() else None


def _pool_is_there() -> bool:
    """Whether a directory service answers and knows a pool."""
    import penstock

    with contextlib.suppress(penstock.Error, OSError):
        return directory_is_known() and bool(penstock.known_pools(timeout=FIND_S))
    return False


@contextlib.contextmanager
def _pool_servers(
    study: Study, plan: PoolPlan | None, console: Console, deadline: float
) -> Iterator[PoolServers | None]:
    """While it lasts, the servers run and are ready."""
    if plan is None:
        yield None
        return
    folder = study.output / ".pool"
    shutil.rmtree(folder, ignore_errors=True)
    with PoolServers(plan, logs=study.output / "logs", folder=folder) as servers:
        servers.wait_ready(min(READY_S, deadline - time.monotonic()))
        console.print(f"pool {plan.name}: {plan.servers} server{'s' if plan.servers > 1 else ''} ready")
        yield servers
        if not servers.stop():
            console.print("a server of the pool did not end in order; its log is in logs/")
    shutil.rmtree(folder, ignore_errors=True)


def _watching(
    servers: PoolServers | None, tick: Callable[[list[Child]], None], console: Console
) -> Callable[[list[Child]], None]:
    """The tick, which also says when a server has gone."""
    if servers is None:
        return tick
    said: set[int] = set()

    def look(children: list[Child]) -> None:
        for server in servers.ended():
            if server.number not in said:
                said.add(server.number)
                console.print(f"server {server.number} of the pool ended: {describe_exit(server.process.returncode)}")
        tick(children)

    return look


# ------------------------------------------------------------------------------------------------- the output folder


@contextlib.contextmanager
def _output_folder(study: Study) -> Iterator[None]:
    """Makes it and holds it: two runs into one folder would mix their results."""
    try:
        study.output.mkdir(parents=True, exist_ok=True)
        lock = os.open(study.output / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LaunchError(f"the output folder {study.output} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise LaunchError(
            f"another run is writing into {study.output}; wait for it, or give this one another folder with --output"
        ) from None
    try:
        yield
    finally:
        os.close(lock)


def _clear(study: Study) -> None:
    """Takes away what an earlier run left that this one would read as its own; pictures and data stay."""
    shutil.rmtree(study.output / "logs", ignore_errors=True)
    shutil.rmtree(study.output / ".statistics", ignore_errors=True)
    stale = ["summary.json", "penstock.yaml", REPORT, *(f"{p.name}.json" for p in study.programs)]
    for name in stale:
        (study.output / name).unlink(missing_ok=True)
    (study.output / "logs").mkdir()
    for options in study.streams.values():
        if isinstance(options, dict) and options.get("engine") == "file" and str(options.get("resume", "no")) == "no":
            _clear_steps(study, Path(str(options.get("folder", ""))))


def _clear_steps(study: Study, folder: Path) -> None:
    """The steps of the run before, which a reader that comes before this run's writer would take for its own."""
    if study.output not in folder.parents or not (folder / "stream.json").is_file():
        return
    for path in folder.iterdir():
        if re.fullmatch(r"stream\.(json|lock)|\.?\d+\.(h5|rank\d+)(\.part)?", path.name):
            path.unlink()


def _has_configuration(study: Study) -> bool:
    return bool(study.streams or study.coprocessing or study.meshes)


def _write_configuration(study: Study) -> None:
    """The options of streams and meshes, for the programs to find through PENSTOCK_CONFIG."""
    if not _has_configuration(study):
        return
    configuration: dict[str, Any] = {}
    inherited = os.environ.get("PENSTOCK_CONFIG")
    if inherited:
        try:
            configuration = yaml.safe_load(Path(inherited).read_text(encoding="utf-8")) or {}
        except (OSError, yaml.YAMLError) as error:
            raise LaunchError(f"PENSTOCK_CONFIG={inherited} cannot be read: {error}") from None
        if not isinstance(configuration, dict) or not isinstance(configuration.get("streams", {}), dict):
            raise LaunchError(f"PENSTOCK_CONFIG={inherited} is no configuration: 'streams:' must be a mapping")
    for section, chosen in (("streams", study.streams), ("meshes", study.meshes)):
        joined = dict(configuration.get(section) or {})
        for name, options in chosen.items():
            inherited_options = joined.get(name)
            if isinstance(options, dict) and isinstance(inherited_options, dict):
                joined[name] = {**inherited_options, **options}
            else:
                joined[name] = options
        if joined or section == "streams":
            configuration[section] = joined
    if study.coprocessing:
        known = configuration.get("coprocessing") or {}
        joined = {name: {**(known.get(name) or {}), **options} for name, options in study.coprocessing.items()}
        configuration["coprocessing"] = {**known, **joined}
    text = yaml.safe_dump(configuration, sort_keys=False)
    heading = f"# Written by penstock run from {study.file.name}\n"
    (study.output / "penstock.yaml").write_text(heading + text, encoding="utf-8")


def _launch(study: Study, name: str, program: Any) -> Launch:
    statistics = study.output / ".statistics" / name
    statistics.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PENSTOCK_STATISTICS": str(statistics),
        "PYTHONUNBUFFERED": "1",  # a log that is complete up to a crash
        "PENSTOCK_PYTHON": sys.executable,  # of programs that run a Python program inside themselves
    }
    if _has_configuration(study):
        environment["PENSTOCK_CONFIG"] = str(study.output / "penstock.yaml")
    try:
        return prepare(study, program, environment, study.output / "logs" / f"{name}.log")
    except LaunchError as error:
        place = "check" if program is study.check else f"programs.{name}"
        raise LaunchError(f"{study.file.name}: {place}: {error}") from None


def _failure(child: Child) -> Failure:
    return Failure(child.launch.name, child.outcome(), child.launch.log, tuple(log_tail(child.launch.log)))


def log_tail(path: Path) -> list[str]:
    """The last LOG_TAIL_LINES of a log, blank ones at the end left out; empty when there is no log."""
    try:
        with open(path, "rb") as log:
            log.seek(0, os.SEEK_END)
            start = max(0, log.tell() - LOG_TAIL_BYTES)
            log.seek(start)
            text = log.read().decode("utf-8", errors="replace").rstrip()
    except OSError:
        return []
    return text.splitlines()[-LOG_TAIL_LINES:]
