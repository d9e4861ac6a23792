"""NumPy's basic indexing as a selection of a stream's array.

step["T"][1, ::-2, ..., None] asks the writer for the box 1, every second element, all the rest, and turns what comes
into the shape that NumPy would give.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from .errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Picked:
    """A box with strides, and how it looks to the user."""

    start: tuple[int, ...]
    count: tuple[int, ...]
    stride: tuple[int, ...]
    shape: tuple[int, ...]  # of the result
    forward: tuple[Any, ...]  # indexes the box so that it looks like the result
    back: tuple[Any, ...]  # indexes the result so that it looks like the box

    @property
    def reversed(self) -> bool:
        return slice(None, None, -1) in self.forward

    @property
    def strided(self) -> bool:
        return any(stride != 1 for stride in self.stride)

    def selection(self) -> _core.Selection:
        if self.strided:
            return _core.Selection.strided(self.start, self.count, self.stride)
        return _core.Selection.box(self.start, self.count)


def pick(index: Any, shape: tuple[int, ...]) -> Picked:
    """Basic slicing: integers, slices, Ellipsis, None. Raises IndexError as NumPy does."""
    entries = _expanded(index if isinstance(index, tuple) else (index,), len(shape))
    start: list[int] = []
    count: list[int] = []
    stride: list[int] = []
    result: list[int] = []
    forward: list[Any] = []  # of slices, integers and None
    back: list[Any] = []
    sizes = iter(shape)
    for entry in entries:
        if entry is None:
            result.append(1)
            forward.append(None)
            back.append(0)
            continue
        dimension, size = len(start), next(sizes)
        if isinstance(entry, slice):
            first, _, step = entry.indices(size)
            length = len(range(*entry.indices(size)))
            ascending = first if step > 0 else first + (length - 1) * step
            start.append(ascending if length else 0)
            count.append(length)
            stride.append(abs(step) if length > 1 else 1)
            result.append(length)
            forward.append(slice(None) if step > 0 else slice(None, None, -1))
            back.append(forward[-1])
        else:
            if not -size <= entry < size:
                raise IndexError(f"index {entry} is out of bounds for dimension {dimension} of size {size}")
            start.append(entry % size)
            count.append(1)
            stride.append(1)
            forward.append(0)
            back.append(None)
    # The ellipsis at the end keeps arrays of no dimensions arrays.
    ways = (*forward, ...), (*back, ...)
    return Picked(tuple(start), tuple(count), tuple(stride), tuple(result), *ways)


def _expanded(entries: tuple[Any, ...], dimensions: int) -> list[Any]:
    """Checked, integers as int, and with slices in place of the ellipsis."""
    out: list[Any] = []
    for entry in entries:
        if entry is None or entry is Ellipsis or isinstance(entry, slice):
            out.append(entry)
        elif isinstance(entry, (bool, np.bool_)) or not hasattr(entry, "__index__") or np.ndim(entry) > 0:
            raise InvalidArgument(
                f"an index may hold integers, slices, ... and None, not {type(entry).__name__}; for lists of points "
                "use points(), for anything else index the array that [...] gives"
            )
        else:
            out.append(operator.index(entry))
    given = sum(1 for entry in out if entry is not None and entry is not Ellipsis)
    if sum(1 for entry in out if entry is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if given > dimensions:
        raise IndexError(f"too many indices: the array has {dimensions} dimensions, but {given} were given")
    missing = [slice(None)] * (dimensions - given)
    if Ellipsis not in out:
        return out + missing
    at = out.index(Ellipsis)
    return out[:at] + missing + out[at + 1 :]


def point_list(coordinates: Any, shape: tuple[int, ...]) -> np.ndarray:
    """An array (points, dimensions) of uint64 from anything like it; negative indices count from the end."""
    points = np.asarray(coordinates)
    if points.size == 0:
        return np.empty((0, len(shape)), np.uint64)
    if points.dtype.kind not in "iu":
        raise InvalidArgument(f"points are integers, not {points.dtype}")
    if points.ndim == 1 and len(shape) == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] != len(shape):
        raise InvalidArgument(f"points of this array have the shape (n, {len(shape)}), not {points.shape}")
    sizes = np.asarray(shape, np.int64)
    points = points.astype(np.int64)
    points = np.where(points < 0, points + sizes, points)
    outside = np.nonzero(((points < 0) | (points >= sizes)).any(axis=1))[0]
    if outside.size:
        raise IndexError(f"point {outside[0]} is out of bounds for shape {shape}")
    return np.ascontiguousarray(points, np.uint64)
