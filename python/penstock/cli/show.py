"""`penstock stream show`: what a stream carries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..units import size
from .console import command, fail, output, print_json, visible
from .places import Place, StreamName, await_first_step, hint_for, next_step, opened, require

if TYPE_CHECKING:
    from ..variable import Variable

SHOWN_BLOCKS = 16


@command
def show(
    name: StreamName,
    minmax: Annotated[
        bool, typer.Option("--minmax", help="Read every array for its range, where the writer has not computed it.")
    ] = False,
    blocks: Annotated[bool, typer.Option("--blocks", help="List the blocks of each variable too.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the stream, and for a step.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a stream's variables, shapes, blocks, ranges and attributes, as its newest step has them.

    The stream is looked for among the living writers, in pools, and in files. It attaches as a reader that wants only
    the newest step, reads the description of one, and leaves; the writer does not wait for it longer than that. It
    attaches after the writer's first step, so that it is not the reader that a writer waits for.
    """
    import penstock

    try:
        place = require(name)
        await_first_step(place, timeout)
        with opened(place, {"delivery": "latest"}, timeout) as stream:
            with next_step(stream, timeout) as step:
                found = _describe(step, minmax)
            plane = stream.statistics.data_plane or None
            found = {"stream": stream.name, **_about(place), **found, "data_plane": plane}
        found["peers"] = _peers(place)
    except penstock.Error as error:
        fail(str(error), hint_for(name), code=124 if isinstance(error, penstock.TimeoutError) else 1)
    if as_json:
        print_json(found)
    else:
        _print(output(), found, place, blocks)


# ------------------------------------------------------------------------------------------------------- finding out


def _describe(step: Any, minmax: bool) -> dict[str, Any]:
    variables = [_variable(step[name], minmax) for name in sorted(step)]
    attributes = {name: plain(value) for name, value in sorted(step.attributes.items())}
    return {"step": step.number, "variables": variables, "attributes": attributes}


def _variable(variable: Any, minmax: bool) -> dict[str, Any]:
    low_high = variable.min_max
    if low_high is None and minmax and variable.dtype.kind in "iuf":
        low_high = _range(variable)
    return {
        "name": variable.name,
        "dtype": "string" if variable.dtype == object else variable.dtype.name,
        "kind": variable.kind,
        "order": variable.order,
        "shape": list(variable.shape),
        "bytes": _bytes(variable),
        "blocks": [_block(block) for block in variable.blocks],
        "value": plain(variable[()]) if variable.kind == "global_value" else None,
        "min": plain(low_high[0]) if low_high is not None else None,
        "max": plain(low_high[1]) if low_high is not None else None,
    }


def _block(block: Any) -> dict[str, Any]:
    return {"start": list(block.start), "count": list(block.count), "rank": block.writer_rank}


def _bytes(variable: Variable) -> int | None:
    if variable.dtype == object:
        return None
    if variable.kind == "local_array":
        return sum(math.prod(block.count) for block in variable.blocks) * variable.dtype.itemsize
    return variable.nbytes


def _range(variable: Variable) -> tuple[Any, Any] | None:
    """By reading, a block at a time."""
    if variable.kind in ("global_array", "local_array"):
        arrays: Iterator[np.ndarray] = (variable.block(block.number) for block in variable.blocks)
    else:
        arrays = iter([np.atleast_1d(variable[...])])
    ranges = [(array.min(), array.max()) for array in arrays if array.size]
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


def _about(place: Place) -> dict[str, Any]:
    """What is known of the stream without reading it; null what is not."""
    import penstock

    about = dict(place.about)
    if place.kind == "address":
        about |= {"state": "alive", "writer": f":{penstock.inspect(place.name)['pid']}"}
    host, _, pid = about.get("writer", "").rpartition(":")
    known = {key: about.get(key) for key in ("state", "ranks", "steps", "readers")}
    return {"kind": place.kind, "where": place.where, "host": host or None, "pid": int(pid) if pid else None, **known}


def _peers(place: Place) -> list[dict[str, Any]] | None:
    """The readers, as the living writer counts them."""
    import penstock

    return penstock.inspect(place.name)["peers"] if place.kind in ("writer", "address") else None


def plain(value: Any) -> Any:
    """For JSON: Python's own types; complex numbers as [real, imaginary]."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


# ---------------------------------------------------------------------------------------------------------- printing


def _print(console: Console, found: dict[str, Any], place: Place, blocks: bool) -> None:
    host = f" on {found['host']}" if found["host"] else ""
    writer = f" by process {found['pid']}{host}" if found["pid"] else ""
    ranks = f", {_ranks(found['ranks'])}" if found["ranks"] else ""
    plane = f", read over {found['data_plane']}" if found["data_plane"] else ""
    kept = f"; {found['state']}, {found['steps']} steps in {place}" if found["steps"] is not None else ""
    head = f"stream {visible(found['stream'])}, step {found['step']}{writer}{ranks}{plane}{kept}"
    console.print(Text(head), soft_wrap=True)
    table = Table()
    for title in ("variable", "type", "kind", "shape"):
        table.add_column(title)
    for title in ("blocks", "size", "min", "max"):
        table.add_column(title, justify="right")
    for variable in found["variables"]:
        table.add_row(
            Text(visible(variable["name"])),
            variable["dtype"],
            variable["kind"].replace("_", " "),
            _shape(variable),
            str(len(variable["blocks"])),
            "–" if variable["bytes"] is None else size(variable["bytes"]),
            _number(variable["min"]),
            _number(variable["max"]),
        )
    console.print(table)
    if blocks:
        _print_blocks(console, found["variables"])
    if found["attributes"]:
        grid = Table.grid(padding=(0, 2))
        for name, value in found["attributes"].items():
            grid.add_row(Text(visible(name)), Text(short(value)))
        console.print(Text("attributes", style="bold"))
        console.print(grid)
    for reader in found["peers"] or []:
        held = f", holds {reader.get('steps_held', 0)} now"
        dropped = f", {reader['steps_dropped']} dropped" if reader.get("steps_dropped") else ""
        done = f"{reader.get('steps_released', 0)} steps read"
        text = f"reader {visible(str(reader.get('name')))}: {_ranks(reader.get('ranks', 1))}, {done}{held}{dropped}"
        console.print(Text(text), soft_wrap=True)


def _print_blocks(console: Console, variables: list[dict[str, Any]]) -> None:
    for variable in variables:
        listed = variable["blocks"]
        for number, block in enumerate(listed[:SHOWN_BLOCKS]):
            place = f"start {block['start']} count {block['count']}" if block["count"] else "one value"
            console.print(
                Text(f"{visible(variable['name'])} block {number}: {place}, rank {block['rank']}"), soft_wrap=True
            )
        if len(listed) > SHOWN_BLOCKS:
            console.print(
                Text(f"{visible(variable['name'])}: {len(listed) - SHOWN_BLOCKS} more blocks (--json lists all)")
            )


def _ranks(count: int) -> str:
    return f"{count} rank{'s' if count != 1 else ''}"


def _shape(variable: dict[str, Any]) -> str:
    if variable["shape"]:
        return " × ".join(map(str, variable["shape"]))
    return "see --blocks" if variable["kind"] == "local_array" else f"= {short(variable['value'])}"


def _number(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def short(value: Any) -> str:
    """For a person: no control characters, and not long."""
    text = ", ".join(short(each) for each in value) if isinstance(value, list) else visible(str(value))
    return text if len(text) <= 200 else f"{text[:197]}..."
