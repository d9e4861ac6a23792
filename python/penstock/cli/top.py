"""`penstock stream top`: streams and servers, live.

It never attaches to a stream, because a reader more would change what it shows. The figures of studies come from the
statistics files that the library writes where PENSTOCK_STATISTICS points, which `penstock run` sets for its programs.
Other living writers are asked for theirs, and pools for those of their streams and servers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..units import duration, rate_of_bytes, size, timestamp
from ..workflow.registry import Run, list_runs
from ..workflow.statistics import Endpoint, Rate, is_internal, read_endpoints
from .console import command, fail, output, print_json, say, visible
from .places import SPACES_NAMESPACE, Place, in_files, in_space, known_pools, registered, say_once
from .pool import status_tables

if TYPE_CHECKING:
    from ..pool import Pool

STALE_S = 3.0
CALL_S = 2.0
FIGURES = ("steps", "bytes", "queue_depth", "steps_dropped", "copy_s", "wait_s")  # null where unknown
NO_FOLDER = Path()  # of figures that are asked for
TITLES = (
    "stream", "side", "program", "pid", "steps", "steps/s", "data/s", "moved", "queue", "dropped", "copying", "waiting",
    "readers",
)  # fmt: skip
DISPENSABLE = ("pid", "copying", "dropped", "moved", "program", "data/s")  # in this order where the terminal is narrow
UNKNOWN = "–"
Answer = TypeVar("Answer")


@dataclass
class View:
    """What is followed, and the rates seen so far."""

    folders: list[Path]
    names: set[str]
    rates: dict[tuple[Path, str, str, int], Rate] = field(default_factory=dict)
    clients: dict[tuple[str, str], Pool] = field(default_factory=dict)  # of pools, from one look to the next

    def runs(self) -> list[Run]:
        return [] if self.folders else list_runs()

    def endpoints(self) -> list[tuple[str, Path, Endpoint]]:
        """(program or "", folder, endpoint), the writer of a stream before its readers."""
        places = [("", folder) for folder in self.folders]
        for folder in [*self.folders, *(run.statistics for run in self.runs())]:
            places += [(p.name, p) for p in sorted(folder.glob("*")) if p.is_dir()]
        found = [(program, folder, e) for program, folder in places for e in read_endpoints(folder)]
        if not self.folders:
            pids = {(e.stream, e.pid) for _, _, e in found if e.role == "writer"}
            found += [("", NO_FOLDER, endpoint) for endpoint in self._beside(pids)]
        found = [item for item in found if not self.names or item[2].stream in self.names]
        return sorted(found, key=lambda item: (item[2].stream, item[2].role != "writer", item[0]))

    def _beside(self, pids: set[tuple[str, int]]) -> list[Endpoint]:
        """What is not in statistics files: streams and processes whose figures are there are left out."""
        files = [_kept(place, "files", place.about["stream"]) for place in in_files() if place.about["state"] == "open"]
        files = [endpoint for endpoint in files if (endpoint.stream, endpoint.pid) not in pids]
        return _asked(pids) + self._pooled() + self._in_spaces() + files

    def pools(self) -> list[dict[str, Any]]:
        """The status of each pool."""
        return [status for _, status in self._of_pools(lambda client: client.status())]

    def _pooled(self) -> list[Endpoint]:
        """Streams in pools. Their process is the writer's, which may have ended."""
        return [
            Endpoint(told["stream"], f"pool {name}", int(told["writer"].rpartition(":")[2] or 0), told, time.time())
            for name, streams in self._of_pools(lambda client: client.streams())
            for told in streams
        ]

    def _in_spaces(self) -> list[Endpoint]:
        spaces = self._of_pools(in_space, SPACES_NAMESPACE)
        return [_kept(place, f"space {name}", place.name) for name, places in spaces for place in places]

    def _of_pools(self, ask: Callable[[Pool], Answer], ns: str = "") -> list[tuple[str, Answer]]:
        """The name and the answer of each pool that answers. One that does not is opened anew at the next look."""
        import penstock

        found = []
        for name in [] if self.folders else [pool["name"] for pool in known_pools()]:
            try:
                if (name, ns) not in self.clients:
                    self.clients[name, ns] = penstock.Pool(name, ns=ns, timeout=CALL_S)
                found.append((name, ask(self.clients[name, ns])))
            except penstock.Error as error:
                say_once(f"pool {name}: {error}")
                if client := self.clients.pop((name, ns), None):
                    client.close()
        return found


def _kept(place: Place, role: str, stream: str) -> Endpoint:
    """Of a stream whose steps are kept: its process is the writer's, which may have ended."""
    told = place.about
    values = told | {"newest": told.get("newest", told.get("last"))}
    return Endpoint(stream, role, int(told["writer"].rpartition(":")[2] or 0), values, time.time())


