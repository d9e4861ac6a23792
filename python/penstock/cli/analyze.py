"""`penstock analyze`: pipelines and scripts over the steps of a channel, live or kept."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..units import duration, size
from .console import command, fail, messages, output, print_json
from .objects import Json
from .places import hint_for

SHOWN_FILES = 4
END_WITHIN_S = 30


@command
def analyze(
    channel: Annotated[
        str,
        typer.Argument(
            metavar="[NAME=]STREAM", help="The stream, an address, a folder of files, mesh:REGION, or an Exodus file."
        ),
    ],
    programs: Annotated[list[Path], typer.Argument(metavar="PIPELINE...", help="Pipelines (YAML), or scripts (.py).")],
    more: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="[NAME=]STREAM[@latest]", help="One more channel; may be given several times."),
    ] = None,
    out: Annotated[Path, typer.Option("--output", "-o", help="The folder of the results.")] = Path("output"),
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, max=256, help="Processes on this host.")] = 1,
    partition: Annotated[
        str, typer.Option(help="How meshes are parted over ranks: block, planar or morton.")
    ] = "block",
    frames: Annotated[int | None, typer.Option("--steps", min=1, help="Analyse so many steps and leave.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="How long to wait for a stream, and for each step.")
    ] = None,
    paraview: Annotated[bool, typer.Option("--paraview", help="The scripts are ParaView's, for Catalyst.")] = False,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Run pipelines over the steps of a channel: from a running simulation, a pool, or files.

    Where the steps come from is the stream's engine in penstock.yaml. A pipeline may be edited while it runs.
    Started by mpiexec, all processes are one analysis; --ranks starts processes without MPI.
    """
    import penstock

    from ..analysis.schema import PipelineError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as batch systems end programs
    for path in programs:
        if not path.is_file():
            fail(f"there is no file {path}")
    if paraview and len(programs) > 1:
        fail("--paraview runs one script at a time")
    if paraview:
        raise typer.Exit(in_paraview(channel, programs[0], out, frames, timeout))
    given = Namespace(
        programs=[str(path) for path in programs],
        channel=[channel, *(more or [])],
        output=str(out),
        rank=0,
        size=0 if ranks == 1 and _in_mpi() else ranks,
        cohort=f"analysis-{secrets.token_hex(4)}",
        partition=partition,
        timeout=timeout,
        frames=frames,
    )
    try:
        with _others(given), _watched(channel, quiet or as_json) as observe:
            from ..analysis.__main__ import run

            report = run(given, observe)
    except PipelineError as error:
        fail(str(error))
    except penstock.Error as error:
        fail(str(error), hint_for(channel), code=124 if isinstance(error, TimeoutError) else 1)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("vtkmodules", "vtk"):
            raise
        fail("analyses need VTK, which is not installed", "pip install vtk")
    if given.rank > 0:  # of MPI
        return
    if as_json:
        print_json(vars(report))
    elif not quiet:
        show(report, output())
        output().print(Text(f"report: {out / 'report.json'}"), soft_wrap=True)


def in_paraview(channel: str, script: Path, out: Path, frames: int | None, timeout: float | None) -> int:
    """Runs a script of Catalyst in ParaView; returns its exit status."""
    from ..analysis import catalyst

    pvbatch = shutil.which("pvbatch")
    if pvbatch is None:
        fail("pvbatch is not in PATH", "Install ParaView (Debian: apt install paraview python3-paraview).")
    display = shutil.which("xvfb-run") if "DISPLAY" not in os.environ else None
    words = [*([display, "-a"] if display else []), pvbatch, catalyst.__file__, channel, str(script)]
    words += ["--output", str(out)]
    words += ["--steps", str(frames)] if frames is not None else []
    words += ["--timeout", str(timeout)] if timeout is not None else []
    return subprocess.run(words, stdin=subprocess.DEVNULL).returncode


def _in_mpi() -> bool:
    return any(int(os.environ.get(name) or 1) > 1 for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))


@contextlib.contextmanager
def _others(given: Namespace) -> Iterator[None]:
    """The other ranks, as processes, while this one is rank 0. Those that are left at the end are ended."""
    words = [*given.programs, "--output", given.output, "--size", str(given.size), "--cohort", given.cohort]
    words += ["--partition", given.partition]
    words += [word for each in given.channel for word in ("--channel", each)]
    words += ["--timeout", str(given.timeout)] if given.timeout is not None else []
    words += ["--frames", str(given.frames)] if given.frames is not None else []
    command_line = [sys.executable, "-m", "penstock.analysis", *words]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(1, given.size):
            started.append(subprocess.Popen([*command_line, "--rank", str(rank)], stdin=subprocess.DEVNULL))
        yield
        for rank, each in enumerate(started, 1):
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(END_WITHIN_S)
            if each.poll() != 0:
                fail(f"rank {rank} did not end well (status {each.poll()})", "Its messages are above.")
    finally:
        for each in started:
            if each.poll() is None:
                each.terminate()
        for each in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(END_WITHIN_S)
            each.kill()


@contextlib.contextmanager
def _watched(name: str, quiet: bool) -> Iterator[Callable[[Any], None]]:
    from ..analysis.run import saying_what_is_left_out

    console = messages()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    said = {"problem": ""}
    say = saying_what_is_left_out(lambda text: console.print(Text(text), soft_wrap=True))
    with Bar(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(f"waiting for {name}", total=None)

        def observe(progress: Any) -> None:
            if progress.problem and progress.problem != said["problem"]:
                console.print(Text(progress.problem), soft_wrap=True)
            said["problem"] = progress.problem
            say(progress)
            text = f"{name}: cycle {progress.cycle}, {progress.frames} steps analysed"
            if progress.waiting > 1:
                text += f", waiting for {progress.waiting:.0f} s"
            bar.update(task, description=text)

        yield observe


def show(report: Any, console: Console) -> None:
    """Where time went, and what was written."""
    from ..analysis.run import text_of_missed

    table = Table(title=f"{report.frames} steps analysed, {size(report.bytes)} read")
    for title in ("spent on", "seconds", "per step"):
        table.add_column(title, justify="left" if title == "spent on" else "right")
    for what, seconds in report.seconds.items():
        table.add_row(what, f"{seconds:.3f}", duration(seconds / max(report.frames, 1)))
    console.print(table)
    if report.skipped:
        why = ", ".join(f"{count} ({reason})" for reason, count in report.skipped.items())
        console.print(Text(f"cycles that the simulation did not publish: {why}"), soft_wrap=True)
    for name, count in report.missed.items():
        console.print(Text(text_of_missed(name, count)), soft_wrap=True)
    for name, why in report.refused.items():
        console.print(Text(f"the simulation refused {name}: {why}"), soft_wrap=True)
    more = f" and {len(report.files) - SHOWN_FILES} more" if len(report.files) > SHOWN_FILES else ""
    if report.files:
        console.print(Text(f"files: {', '.join(report.files[-SHOWN_FILES:])}{more}"), soft_wrap=True)
