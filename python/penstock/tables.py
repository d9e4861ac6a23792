"""Tables in HTML for notebooks: what a step, or a variable of it, is. Single values are read, and no arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from .errors import Error

if TYPE_CHECKING:
    from .reader import ReadStep
    from .variable import Variable

MOST_ROWS = 100  # more would fill the notebook
_LONGEST_TEXT = 80
_LEFT = ' style="text-align: left"'
_PATIENCE_S = 2.0  # for the values
_COLUMNS = ("variable", "type", "kind", "shape", "blocks", "value", "min", "max", "attributes")


def html_of_step(step: ReadStep) -> str:
    """A row for each variable, then the attributes that belong to none."""
    names = list(step)
    title = f"step {step.number} of '{step._stream.name}': {len(names)} variable{'s' * (len(names) != 1)}"
    own = {name: value for name, value in step.attributes.items() if name.rpartition("/")[0] not in names}
    shown = [step[name] for name in names[:MOST_ROWS]]
    values = _values(step, shown)
    body = _table(_COLUMNS, (_row(variable, values) for variable in shown))
    more = f"<p>and {len(names) - MOST_ROWS} more</p>" if len(names) > MOST_ROWS else ""
    return f"<div><strong>{escape(title)}</strong>{body}{more}{_attributes(own)}</div>"


def html_of_variable(variable: Variable) -> str:
    """The row of a variable, then its blocks."""
    blocks = [
        (block.number, block.writer_rank, block.start, block.count, *_ends(variable.block_min_max(block.number)))
        for block in variable.blocks[:MOST_ROWS]
    ]
    title = f"<strong>{escape(variable.name)}</strong>"
    of_blocks = _table(("block", "rank", "start", "count", "min", "max"), blocks) if len(blocks) > 1 else ""
    row = _row(variable, _values(variable._step, [variable]))
    return f"<div>{title}{_table(_COLUMNS[1:], [row[1:]])}{of_blocks}</div>"


def _values(step: ReadStep, variables: Iterable[Variable]) -> dict[str, str]:
    """Of the global values among them, by name, with one wait; none where they cannot be had."""
    single = [variable for variable in variables if variable.kind == "global_value"]
    try:
        found = {v.name: v[()] if v._info.dtype == "string" else v.get() for v in single}
        step.wait(_PATIENCE_S)
    except Error:  # a table of the rest is better than none
        return {}
    return {name: _short(value) for name, value in found.items()}


def _row(variable: Variable, values: Mapping[str, str]) -> tuple[Any, ...]:
    known = ", ".join(f"{name}={_short(value)}" for name, value in variable.attributes.items())
    kind = variable.kind.replace("_", " ")
    least, greatest = _ends(variable.min_max)
    shape = variable.shape if variable.ndim or variable.kind == "global_array" else ""
    value = values.get(variable.name, "")
    return variable.name, variable._info.dtype, kind, shape, variable._info.blocks, value, least, greatest, known


def _ends(bounds: tuple[Any, Any] | None) -> tuple[Any, Any]:
    return bounds if bounds is not None else ("", "")


def _attributes(values: Mapping[str, Any]) -> str:
    return _table(("attribute", "value"), ((name, _short(value)) for name, value in values.items())) if values else ""


def _table(titles: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    head = "".join(f"<th{_LEFT}>{title}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td{_LEFT}>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
