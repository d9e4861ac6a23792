"""`penstock pool`: look at a pool and run it."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..units import size
from .console import command, fail, messages, output, print_json
from .objects import Json, PoolName, Timeout, open_pool

app = typer.Typer(help="Look at a staging pool, drain its servers, give out tokens.", no_args_is_help=True)

LOOK_EVERY_S = 0.2
STATES = {"active": "green", "draining": "yellow", "lost": "red"}


@app.command("status")
@command
def status(
    pool: PoolName = "",
    timeout: Timeout = 10.0,
    every: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Look again and again (Ctrl-C leaves).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a pool's servers: memory, disk, objects, what they do."""
    with open_pool(pool, "", timeout) as there:
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


FIGURES = [
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
    return key not in ONLY_WITH_A_DISK or bool(server["disk_bytes"] or server["disk_free"])


@app.command("drain")
@command
def drain(
    server: Annotated[str, typer.Argument(help="The server's name or id, as penstock pool status --json shows it.")],
    pool: PoolName = "",
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long it may take.")] = 120.0,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Ask for it and leave.")] = False,
) -> None:
    """Have a server hand its objects on to the others, and end."""
    deadline = time.monotonic() + timeout
    with open_pool(pool, "", min(timeout, 30.0)) as there:
        others = [s for s in there.status()["servers"] if s["state"] == "active" and server not in (s["name"], s["id"])]
        there.administer(server, "drain")
        if not others:
            messages().print(Text("it is the only server: what no tier holds goes with it"), soft_wrap=True)
        if no_wait or not others:
            return
        with messages().status(f"{server} hands its objects on"):
            while any(server in (s["name"], s["id"]) for s in there.status()["servers"]):
                if time.monotonic() >= deadline:
                    fail(f"{server} has not left within {timeout:g} s", code=124)
                time.sleep(LOOK_EVERY_S)
    messages().print(Text(f"{server} has left the pool"))


@app.command("token")
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


@app.command("directory")
@command
def directory(pool: PoolName = "", timeout: Timeout = 10.0) -> None:
    """Print where clients with a role's token find the pool. It shows them the servers and no secret."""
    with open_pool(pool, "", timeout) as there:
        print(there.directory_for_roles())
