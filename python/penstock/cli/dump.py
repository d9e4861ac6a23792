"""`penstock stream dump`: the values of a stream's variables, step by step."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from .console import command, fail, messages, print_json, visible
from .places import (
    Place,
    StreamName,
    Variables,
    await_first_step,
    hint_for,
    next_step,
    opened,
    require,
    variables_of,
)
from .show import plain, short

VALUES_IN_A_LINE = 8
LIMIT = 100


@command
def dump(
    name: StreamName,
    variables: Variables = None,
    part: Annotated[
        str | None,
        typer.Option("--slice", metavar="0:10,:,3", help="Of arrays, as NumPy takes it: a number or range each axis."),
    ] = None,
    first: Annotated[
        int | None, typer.Option("--from", min=0, metavar="STEP", help="The first step. [default: see above]")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="So many steps. [default: 1]")] = None,
    limit: Annotated[
        int, typer.Option(min=0, help="At most so many values of each variable in a step; 0: all.")
    ] = LIMIT,
    timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long to wait for the stream, for the first step wanted, and each after it.",
        ),
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print values of a stream's variables, and its attributes.

    Without --from and --steps it prints the newest step; with --steps so many from the oldest that is still there, with
    --from those from this step on. It attaches after the writer's first step, so that it is not the reader that a
    writer waits for.
    """
    import penstock

    slices = None if part is None else _parsed(part)
    chosen = variables_of(variables)
    found: list[dict[str, Any]] = []
    try:
        place = require(name)
        await_first_step(place, timeout)
        with opened(place, _options(place, first, steps), timeout) as stream:
            for step in _steps(stream, first, steps or 1, timeout):
                names = sorted(step) if chosen is None else chosen
                entries = [entry for each in names for entry in _entries(step[each], slices, limit)]
                attributes = {key: plain(value) for key, value in sorted(step.attributes.items())}
                if not as_json:
                    _print(stream.name, step.number, entries, attributes, found[-1]["attributes"] if found else {})
                    entries = []  # printed
                found.append({"step": step.number, "variables": entries, "attributes": attributes})
            stream_name = stream.name
    except penstock.Error as error:
        fail(str(error), hint_for(name), code=124 if isinstance(error, penstock.TimeoutError) else 1)
    if not found:
        fail(f"stream '{stream_name}' has ended and has no step{f' from {first} on' if first else ''}")
    if as_json:
        for each in found:
            for entry in each["variables"]:
                del entry["axes"]
        print_json({"stream": stream_name, "kind": place.kind, "where": place.where, "steps": found})
    if steps is not None and len(found) < steps:
        messages().print(Text(f"the stream ended after {len(found)} of {steps} steps"))


def _options(place: Place, first: int | None, steps: int | None) -> dict[str, str]:
    if first is None:
        return {"delivery": "latest"} if steps is None else {}
    return {"start": str(first)} if place.kind in ("pool", "space", "files") else {}


def _steps(stream: Any, first: int | None, count: int, timeout: float) -> Iterator[Any]:
    import penstock

    for number in range(count):
        try:
            step = next_step(stream, timeout) if first is None or number else _step_from(stream, first, timeout)
        except penstock.EndOfStream:
            return
        with step:
            yield step


def _step_from(stream: Any, first: int, timeout: float) -> Any:
    """The first step from this one on. Earlier ones do not prolong the wait."""
    import penstock

    end = time.monotonic() + timeout
    at = None
    while at is None or time.monotonic() < end:
        try:
            step = stream.step(max(0.0, end - time.monotonic()))
        except penstock.TimeoutError:
            break
        if step.number >= first:
            return step
        with step:
            at = step.number
    reached = "gave no step" if at is None else f"has reached step {at}, not {first},"
    fail(f"stream '{stream.name}' {reached} within {timeout:g} s", "Try a larger --timeout.", code=124)


# ---------------------------------------------------------------------------------------------------------- selecting


def _parsed(text: str) -> list[int | slice]:
    """ "0:10,:,-3": a number or a slice for each axis."""
    slices: list[int | slice] = []
    for word in text.split(","):
        try:
            numbers = [int(each) if each.strip() else None for each in word.split(":")]
            if numbers == [None] or len(numbers) > 3 or numbers[2:] == [0]:
                raise ValueError
        except ValueError:
            fail(f"--slice {text}: '{word}' is not a number or FIRST:END or FIRST:END:STEP", code=2)
        first = numbers[0]
        slices.append(first if len(numbers) == 1 and first is not None else slice(*numbers))
    return slices


