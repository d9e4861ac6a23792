"""`penstock pool`: look at a pool and run it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..errors import NotFound, PeerLost, WrongState
from ..units import size
from .console import Yes, command, confirm, fail, messages, output, print_json, say
from .objects import Json, PoolName, Timeout, open_pool

CALL_S = 30.0
CANCELLED = "it was cancelled"  # the server's word
ServerName = Annotated[str, typer.Argument(help="The server's name or id, as penstock pool status --json shows it.")]
STATES = {"active": "green", "draining": "yellow", "lost": "red"}


@command
def status(
    pool: PoolName = "",
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="Wait so long for the pool to be there.")
    ] = None,
    every: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Look again and again (Ctrl-C leaves).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a pool's servers: memory, disk, objects, what they do."""
    if every is not None and as_json:
        fail("--every is for looking again and again, and --json looks once", code=2)
    with open_pool(pool, "", 10.0 if timeout is None else timeout, wait=timeout is not None) as there:
        if as_json:
            print_json(there.status())
            return
        if every is None or not output().is_terminal:
            output().print(status_tables(there.status(), output().width))
            return
        with Live(console=output(), auto_refresh=False, screen=True) as live:
            while True:
                live.update(status_tables(there.status(), live.console.width), refresh=True)
                time.sleep(every)


FIGURES: list[tuple[str, str, Callable[[int], str]]] = [
    ("objects", "objects", str),
    ("memory", "memory_bytes", size),
    ("of", "memory_limit", size),
    ("disk", "disk_bytes", size),
    ("journal", "journal_bytes", size),
    ("free", "disk_free", size),
    ("evicted", "evictions", str),
    ("recalled", "recalls", str),
    ("puts", "puts", str),
    ("gets", "gets", str),
    ("in", "bytes_in", size),
    ("out", "bytes_out", size),
    ("waiting", "waiting", str),
]
ONLY_WITH_A_DISK = ("disk_bytes", "journal_bytes", "disk_free", "evictions", "recalls")


def status_tables(now: dict[str, Any], width: int) -> Group:
    """A column for each server, in as many tables as it takes in a terminal of that width."""
    settled = "settled" if now["settled"] else "passing objects on"
    title = f"pool {now['name']}: view {now['view']}, {settled}, replication {now['replication']}"
    at_once = max(1, (width - 12) // 13)  # columns of figures: 10 and what is between them
    servers = now["servers"]
    return Group(
        Text(title, style="bold"),
        *(_table(servers[i : i + at_once]) for i in range(0, len(servers), at_once)),
    )


def _table(servers: list[dict[str, Any]]) -> Table:
    table = Table("server")
    for server in servers:
        table.add_column(Text(server["name"]), justify="right", overflow="fold")
    table.add_row("state", *(Text(s["state"], style=STATES.get(s["state"], "")) for s in servers), end_section=True)
    for label, key, show in FIGURES:
        shown = [show(s[key]) if _has(s, key) else "–" for s in servers]
        if any(text != "–" for text in shown):
            table.add_row(label, *shown)
    return table


def _has(server: dict[str, Any], key: str) -> bool:
    if server["state"] == "lost":
        return False
    return key not in ONLY_WITH_A_DISK or _has_a_disk(server)


def _has_a_disk(server: dict[str, Any]) -> bool:
    return bool(server["disk_bytes"] or server["disk_free"])


@command
def drain(
    server: ServerName,
    pool: PoolName = "",
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="Cancel the drain after that; without it, there is no limit."),
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Begin the drain and leave.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End a drain: the server stays in the pool.")] = False,
    yes: Yes = False,
) -> None:
    """Have a server hand every object on to the other servers and leave the pool.

    It says what will be handed on, and asks. Nothing is lost: when the other servers cannot take the objects, or the
    timeout passes, the server stays an active member and the command fails. Ctrl-C leaves the drain in progress; the
    same command shows it again.
    """
    if (cancel or no_wait) and timeout is not None:
        fail("--timeout is for a drain that is waited for, and --cancel and --no-wait leave at once", code=2)
    if cancel and no_wait:
        fail("give --cancel or --no-wait, not both", code=2)
    with open_pool(pool, "", CALL_S) as there:
        if cancel:
            there.administer(server, "cancel_drain")
            messages().print(Text(f"{server} stays in the pool"))
            return
        if there.administer(server, "drain_status")["state"] not in ("handing_on", "handed_on"):
            _confirm_drain(there.status(), server, yes)
        first = there.administer(server, "drain")
        if no_wait:
            return
        try:
            say(f"{server} is draining: {_amount(first)} to hand on")
            end = _follow_drain(there, server, first, timeout)
        except KeyboardInterrupt:
            say(f"{server} is still draining. penstock pool drain {server} shows it again, --cancel ends the drain")
            raise
        if end["state"] == "failed":
            late = end["why"] == CANCELLED and timeout is not None
            why = f"it has not finished within {timeout:g} s" if late else end["why"]
            left = f"{_amount(end)} could not be handed on. " if end["objects"] else ""
            fail(
                f"{server} has not left pool {there.name}: {why}",
                f"{left}{server} stays in the pool with all its objects.",
                code=124 if late else 1,
            )
    say(f"{server} has handed on {_amount(first)} and has left the pool")


