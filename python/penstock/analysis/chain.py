"""What all filters share: tables, what a chain knows of the whole mesh, and how a chain runs.

A filter is a dataclass of its options, with defaults. fields() are the names of the fields it reads, None for all there
are; apply(parts, survey) gives the next parts, or a Table, which ends a chain. `parts` are this rank's vtkDataSets,
maybe none. Ghost cells serve for values at borders and are in no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from ..cohort import Cohort
from ..errors import NotFound
from ..names import nearest
from .agreement import exchange

Fields = frozenset[str] | None
Result = TypeVar("Result")


@dataclass(frozen=True)
class Table:
    """Columns of equal length by name; the same on every rank."""

    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


class Source(Protocol):
    """A mesh of a frame, for filters that need more of it than its datasets."""

    time: float
    spacing: Sequence[float]  # of an AMR mesh's level 0

    def bounds(self) -> np.ndarray | None:
        """(2, 3), low and high x, y, z of this rank's own cells; None: it has none. Of an AMR mesh."""

    def blocks(self, fields: Sequence[str], algorithm: str | None, batch: int | None) -> Iterator[Any]:
        """This rank's rows of an AMR mesh with all that touch them (amr.Batch)."""

    def once(self, key: Any, make: Callable[[], Result]) -> Result:
        """What make() gives, made once in a frame for equal keys."""

    def kept(self, key: Any, make: Callable[[], Result]) -> Result:
        """What make() gives, made once in an analysis for equal keys."""


class Parts(Sequence[Any]):
    """What a chain starts from: the datasets of one rank, made when they are first looked at; and their source."""

    def __init__(self, source: Source, make: Callable[[], Sequence[Any]]):
        self.source = source
        self._make = make
        self._made: Sequence[Any] | None = None

    @property
    def _all(self) -> Sequence[Any]:
        self._made = self._make() if self._made is None else self._made
        return self._made

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, at: Any) -> Any:
        return self._all[at]


@dataclass(frozen=True)
class Survey:
    """What a chain knows of the whole mesh it starts from: over all ranks, without ghosts.

    bounds: x, y, z low and high; None when the mesh has no cells. ranges: of the fields asked for (of a vector's
    length), None where there are no values. names: of all fields. source: what the chain starts from, where it is the
    mesh of a frame. reader: who asks, the same name after an edit: of filters that give what is new to it.
    """

    cohort: Cohort | None = None
    bounds: tuple[float, ...] | None = None
    ranges: dict[str, tuple[float, float] | None] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    source: Source | None = None
    reader: str = ""

    @property
    def _bounds(self) -> Sequence[float]:
        """Of parts that are not all empty."""
        assert self.bounds is not None
        return self.bounds

    @property
    def low(self) -> np.ndarray:
        return np.array(self._bounds[::2])

    @property
    def high(self) -> np.ndarray:
        return np.array(self._bounds[1::2])

    @property
    def center(self) -> np.ndarray:
        middle: np.ndarray = (self.low + self.high) / 2
        return middle

    @property
    def diagonal(self) -> float:
        return float(np.linalg.norm(self.high - self.low))


def apply_chain(
    filters: Sequence[Any], parts: Iterable[Any], cohort: Cohort | None = None, reader: str = ""
) -> list[Any] | Table:
    """Runs the filters one after another; without filters, the parts. Collective. reader: see Survey.

    NotFound, on all ranks, when no part of any rank has a field that a filter reads. Ranges and bounds that a filter
    needs are those of the mesh, not of what the filters before it left.
    """
    if not filters:
        return [part for part in parts if part is not None]
    source = getattr(parts, "source", None)
    result: list[Any] | Table
    if filters[0].takes_blocks:
        result = filters[0].apply(parts, Survey(cohort, source=source, reader=reader))
        filters = filters[1:]
    else:
        result = [part for part in parts if part is not None]
    if not filters or isinstance(result, Table):
        return result
    survey = replace(take_survey(filters, result, cohort), source=source, reader=reader)
    for link in filters:
        if survey.bounds is not None or link.makes_table:
            result = link.apply(result, survey)
    return result


def take_survey(filters: Sequence[Any], parts: Sequence[Any], cohort: Cohort | None) -> Survey:
    """One gather and one broadcast for all that the filters need to know of the whole mesh."""
    wanted = sorted(frozenset().union(*(link.ranges() for link in filters)))
    needed = sorted(frozenset().union(*(link.fields() or () for link in filters)))

    def mine() -> tuple[list[Any], dict[str, tuple[float, float] | None], frozenset[str]]:
        from .parts import field_names, magnitude, owned, owned_values

        own = [part for part in map(owned, parts) if part is not None]
        known = frozenset(name for part in parts for name in field_names(part))
        ranges = {}
        for name in wanted:
            arrays = [a for a in (owned_values(part, name) for part in parts) if a is not None]
            ranges[name] = _finite_range(np.concatenate([magnitude(a) for a in arrays])) if arrays else None
        return [part.GetBounds() for part in own], ranges, known

    def whole(everything: list[Any]) -> tuple[Any, dict[str, Any], frozenset[str]]:
        bounds = np.array([b for boxes, _, _ in everything for b in boxes]).reshape(-1, 6)
        known: frozenset[str] = frozenset().union(*(k for _, _, k in everything))
        for name in needed:
            if len(bounds) and name not in known:
                raise NotFound(f"there is no field '{name}'{nearest(name, sorted(known))}")
        ranges = {name: _union([r[name] for _, r, _ in everything if r[name]]) for name in wanted}
        both = zip(bounds.min(axis=0)[::2], bounds.max(axis=0)[1::2], strict=True) if len(bounds) else None
        return (tuple(float(n) for pair in both for n in pair) if both else None), ranges, known

    bounds, ranges, known = exchange(cohort, mine, whole)
    return Survey(cohort, bounds, ranges, known)


def _finite_range(array: np.ndarray) -> tuple[float, float] | None:
    array = array[np.isfinite(array)]
    return (float(array.min()), float(array.max())) if array.size else None


def _union(ranges: list[tuple[float, float]]) -> tuple[float, float] | None:
    return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None


class Filter:
    """What a filter is that asks for nothing. See the module."""

    key: ClassVar[str]  # its name in pipelines
    makes_table: ClassVar[bool] = False
    makes: ClassVar[frozenset[str]] = frozenset()  # fields that its results have more than its input
    takes_blocks: ClassVar[bool] = False  # starts from the blocks of an AMR mesh, as the first of a chain

    def fields(self) -> Fields:
        return frozenset()

    def ranges(self) -> frozenset[str]:
        """Fields whose range over the whole mesh the filter needs."""
        return frozenset()

    def row_order(self) -> tuple[str, ...]:
        """Fields by which the rows of a csv file of the result are sorted; then by x, y, z."""
        return ()

    def keeps(self) -> frozenset[Any]:
        """Keys of what the filter keeps from frame to frame (Source.kept)."""
        return frozenset()

    def apply(self, parts: Any, survey: Survey) -> list[Any] | Table:
        raise NotImplementedError


def on_own_cells(parts: Iterable[Any], work: Callable[[Any], Any]) -> list[Any]:
    """work() on the own cells of each part that has some; results without cells are left out."""
    from .parts import copy_of, owned

    results = (work(part) for part in map(owned, parts) if part is not None)
    return [copy_of(result) for result in results if result is not None and result.GetNumberOfCells()]
