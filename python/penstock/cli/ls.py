"""`penstock stream ls`: the streams of this user on this machine, and the pools that the directory knows."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..units import size
from ..workflow.registry import DIRECTORY, directory_service, where_streams_register
from .console import command, messages, output, print_json

TIMEOUT_S = 5.0


@command
def ls(
    address: Annotated[
        bool, typer.Option("--address", help="Show addresses too. They hold the streams' tokens: keep them secret.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the streams that are being written now; with a directory service, pools, their servers and streams, too."""
    import penstock

    registered = sorted(penstock.list_streams(), key=lambda entry: entry.name)
    entries = [entry for entry in registered if entry.name != DIRECTORY]
    there = len(entries) < len(registered) or directory_service() is not None
    pools = _pools() if there else []
    if as_json:
        print_json({"streams": [_as_dict(entry, address) for entry in entries], "pools": pools})
        return
    if not entries:
        messages().print(Text(f"no streams in {where_streams_register()}"), soft_wrap=True)
    else:
        _show_streams(entries, address)
    if pools:
        _show_pools(pools)


def _show_streams(entries: list[Any], address: bool) -> None:
    table = Table()
    for title in ("stream", "writer", "host", "pid", "ranks") + (("address",) if address else ()):
        table.add_column(title, justify="right" if title in ("pid", "ranks") else "left", overflow="fold")
    for entry in entries:
        state = Text("alive", style="green") if entry.alive else Text("gone", style="red")
        row = [Text(entry.name), state, Text(entry.host), str(entry.pid), str(entry.ranks)]
        table.add_row(*row, *([Text(entry.address)] if address else []))
    output().print(table)


def _pools() -> list[dict[str, Any]]:
    import penstock

    try:
        pools = penstock.known_pools(timeout=TIMEOUT_S)
    except (penstock.NotFound, penstock.PeerLost, penstock.TimeoutError) as error:
        messages().print(Text(f"the directory service does not answer: {error}"), soft_wrap=True)
        return []
    for pool in pools:
        try:
            with penstock.Pool(pool["name"], timeout=TIMEOUT_S) as there:
                pool["streams"] = there.streams()
        except penstock.Error as error:
            pool["streams"] = []
            messages().print(Text(f"pool {pool['name']}: {error}"), soft_wrap=True)
    return pools


def _show_pools(pools: list[dict[str, Any]]) -> None:
    servers = Table()
    for title in ("pool", "server", "state", "view"):
        servers.add_column(title, justify="right" if title == "view" else "left", overflow="fold")
    for pool in pools:
        for server in pool["servers"]:
            state = Text(server["state"], style="green" if server["state"] == "active" else "yellow")
            servers.add_row(Text(pool["name"]), Text(server["name"]), state, str(pool["view"]))
        if not pool["servers"]:
            servers.add_row(Text(pool["name"]), Text("–"), "", str(pool["view"]))
    output().print(servers)
    streams = Table()
    for title in ("stream", "pool", "state", "writer", "ranks", "steps", "data", "readers"):
        streams.add_column(
            title, justify="right" if title in ("ranks", "steps", "data", "readers") else "left", overflow="fold"
        )
    for pool in pools:
        for stream in pool["streams"]:
            streams.add_row(
                Text(stream["stream"]),
                Text(pool["name"]),
                Text(stream["state"], style={"open": "green", "lost": "red"}.get(stream["state"], "")),
                Text(stream["writer"]),
                *(str(stream[key]) for key in ("ranks", "steps")),
                size(stream["bytes"]),
                str(stream["readers"]),
            )
    if streams.row_count:
        output().print(streams)


def _as_dict(entry: Any, address: bool) -> dict[str, Any]:
    keys = ("name", "alive", "host", "pid", "ranks") + (("address",) if address else ())
    return {key: getattr(entry, key) for key in keys}
