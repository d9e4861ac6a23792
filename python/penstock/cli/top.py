"""`penstock stream top`: the streams of running studies, live.

It never attaches to a stream, because a reader more would change what it shows: the figures come from the statistics
files that the library writes where PENSTOCK_STATISTICS points, which `penstock run` sets for its programs.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..units import duration, rate_of_bytes, size, timestamp
from ..workflow.registry import Run, list_runs
from ..workflow.statistics import Endpoint, Rate, read_endpoints
from .console import command, fail, messages, output, print_json

STALE_S = 3.0


@dataclass
class View:
    """What is followed, and the rates seen so far."""

    folders: list[Path]
    names: set[str]
    rates: dict[tuple[Path, str, str, int], Rate] = field(default_factory=dict)

    def runs(self) -> list[Run]:
        return [] if self.folders else list_runs()

    def endpoints(self) -> list[tuple[str, Path, Endpoint]]:
        """(program or "", folder, endpoint), the writer of a stream before its readers."""
        places = [("", folder) for folder in self.folders]
        for folder in [*self.folders, *(run.statistics for run in self.runs())]:
            places += [(p.name, p) for p in sorted(folder.glob("*")) if p.is_dir()]
        found = [(program, folder, e) for program, folder in places for e in read_endpoints(folder)]
        found = [item for item in found if not self.names or item[2].stream in self.names]
        return sorted(found, key=lambda item: (item[2].stream, item[2].role != "writer", item[0]))


@command
def top(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these streams.")] = None,
    statistics: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="Look here instead: a folder that programs have as PENSTOCK_STATISTICS."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and leave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON once and leave.")] = False,
    every: Annotated[
        float | None, typer.Option(min=0.1, max=60, metavar="SECONDS", help="How often to look. [default: 1]")
    ] = None,
) -> None:
    """Show steps, rates, queues and waits of the streams of running studies (Ctrl-C leaves).

    It reads files and attaches to nothing, so watching changes nothing. Figures are those of rank 0 of each program.
    """
    if every is not None and (once or as_json):
        fail("--every is for looking again and again, and --once and --json look once", code=2)
    for folder in statistics or []:
        if not folder.is_dir():
            fail(f"{folder} is not a folder", "Give the folder that the programs have as PENSTOCK_STATISTICS.", code=2)
    view = View([p.resolve() for p in statistics or []], set(names or []))
    if as_json:
        print_json([_as_dict(program, endpoint) for program, _, endpoint in view.endpoints()])
        return
    if once or not output().is_terminal:
        table = _table(view)
        output().print(table) if table.row_count else messages().print(Text(_nothing(view)), soft_wrap=True)
        return
    with Live(console=output(), auto_refresh=False, screen=True) as live, contextlib.suppress(KeyboardInterrupt):
        while True:
            table = _table(view)
            live.update(Group(table if table.row_count else Text(_nothing(view)), Text("Ctrl-C leaves", style="dim")))
            live.refresh()
            time.sleep(every or 1.0)


def _table(view: View) -> Table:
    table = Table()
    for title in ("stream", "side", "program", "pid"):
        table.add_column(title)
    for title in ("steps", "steps/s", "data/s", "data", "queue", "dropped", "copying", "waiting"):
        table.add_column(title, justify="right")
    now = time.monotonic()
    for program, folder, endpoint in view.endpoints():
        rate = view.rates.setdefault((folder, endpoint.stream, endpoint.role, endpoint.pid), Rate())
        rate.add(now, endpoint.count("steps"), endpoint.count("bytes"))
        per_second = rate.per_second(now)
        copying, waiting = endpoint.seconds("copy_s"), endpoint.seconds("wait_s")
        table.add_row(
            Text(endpoint.stream),
            endpoint.role,
            Text(program),
            str(endpoint.pid),
            str(endpoint.count("steps")),
            f"{per_second[0]:.1f}" if per_second else "–",
            rate_of_bytes(per_second[1]) if per_second else "–",
            size(endpoint.count("bytes")),
            str(endpoint.count("queue_depth")),
            str(endpoint.count("steps_dropped")),
            duration(copying) if copying is not None else "–",
            duration(waiting) if waiting is not None else "–",
            style="dim" if time.time() - endpoint.modified > STALE_S else "",
        )
    return table


def _nothing(view: View) -> str:
    if view.folders:
        return f"no statistics in {', '.join(map(str, view.folders))} yet"
    runs = ", ".join(run.name for run in view.runs())
    if runs and view.names:
        return f"running: {runs}; no stream named {', '.join(sorted(view.names))}"
    if runs:
        return f"running: {runs}; none of its programs has opened a stream yet"
    return (
        "no study is running here; for programs started by hand set PENSTOCK_STATISTICS=FOLDER in their environment "
        "and give penstock stream top --statistics FOLDER"
    )


def _as_dict(program: str, endpoint: Endpoint) -> dict:
    head = {"stream": endpoint.stream, "role": endpoint.role, "program": program or None, "pid": endpoint.pid}
    return {**head, "modified": timestamp(endpoint.modified), **endpoint.values}
