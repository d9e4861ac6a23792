"""Who has which part of a mesh: the same on every rank, from numbers that every rank knows.

Structured meshes are cut into boxes of cells, one for each rank; meshes of domains are given out by whole domains, AMR
by rows (blocks). More ranks than cells, domains or rows leaves some with an empty part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidArgument

METHODS = ("block", "planar", "morton")
_MORTON_SIDE = 1 << 21  # of the cube that 64-bit Morton numbers reach
# Shifts, and the bits kept after each, that move bit n of 21 to bit 3 n.
_SPREAD = (
    (32, 0x001F00000000FFFF),
    (16, 0x001F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)


@dataclass(frozen=True, slots=True)
class BoxPart:
    """Cells low <= i < high of a structured mesh, by dimension. Nodes at its faces are its neighbours' as well."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(high - low for low, high in zip(self.low, self.high, strict=True))

    @property
    def empty(self) -> bool:
        return 0 in self.shape

    def grown(self, layers: int, cells: Sequence[int]) -> BoxPart:
        """With up to so many layers more at each side, as far as there are cells. An empty part stays empty."""
        if self.empty:
            return self
        low = tuple(max(first - layers, 0) for first in self.low)
        high = tuple(min(last + layers, n) for last, n in zip(self.high, cells, strict=True))
        return BoxPart(low, high)


@dataclass(frozen=True, slots=True)
class DomainsPart:
    """Whole domains, by number."""

    domains: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class RowsPart:
    """Rows of an AMR mesh. runs: an array (n, 3) of domain, first row, and the row behind the last; sorted."""

    runs: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """An array (n, 2) of domain and row, sorted."""
        domain, first, last = self.runs.T
        counts = last - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.stack([np.repeat(domain, counts), np.repeat(first, counts) + within], axis=1)


@dataclass(frozen=True, slots=True)
class MultiPart:
    """A part of each block of a multiblock, by name."""

    parts: Mapping[str, Part]


Part = BoxPart | DomainsPart | RowsPart | MultiPart


