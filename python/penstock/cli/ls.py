"""`penstock ls`: the streams of this user on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..workflow.registry import runtime_directory
from .console import command, messages, output, print_json


@command
def ls(
    address: Annotated[
        bool, typer.Option("--address", help="Show addresses too. They hold the streams' tokens: keep them secret.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the streams that are being written now."""
    import penstock

    entries = sorted(penstock.list_streams(), key=lambda entry: entry.name)
    if as_json:
        print_json([_as_dict(entry, address) for entry in entries])
        return
    if not entries:
        messages().print(Text(f"no streams in {runtime_directory()}"), soft_wrap=True)
        return
    table = Table()
    for title in ("stream", "writer", "host", "pid", "ranks") + (("address",) if address else ()):
        table.add_column(title, justify="right" if title in ("pid", "ranks") else "left", overflow="fold")
    for entry in entries:
        state = Text("alive", style="green") if entry.alive else Text("gone", style="red")
        row = [Text(entry.name), state, Text(entry.host), str(entry.pid), str(entry.ranks)]
        table.add_row(*row, *([Text(entry.address)] if address else []))
    output().print(table)


def _as_dict(entry: Any, address: bool) -> dict[str, Any]:
    keys = ("name", "alive", "host", "pid", "ranks") + (("address",) if address else ())
    return {key: getattr(entry, key) for key in keys}