def _confirm_drain(now: dict[str, Any], server: str, yes: bool) -> None:
    leaving = _server(now, server)
    others = [s for s in now["servers"] if s is not leaving and s["state"] == "active"]
    if leaving is None or not others:  # the server says what is wrong
        return
    free = size(sum(max(0, s["memory_limit"] - s["memory_bytes"]) for s in others))
    whose = f"the other active server{'s' if len(others) > 1 else ''} ({len(others)}, with {free} of memory free)"
    held = _held(leaving)
    confirm(f"{server} hands on {held} to {whose}, then leaves pool {now['name']} and ends.", yes)


def _server(now: dict[str, Any], server: str) -> dict[str, Any] | None:
    return next((s for s in now["servers"] if server in (s["name"], s["id"])), None)


def _held(server: dict[str, Any]) -> str:
    disk = f", {size(server['disk_bytes'])} on disk" if _has_a_disk(server) else ""
    return f"{server['objects']} objects ({size(server['memory_bytes'])} in memory{disk})"


def _follow_drain(there: Any, server: str, first: dict[str, Any], timeout: float | None) -> dict[str, Any]:
    """Shows the drain until it has ended, and returns how. Throws penstock.Error when the server ends before that."""
    deadline = None if timeout is None else time.monotonic() + timeout
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
    )
    now = first
    with Progress(*columns, console=messages(), transient=True, disable=not messages().is_terminal) as progress:
        task = progress.add_task(f"draining {server}", total=max(1, first["bytes"]), left=_left(first))
        while now["state"] in ("handing_on", "handed_on"):
            progress.update(task, completed=max(0, first["bytes"] - now["bytes"]), left=_left(now))
            if deadline is not None and time.monotonic() >= deadline and now["state"] == "handing_on":
                deadline = None
                with contextlib.suppress(WrongState):  # it has ended at this moment
                    there.administer(server, "cancel_drain")
            try:
                now = there.administer(server, "drain_status")
            except (PeerLost, NotFound) as error:
                if now["state"] == "handed_on":
                    return now | {"state": "left"}
                fail(
                    f"{server} has ended before it had handed everything on: {error}",
                    f"{_amount(now)} were left. Unless they are on its disk or on other servers, they are lost.",
                )
    return now


def _amount(now: dict[str, Any]) -> str:
    return f"{now['objects']} objects ({size(now['bytes'])})"


def _left(now: dict[str, Any]) -> str:
    if now["awaits"]:
        return f"waiting until {', '.join(now['awaits'])} has what it lacks"
    return f"{_amount(now)} left"


@command
def stop(
    server: ServerName,
    pool: PoolName = "",
    force: Annotated[
        bool, typer.Option("--force", help="Also when objects are lost that no tier and no other server holds.")
    ] = False,
    yes: Yes = False,
) -> None:
    """End a server at once. It writes to its tiers what they should hold, and hands nothing on (see drain).

    It says what it holds and what may be lost, and asks.
    """
    with open_pool(pool, "", CALL_S) as there:
        now = there.status()
        found = _server(now, server)
        alone = now["replication"] == 1 or not now["settled"] or len(now["servers"]) == 1
        if found and not force and found["objects"] and alone and not _has_a_disk(found):
            fail(
                f"{server} holds {found['objects']} objects, some of which no tier and no other server may hold",
                f"penstock pool drain {server} hands them on. With --force they are lost.",
            )
        if found:
            kept = "Its tiers keep them." if _has_a_disk(found) else "The other servers have copies."
            lost = "Those that no other server holds are lost." if alone and not _has_a_disk(found) else kept
            confirm(f"{server} ends at once. It holds {_held(found)}. {lost if found['objects'] else ''}", yes)
        there.administer(server, "stop")
    say(f"{server} is stopping")


@command
def token(
    role: Annotated[
        str,
        typer.Option(metavar="ROLE", help="read, write, compute or admin: each may also do what the ones before may."),
    ],
    pool: PoolName = "",
    timeout: Timeout = 10.0,
) -> None:
    """Print the token of a role, for a client that shall have no more.

    Who has the directory's own address can give out tokens; give with them the one that penstock pool directory prints.
    """
    with open_pool(pool, "", timeout) as there:
        print(there.token(role))


@command
def directory(pool: PoolName = "", timeout: Timeout = 10.0) -> None:
    """Print where clients with a role's token find the pool. It shows them the servers and no secret."""
    with open_pool(pool, "", timeout) as there:
        print(there.directory_for_roles())
