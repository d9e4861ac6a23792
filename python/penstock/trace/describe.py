"""What traces say of streams, as text (src/trace/stream_text.hpp writes it). Raises ProtocolError for what is none.

box "0,0+64,64" (start + count; "+" of a value); selection "all", "box 0,0+64,64", "box 0,0+32,32/2,2" (strided),
"block 3", "points 1000x3" (not which); variable "float64 global_array row 64,64", and " min_max"; attribute
"float64 3", "string scalar".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import _core, dtypes
from ..errors import ProtocolError

KINDS = ("global_array", "local_array", "global_value", "local_value")
ORDERS = ("row", "column")
MOST_POINTS, MOST_ELEMENTS = 1 << 16, 1 << 20  # made of what a trace says
MAX_DIMS = 8  # penstock/types.hpp

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    dtype: str
    kind: str = "global_array"
    order: str = "row"
    shape: Dims = ()
    min_max: bool = False

    def reshaped(self, shape: Dims) -> Variable:
        return replace(self, shape=shape)


def _refuse(what: str, text: str) -> ProtocolError:
    return ProtocolError(f"'{text[:80]}' is no {what}")


def _number(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 1 << 64):
        raise _refuse(what, text)
    return int(text)


def shape(text: str, what: str = "shape") -> Dims:
    dims = tuple(_number(what, part) for part in text.split(",")) if text else ()
    if len(dims) > MAX_DIMS:
        raise _refuse(what, text)
    return dims


def box(text: str) -> tuple[Dims, Dims]:
    start, plus, count = text.partition("+")
    box = shape(start, "box"), shape(count, "box")
    if not plus or len(box[0]) != len(box[1]):
        raise _refuse("box", text)
    return box


def selection(text: str) -> Any:
    form, _, rest = text.partition(" ")
    if form == "all" and not rest:
        return _core.Selection.all()
    if form == "block":
        return _core.Selection.block(_number("selection", rest))
    if form == "box":
        area, strided, strides = rest.partition("/")
        start, count = box(area)
        if not strided:
            return _core.Selection.box(start, count)
        stride = shape(strides, "selection")
        if len(stride) != len(count) or 0 in stride:
            raise _refuse("selection", text)
        return _core.Selection.strided(start, count, stride)
    points, _, dims = rest.partition("x")
    if form != "points" or not 0 < _number("selection", dims) <= MAX_DIMS:
        raise _refuse("selection", text)
    number = min(_number("selection", points), MOST_POINTS)
    return _core.Selection.points(np.zeros((number, int(dims)), np.uint64), int(dims))


def variable(text: str) -> Variable:
    words = text.split(" ")
    if (
        len(words) not in (4, 5)
        or words[1] not in KINDS
        or words[2] not in ORDERS
        or words[4:] not in ([], ["min_max"])
    ):
        raise _refuse("variable", text)
    _dtype("variable", words[0])
    return Variable(words[0], words[1], words[2], shape(words[3], "variable"), len(words) == 5)


def attribute(text: str) -> Any:
    """A value of that type and size, of zeros or empty strings."""
    dtype, _, size = text.partition(" ")
    made = _dtype("attribute", dtype)
    count = None if size == "scalar" else _number("attribute", size)
    if count is not None and count > MOST_ELEMENTS:
        raise _refuse("attribute", text)
    if dtype == "string":
        return "" if count is None else np.array([""] * count)
    return np.zeros(() if count is None else count, made)


def _dtype(what: str, name: str) -> np.dtype:
    try:
        return dtypes.to_numpy(name)
    except KeyError:
        raise _refuse(what, name) from None