def _entries(variable: Any, slices: list[int | slice] | None, limit: int) -> Iterator[dict[str, Any]]:
    """What is printed of a variable: one entry, or one for each block of a local array."""
    about = {"name": variable.name, "dtype": "string" if variable.dtype == object else variable.dtype.name}
    about["kind"] = variable.kind
    if variable.kind == "local_array":
        yield from _blocks(variable, slices, limit, about)
    elif variable.kind == "global_array":
        axes = _axes(variable.name, variable.shape, slices)
        values = variable[tuple(map(_slice_of, _leading(axes, limit)))]
        yield about | {"block": None} | _entry(variable.shape, axes, values, limit)
    else:
        values = np.asarray(variable.value, dtype=object)
        yield about | {"block": None} | _entry(values.shape, [range(n) for n in values.shape], values, limit)


def _blocks(variable: Any, slices: list[int | slice] | None, limit: int, about: dict[str, Any]) -> list[dict[str, Any]]:
    """An entry for each block, until there are `limit` values."""
    entries: list[dict[str, Any]] = []
    left = limit
    for block in variable.blocks:
        axes = _axes(variable.name, block.count, slices)
        if limit and left == 0:
            entries[-1]["left_out"] += math.prod(map(len, axes))
            continue
        values = variable.block(block.number)[tuple(map(_slice_of, axes))]
        entries.append(about | {"block": block.number} | _entry(block.count, axes, values, left))
        left -= len(entries[-1]["values"]) if limit else 0
    return entries


def _axes(name: str, shape: tuple[int, ...], slices: list[int | slice] | None) -> list[range]:
    if slices is None:
        return [range(n) for n in shape]
    if len(slices) != len(shape):
        fail(
            f"--slice has {len(slices)} axes, and '{name}' has {len(shape)}",
            "Choose the variables that it is for with --variable.",
            code=2,
        )
    axes = []
    for each, length in zip(slices, shape, strict=True):
        if isinstance(each, slice):
            axes.append(range(*each.indices(length)))
        elif -length <= each < length:
            axes.append(range(each % length, each % length + 1))
        else:
            fail(f"--slice: {each} is outside an axis of {length} elements of '{name}'", code=2)
    return axes


def _leading(axes: list[range], limit: int) -> list[range]:
    """The part of a selection that holds its first `limit` values, and not many more."""
    out = list(axes)
    for axis, each in enumerate(axes):
        behind = math.prod(len(other) for other in axes[axis + 1 :])
        if limit == 0 or behind == 0:
            break
        out[axis] = each[: math.ceil(limit / behind)]
        if behind < limit:
            break
    return out


def _slice_of(each: range) -> slice:
    return slice(each.start, each.stop if each.stop >= 0 else None, each.step) if len(each) else slice(0, 0)


def _entry(shape: tuple[int, ...], axes: list[range], values: Any, limit: int) -> dict[str, Any]:
    """values: at least the first `limit` of the selection, in row order."""
    flat = np.asarray(values).reshape(-1)
    flat = flat[:limit] if limit else flat
    selected = [len(each) for each in axes]
    out = {"shape": list(shape), "selected": selected, "values": plain(flat), "axes": axes}
    return out | {"left_out": math.prod(selected) - len(flat)}


# ------------------------------------------------------------------------------------------------------------ printing


def _print(
    stream: str, step: int, entries: list[dict[str, Any]], attributes: dict[str, Any], before: dict[str, Any]
) -> None:
    print(f"stream {visible(stream)}, step {step}")
    for entry in entries:
        shape = " × ".join(map(str, entry["shape"]))
        block = f" block {entry['block']}" if entry["block"] is not None else ""
        kind = entry["kind"].replace("_", " ")
        print(f"{visible(entry['name'])}{block}: {entry['dtype']}, {kind}{f' {shape}' if shape else ''}")
        for line in _lines(entry["axes"], [_text(value) for value in entry["values"]]):
            print(f"  {line}")
        if entry["left_out"]:
            print(f"  {entry['left_out']} more values are left out; --limit 0 prints all")
    for name, value in attributes.items():
        if name not in before or before[name] != value:
            print(f"attribute {visible(name)} = {short(value)}")


def _lines(axes: list[range], texts: list[str]) -> Iterator[str]:
    """Some values of one row in a line, after the index of the first."""
    if not axes:
        yield from texts
        return
    width = max(map(len, texts), default=0)
    lengths = [len(each) for each in axes]
    at = 0
    while at < len(texts):
        index = np.unravel_index(at, lengths)
        count = min(VALUES_IN_A_LINE, lengths[-1] - int(index[-1]))
        where = ", ".join(str(each[int(i)]) for each, i in zip(axes, index, strict=True))
        yield f"({where})  " + " ".join(text.rjust(width) for text in texts[at : at + count])
        at += count


def _text(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=not value.isprintable())
    if isinstance(value, list):  # complex
        return f"{value[0]:.8g}{value[1]:+.8g}j"
    return f"{value:.8g}" if isinstance(value, float) else str(value)
