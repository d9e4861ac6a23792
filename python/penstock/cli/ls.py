"""`penstock stream ls`: streams in their writers' memory, in pools and in files, and the pools' servers."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..units import size
from ..workflow.registry import where_streams_register
from .console import command, messages, output, print_json, say, visible
from .places import Place, in_files, in_pools, known_pools, registered

STATES = {"alive": "green", "open": "green", "gone": "red", "lost": "red"}
KNOWN = ("state", "writer", "ranks", "steps", "bytes", "readers")


@command
def ls(
    address: Annotated[
        bool, typer.Option("--address", help="Show addresses too. They hold the streams' tokens: keep them secret.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List streams: being written now, kept in pools, kept in files of this folder; and the pools' servers."""
    pools = known_pools()
    places = registered() + in_pools(pools) + in_files()
    if as_json:
        print_json({"streams": [_as_dict(place, address) for place in places], "pools": pools})
        return
    if places:
        output().print(_streams(places))
    else:
        say(f"no streams in {where_streams_register()}, in pools, or in files here")
    if pools:
        output().print(_servers(pools))
    addresses = [place.about["address"] for place in places if "address" in place.about] if address else []
    for each in addresses:
        output().print(Text(each), soft_wrap=True)  # a line each, to copy it
    if any(each.startswith("tcp://127.") for each in addresses):
        messages().print(
            "An address at 127.0.0.1 is for this host: start the writer with PENSTOCK_LISTEN=:: for others.",
            soft_wrap=True,
        )


def _streams(places: list[Place]) -> Table:
    table = Table()
    titles = ("stream", "where", "state", "writer", "ranks", "steps", "data", "readers")
    for title in titles:
        table.add_column(title, justify="right" if title in titles[4:] else "left", overflow="fold")
    for place in places:
        about = place.about
        state = Text(about["state"], style=STATES.get(about["state"], ""))
        data = size(about["bytes"]) if "bytes" in about else "–"
        ranks, steps, readers = (str(about.get(key, "–")) for key in ("ranks", "steps", "readers"))
        table.add_row(
            Text(visible(place.name)),
            Text(visible(str(place))),
            state,
            Text(about.get("writer", "–")),
            ranks,
            steps,
            data,
            readers,
        )
    return table


def _servers(pools: list[dict[str, Any]]) -> Table:
    table = Table()
    for title in ("pool", "server", "state", "view"):
        table.add_column(title, justify="right" if title == "view" else "left", overflow="fold")
    for pool in pools:
        for server in pool["servers"]:
            state = Text(server["state"], style="green" if server["state"] == "active" else "yellow")
            table.add_row(Text(pool["name"]), Text(server["name"]), state, str(pool["view"]))
        if not pool["servers"]:
            table.add_row(Text(pool["name"]), Text("–"), "", str(pool["view"]))
    return table


def _as_dict(place: Place, address: bool) -> dict[str, Any]:
    known = {key: place.about.get(key) for key in KNOWN}
    return {
        "name": place.name,
        "kind": place.kind,
        "where": place.where,
        **known,
        **({"address": place.about.get("address")} if address else {}),
    }
