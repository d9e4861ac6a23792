"""`penstock pool`: look at a pool and run it."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
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
            output().print(_table(there.status()))
            return
        with Live(console=output(), auto_refresh=False, screen=True) as live:
            while True:
                live.update(_table(there.status()), refresh=True)
                time.sleep(every)


def _table(now: dict[str, Any]) -> Table:
    settled = "settled" if now["settled"] else "passing objects on"
    title = f"pool {now['name']}: view {now['view']}, {settled}, replication {now['replication']}"
    table = Table(title=title, title_style="bold")
    for title in ("server", "state"):
        table.add_column(title, overflow="fold")
    for title in (
        "objects",
        "memory",
        "of",
        "disk",
        "journal",
        "free",
        "puts",
        "gets",
        "in",
        "out",
        "evicted",
        "recalled",
        "waiting",
    ):
        table.add_column(title, justify="right")
    for server in now["servers"]:
        row = [Text(server["name"]), Text(server["state"], style=STATES.get(server["state"], ""))]
        if server["state"] == "lost":
            table.add_row(*row)
            continue
        on_disk = server["disk_bytes"] or server["disk_free"]
        table.add_row(
            *row,
            str(server["objects"]),
            size(server["memory_bytes"]),
            size(server["memory_limit"]),
            size(server["disk_bytes"]) if on_disk else "–",
            size(server["journal_bytes"]) if on_disk else "–",
            size(server["disk_free"]) if on_disk else "–",
            str(server["puts"]),
            str(server["gets"]),
            size(server["bytes_in"]),
            size(server["bytes_out"]),
            str(server["evictions"]),
            str(server["recalls"]),
            str(server["waiting"]),
        )
    return table


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