def _asked(pids: set[tuple[str, int]]) -> list[Endpoint]:
    """What living writers say of themselves, except those of these streams and processes."""
    import penstock

    found = []
    for place in registered():
        pid = int(place.about["writer"].rpartition(":")[2])
        if place.about["state"] != "alive" or is_internal(place.name) or (place.name, pid) in pids:
            continue
        with contextlib.suppress(penstock.Error):  # it has ended meanwhile
            values = penstock.inspect(place.name, CALL_S)
            found.append(Endpoint(place.name, "writer", pid, values, time.time()))
    return found


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
    """Show steps, rates, queues and waits of streams, and the servers of pools (Ctrl-C leaves).

    It reads files, asks writers and pools, and attaches to nothing, so watching changes nothing. Figures are those of
    rank 0 of each program.
    """
    if every is not None and (once or as_json):
        fail("--every is for looking again and again, and --once and --json look once", code=2)
    for folder in statistics or []:
        if not folder.is_dir():
            fail(f"{folder} is not a folder", "Give the folder that the programs have as PENSTOCK_STATISTICS.", code=2)
    view = View([p.resolve() for p in statistics or []], set(names or []))
    if as_json:
        streams = [_as_dict(program, endpoint) for program, _, endpoint in view.endpoints()]
        print_json({"streams": streams, "pools": view.pools()})
        return
    if once or not output().is_terminal:
        shown, pools = _shown(view, output())
        output().print(*pools) if shown is None else output().print(shown, *pools)
        if shown is None:
            say(_nothing(view))
        return
    with Live(console=output(), auto_refresh=False, screen=True) as live, contextlib.suppress(KeyboardInterrupt):
        while True:
            shown, pools = _shown(view, live.console)
            live.update(Group(shown or Text(_nothing(view)), *pools, Text("Ctrl-C leaves", style="dim")), refresh=True)
            time.sleep(every or 1.0)


def _shown(view: View, console: Console) -> tuple[Table | None, list[Group]]:
    """The table of streams, if there are any, and those of pools' servers."""
    rows = _rows(view)
    table = _fitting(rows, console) if rows else None
    return table, [status_tables(pool, console.width) for pool in view.pools()]


def _rows(view: View) -> list[tuple[bool, dict[str, str]]]:
    """(whether it is of now, cells by title) of each end of a stream."""
    rows = []
    now = time.monotonic()
    for program, folder, endpoint in view.endpoints():
        rate = view.rates.setdefault((folder, endpoint.stream, endpoint.role, endpoint.pid), Rate())
        steps, moved = _progress(endpoint)
        rate.add(now, steps, moved)
        per_second = rate.per_second(now)
        copying, waiting = endpoint.seconds("copy_s"), endpoint.seconds("wait_s")
        values = (
            visible(endpoint.stream),
            endpoint.role,
            visible(program),
            str(endpoint.pid),
            str(steps),
            f"{per_second[0]:.1f}" if per_second else UNKNOWN,
            rate_of_bytes(per_second[1]) if per_second and moved else UNKNOWN,
            size(moved) if moved else UNKNOWN,
            _known(endpoint, "queue_depth"),
            _known(endpoint, "steps_dropped"),
            duration(copying) if copying is not None else UNKNOWN,
            duration(waiting) if waiting is not None else UNKNOWN,
            _readers(endpoint),
        )
        fresh = time.time() - endpoint.modified <= STALE_S
        rows.append((fresh, dict(zip(TITLES, values, strict=True))))
    return rows


def _progress(endpoint: Endpoint) -> tuple[int, int]:
    """Steps and bytes that have gone through. A pool's server also says what it keeps: it counts since it leads the
    stream. Of other kept streams, the newest step's number says how many there have been."""
    if "steps_taken" in endpoint.values:
        return endpoint.count("steps_taken"), endpoint.count("bytes_taken")
    newest = endpoint.values.get("newest")
    return newest + 1 if isinstance(newest, int) else endpoint.count("steps"), endpoint.count("bytes")


def _known(endpoint: Endpoint, name: str) -> str:
    return str(endpoint.count(name)) if endpoint.values.get(name) is not None else UNKNOWN


def _readers(endpoint: Endpoint) -> str:
    """Of writers and of pools."""
    if isinstance(count := endpoint.values.get("readers"), int):
        return str(count)
    peers = endpoint.values.get("peers")
    return str(len(peers)) if endpoint.role == "writer" and isinstance(peers, list) else UNKNOWN


def _fitting(rows: list[tuple[bool, dict[str, str]]], console: Console) -> Table:
    """A table of the columns that say something, with as many of them as fit into the terminal."""
    titles = [title for title in TITLES if any(cells[title] not in ("", UNKNOWN) for _, cells in rows)]
    gone = [title for title in DISPENSABLE if title in titles]
    table = _table(rows, titles)
    without_limit = console.options.update(max_width=10_000)
    while gone and Measurement.get(console, without_limit, table).maximum > console.width:
        titles.remove(gone.pop(0))
        table = _table(rows, titles)
    return table


def _table(rows: list[tuple[bool, dict[str, str]]], titles: list[str]) -> Table:
    table = Table()
    for title in titles:
        text = title in ("stream", "side", "program")
        table.add_column(title, justify="left" if text else "right", overflow="fold" if text else "ellipsis")
    for fresh, cells in rows:
        table.add_row(*(Text(cells[title]) for title in titles), style="" if fresh else "dim")
    return table


def _nothing(view: View) -> str:
    if view.folders:
        return f"no statistics in {', '.join(map(str, view.folders))} yet"
    runs = ", ".join(run.name for run in view.runs())
    if runs and not view.names:
        return f"running: {runs}; none of its programs has opened a stream yet"
    if view.names:
        return f"no stream named {', '.join(sorted(view.names))}; penstock stream ls lists what is there"
    return (
        "no study is running, and no stream is being written here; for programs of other users or hosts set "
        "PENSTOCK_STATISTICS=FOLDER in their environment and give penstock stream top --statistics FOLDER"
    )


def _as_dict(program: str, endpoint: Endpoint) -> dict[str, Any]:
    figures = dict.fromkeys(FIGURES) | endpoint.values
    head = {"stream": endpoint.stream, "role": endpoint.role, "program": program or None, "pid": endpoint.pid}
    return {**head, "modified": timestamp(endpoint.modified), **figures}