def boxes(cells: Sequence[int], size: int, method: str = "block") -> list[BoxPart]:
    """The parts of a structured mesh of so many cells by array dimension, for each of `size` ranks.

    block: halved again and again across its longest side, by the numbers of ranks. planar: slabs of the first
    dimension. morton: halved across the first dimension, the second, ... in turn, so that ranks follow a Z curve.
    """
    _check(size, method)
    cells = tuple(int(n) for n in cells)
    whole = BoxPart((0,) * len(cells), cells)
    if whole.empty:
        return [whole] * size
    if method == "planar":
        ends = [rank * cells[0] // size for rank in range(size + 1)]
        return [BoxPart((ends[r], *whole.low[1:]), (ends[r + 1], *cells[1:])) for r in range(size)]
    return _halved(whole, size, 0 if method == "morton" else None)


def _halved(box: BoxPart, size: int, turn: int | None) -> list[BoxPart]:
    """turn: the dimension to cut; None: the longest."""
    if size == 1:
        return [box]
    shape = box.shape
    if max(shape) == 1:
        return [box, *[BoxPart(box.low, box.low)] * (size - 1)]
    if turn is None:
        side = shape.index(max(shape))
    else:
        side = next(d % len(shape) for d in range(turn, turn + len(shape)) if shape[d % len(shape)] > 1)
        turn = side + 1
    first = size // 2
    cut = box.low[side] + min(max(round(shape[side] * first / size), 1), shape[side] - 1)
    left = BoxPart(box.low, (*box.high[:side], cut, *box.high[side + 1 :]))
    right = BoxPart((*box.low[:side], cut, *box.low[side + 1 :]), box.high)
    return _halved(left, first, turn) + _halved(right, size - first, turn)


def domains(weights: Sequence[int], size: int, method: str = "block") -> list[DomainsPart]:
    """Whole domains in order, in runs of about equal weight (elements, or nodes, of each domain). Any method."""
    _check(size, method)
    shares = np.asarray(weights, np.float64)
    if not shares.sum() > 0:
        shares = np.ones(len(shares))
    middle = np.cumsum(shares) - shares / 2
    rank = np.minimum((middle * size / max(shares.sum(), 1)).astype(np.int64), size - 1)
    return [DomainsPart(tuple(np.nonzero(rank == r)[0].tolist())) for r in range(size)]


def rows(counts: Sequence[int], size: int, method: str = "block") -> list[RowsPart]:
    """The rows of an AMR mesh by domain and row, in equal numbers. counts: rows of each domain. Not method "morton"."""
    _check(size, method)
    starts = np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))])
    parts = []
    for low, high in itertools.pairwise(rank * int(starts[-1]) // size for rank in range(size + 1)):
        reached = np.searchsorted(starts, low, "right") - 1, np.searchsorted(starts, high, "left")
        domain = np.arange(*reached) if low < high else np.arange(0)
        first, last = np.maximum(low - starts[domain], 0), np.minimum(high, starts[domain + 1]) - starts[domain]
        runs = np.stack([domain, first, last], axis=1)
        parts.append(RowsPart(runs[first < last]))
    return parts


def rows_by_morton(
    levels: Sequence[np.ndarray], indices: Sequence[np.ndarray], refinement: int, size: int
) -> list[RowsPart]:
    """The rows of an AMR mesh by the Morton key of their centres, across levels, in equal numbers.

    levels, indices: of each domain, as AmrMesh has them.
    """
    _check(size, "morton")
    counts = [len(each) for each in levels]
    pairs = rows(counts, 1)[0].rows
    if len(pairs):
        level = np.concatenate([np.asarray(each, np.float64) for each in levels])
        index = np.concatenate([np.asarray(each, np.float64).reshape(-1, 3) for each in indices])
        key = morton_keys((index + 0.5) / float(refinement) ** level[:, None])
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0], level, key))]
    ends = [rank * len(pairs) // size for rank in range(size + 1)]
    found = [pairs[first:last] for first, last in itertools.pairwise(ends)]
    found = [each[np.lexsort((each[:, 1], each[:, 0]))] for each in found]
    return [RowsPart(np.column_stack([each, each[:, 1] + 1])) for each in found]


def morton_keys(points: np.ndarray) -> np.ndarray:
    """Of points (n, 3): the bits of x, y, z in turn, z the lowest; 21 bits of each, over one power of two for all."""
    points = points - np.minimum(points.min(axis=0), 0)
    scale = 2.0 ** (21 - math.ceil(math.log2(max(points.max(), 1e-300) * (1 + 1e-12))))
    return _interleaved(np.minimum(points * scale, _MORTON_SIDE - 1)[:, ::-1])


def morton_numbers(levels: np.ndarray, indices: np.ndarray, depth: int) -> np.ndarray:
    """Where blocks of refinement 2 begin on a Z curve, as `splits` counts: in blocks of the level depth, bit 0 of x."""
    return _interleaved(_places(levels, indices, depth))


def _interleaved(places: np.ndarray) -> np.ndarray:
    """The bits of each row (a, b, c) in turn, those of `a` the lowest. places: (n, 3), below _MORTON_SIDE."""
    spread = places.astype(np.uint64)
    for shift, kept in _SPREAD:
        spread = (spread | spread << np.uint64(shift)) & np.uint64(kept)
    a, b, c = spread.T
    numbers: np.ndarray = a | b << np.uint64(1) | c << np.uint64(2)
    return numbers


def _places(levels: np.ndarray, indices: np.ndarray, depth: int) -> np.ndarray:
    """Lower corners, in blocks of the level depth."""
    places: np.ndarray = (
        np.asarray(indices, np.uint64) << (depth - np.asarray(levels, np.int64)).astype(np.uint64)[:, None]
    )
    return places


def check_places(levels: np.ndarray, indices: np.ndarray, splits: np.ndarray, rank: int, depth: int) -> None:
    """Raises InvalidArgument unless the rank's blocks are where splits puts them."""
    if not len(levels):
        return
    lowest, highest, least, greatest = (int(each) for a in (levels, indices) for each in (a.min(), a.max()))
    if not 0 <= lowest <= highest <= depth:
        raise InvalidArgument(f"blocks have levels {lowest} to {highest}; depth says 0 to {depth}")
    if least < 0 or greatest >= _MORTON_SIDE or (_places(levels, indices, depth) >= _MORTON_SIDE).any():
        raise InvalidArgument(
            f"blocks have the indices {least} to {greatest}; counted in blocks of the level depth, {depth}, Morton "
            f"numbers reach 0 to {_MORTON_SIDE - 1}"
        )
    numbers = morton_numbers(levels, indices, depth)
    first, last = int(numbers.min()), int(numbers.max())
    end = int(splits[rank + 1]) if rank + 1 < len(splits) else 1 << 64
    if first != splits[rank] or last >= end:
        raise InvalidArgument(
            f"blocks have the Morton numbers {first} to {last}, and splits say {splits[rank]} up to {end}, without it"
        )


def _check(size: int, method: str) -> None:
    if method not in METHODS:
        raise InvalidArgument(f"no partitioner '{method}'; there are {', '.join(METHODS)}")
    if size < 1:
        raise InvalidArgument(f"a mesh is parted over at least one rank, not {size}")
