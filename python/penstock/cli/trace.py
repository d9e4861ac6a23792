"""`penstock trace` and `penstock replay`: what clients of pools did, and doing it again."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..units import duration, size, timestamp
from .console import command, fail, json_text, messages, output, print_json, say
from .objects import Json, check_directory

app = typer.Typer(help="Look at what clients of pools have recorded (PENSTOCK_TRACE).", no_args_is_help=True)

Traces = Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Files *.trace, or folders of them.")]
MAX_DIFFERENCES = 10  # shown


def read(paths: list[Path]) -> Any:
    from ..trace import Recording

    return Recording(*paths)


@app.command("show")
@command
def show(traces: Traces, as_json: Json = False) -> None:
    """Show what was done: for each verb how often, how many bytes, how long it took, what failed."""
    summary = read(traces).summary()
    if as_json:
        print_json(summary)
        return
    console = output()
    begin = timestamp(summary["begin_s"])
    table = Table(title=f"{summary['operations']} operations in {duration(summary['seconds'])} from {begin} on")
    for title in ("process", "host", "pid", "clients", "operations", "lost"):
        table.add_column(title, justify="left" if title in ("process", "host") else "right", overflow="fold")
    for process in summary["processes"]:
        lost = size(process["lost_bytes"]) if process["lost_bytes"] else "–"
        row = (process["program"], process["host"], process["pid"], process["clients"], process["operations"], lost)
        table.add_row(*(Text(str(cell)) for cell in row))
    console.print(table)
    table = Table()
    for title in ("verb", "calls", "keys", "bytes", "p50", "p99", "errors"):
        table.add_column(title, justify="left" if title in ("verb", "errors") else "right", overflow="fold")
    for verb in summary["verbs"]:
        errors = ", ".join(f"{code} {count}" for code, count in verb["errors"].items())
        calls, keys, held = str(verb["operations"]), str(verb["keys"]), size(verb["bytes"]) if verb["bytes"] else "–"
        table.add_row(verb["verb"], calls, keys, held, *_durations(verb["durations"]), errors or "–")
    console.print(table)


@app.command("merge")
@command
def merge(
    traces: Traces,
    into: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to standard output.")
    ] = None,
) -> None:
    """Put the operations of all processes in order on one clock: a line of JSON each."""
    recording = read(traces)
    if into is not None:
        recording.merge(into)
        say(f"{len(recording)} operations in {into}")
        return
    for operation in recording:
        sys.stdout.write(json_text(operation) + "\n")


@app.command("convert")
@command
def convert(
    traces: Traces,
    into: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")] = Path(
        "trace.json"
    ),
) -> None:
    """Convert to Chrome's trace format, to look at with https://ui.perfetto.dev or chrome://tracing."""
    recording = read(traces)
    recording.to_chrome(into)
    messages().print(Text(f"{len(recording)} operations in {into}; open it with https://ui.perfetto.dev"))


def parse_speed(text: str) -> float:
    if text == "max":
        return 0.0
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not (speed > 0 and math.isfinite(speed)):
        fail(f"'{text}' is no speed", "Give 1 (as recorded), 10 (ten times as fast), 0.5, ... or max.", code=2)
    return speed


@command
def replay(
    traces: Traces,
    pool: Annotated[
        str, typer.Option("--pool", metavar="NAME", help="The pool; default: the recorded one's name.")
    ] = "",
    speed: Annotated[
        str, typer.Option(metavar="FACTOR", help="1: as recorded; 10: ten times as fast; max: as fast as it goes.")
    ] = "1",
    clients: Annotated[
        int, typer.Option(min=1, max=1024, help="A stress load: so many copies of the whole recording at once.")
    ] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave objects and streams in the pool, and say by what names.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="Begin nothing more after that.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Do again what clients recorded, on a pool, and compare the outcomes.

    It works in namespaces and streams of its own, which are gone again at the end. Exit code 1 when an operation ended
    otherwise than it was recorded, 124 when the timeout passed.
    """
    factor = parse_speed(speed)
    recording = read(traces)
    check_directory()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=messages(), transient=True) as progress:
        task = progress.add_task("replaying", total=len(recording) * clients)
        report = recording.replay(
            pool,
            speed=factor,
            clients=clients,
            keep=keep,
            timeout=math.inf if timeout is None else timeout,
            on_progress=lambda ended, total: progress.update(task, completed=ended, total=total),
        )
    if as_json:
        print_json(report)
    else:
        show_report(report)
    if report["stopped"]:
        fail(f"the timeout of {timeout:g} s passed before everything was begun", code=124)
    if report["different"]:
        raise typer.Exit(1)


def show_report(report: dict[str, Any]) -> None:
    console = output()
    speed = "max" if report["speed"] == 0 else f"{report['speed']:g}"
    times = f"{duration(report['seconds'])} (recorded: {duration(report['recorded_seconds'])})"
    table = Table(
        title=f"{report['operations']} operations in {times}, speed {speed}, clients {report['clients']}: "
        f"{report['same']} as recorded, {report['different']} not"
    )
    for title in ("verb", "calls", "outcome", "recorded", "replayed", "different", "p50", "was", "p99", "was"):
        table.add_column(title, justify="left" if title in ("verb", "outcome") else "right", overflow="fold")
    for verb in report["verbs"]:
        now, was = _durations(verb["replayed"]), _durations(verb["recorded"])
        for i, (code, count) in enumerate(verb["outcomes"].items()):
            style = "red" if count["recorded"] != count["replayed"] else ""
            counts = (Text(str(count[which]), style=style) for which in ("recorded", "replayed"))
            first = (verb["verb"], str(verb["operations"])) if i == 0 else ("", "")
            last = (str(verb["different"]), now[0], was[0], now[1], was[1]) if i == 0 else ("",) * 5
            table.add_row(*first, code, *counts, *last)
    console.print(table)
    for one in report["differences"][:MAX_DIFFERENCES]:
        text = (
            f"{one['verb']} {one['row']}/{one['column']} at {one['at_s']:.6f} s: recorded {one['recorded']} "
            f"({one['recorded_failed']} failed), now {one['replayed']} ({one['replayed_failed']} failed)"
        )
        say(f"{text}: {one['message']}" if one["message"] else text)
    if report["prepared_objects"]:
        messages().print(
            Text(f"put before, because the recorded clients found them: {report['prepared_objects']} objects")
        )
    for namespace in report.get("namespaces", ()):
        say(f"kept in the namespace {namespace}")
    for stream in report.get("streams", ()):
        say(f"kept: the stream {stream}")


def _durations(durations: dict[str, float] | None) -> tuple[str, str]:
    if durations is None:
        return "–", "–"
    return duration(durations["median_us"] / 1e6), duration(durations["p99_us"] / 1e6)
