"""Filters whose results are numbers on every rank: values at points, on a grid, histograms and statistics."""

# ruff: noqa: RUF009  (records are frozen)
from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..cohort import Cohort
from ..errors import InvalidArgument
from .agreement import exchange
from .chain import Fields, Filter, Survey, Table
from .expressions import Expression, Values
from .reductions import Reductions
from .schema import Place, interval, listing, names, only_one, option, points, record, text, vector, whole

MAX_GRID_POINTS = 1 << 24


@dataclass(frozen=True)
class Line:
    """n points from one to another."""

    start: tuple[Any, ...] = option(vector, key="from")
    to: tuple[Any, ...] = option(vector)
    n: int = option(whole(1, 100_000), 100)

    def points(self) -> np.ndarray:
        return np.linspace(self.start, self.to, self.n)


def sample(
    parts: Iterable[Any], where: Any, fields: Collection[str] | None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """For the points of the dataset `where`: whether they lie in a cell of the parts, and the fields there, else NaN.

    Fields of points are interpolated, those of cells are the cell's. Where parts touch, the first one's count. None:
    all fields. The point must be within a millionth of the part's size.
    """
    from vtkmodules.vtkFiltersCore import vtkProbeFilter

    from .parts import field_names, run, values

    count = where.GetNumberOfPoints()
    inside = np.zeros(count, bool)
    columns: dict[str, np.ndarray] = {}
    for part in parts:
        probe = vtkProbeFilter()
        probe.SetSourceData(part)
        probe.PassPointArraysOff()
        result = run(probe, where)
        here = (values(result, "vtkValidPointMask") != 0) & ~inside
        inside |= here
        for name in field_names(part) if fields is None else fields:
            array = values(result, name)
            if array is not None:
                column = columns.setdefault(name, np.full((count, *array.shape[1:]), np.nan))
                column[here] = array[here]
    return inside, columns


def point_set(where: np.ndarray) -> Any:
    """Points (n × 3) as a dataset."""
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonCore import vtkPoints
    from vtkmodules.vtkCommonDataModel import vtkPolyData

    points, data = vtkPoints(), vtkPolyData()
    points.SetData(numpy_to_vtk(np.ascontiguousarray(where, dtype=np.float64).reshape(-1, 3), deep=True))
    data.SetPoints(points)
    return data


def sample_everywhere(
    parts: Iterable[Any], where: Any, fields: Collection[str] | None, cohort: Cohort | None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """sample() of the own cells of all ranks; where several own a point, the first rank's. Collective."""
    from .parts import owned

    def mine() -> tuple[np.ndarray, dict[str, np.ndarray]]:
        inside, columns = sample(filter(None, map(owned, parts)), where, fields)
        return np.nonzero(inside)[0], {name: column[inside] for name, column in columns.items()}

    def all_of(everything: list[Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        count = where.GetNumberOfPoints()
        inside = np.zeros(count, bool)
        columns: dict[str, np.ndarray] = {}
        for numbers, found in everything:
            new = ~inside[numbers]
            inside[numbers] = True
            for name, array in found.items():
                column = columns.setdefault(name, np.full((count, *array.shape[1:]), np.nan))
                column[numbers[new]] = array[new]
        return inside, columns

    return exchange(cohort, mine, all_of)


@dataclass(frozen=True)
class Probe(Filter):
    """A table of the fields at points or along a line: x, y, z, the distance along the line, a column for each field
    and component. NaN outside of the mesh."""

    key: ClassVar[str] = "probe"
    makes_table: ClassVar[bool] = True

    points: tuple[Any, ...] | None = option(points, None)
    line: Line | None = option(record(Line), None)
    # The name `fields` is the method's.
    only: tuple[Any, ...] | None = option(names, None, key="fields")

    def __post_init__(self) -> None:
        only_one(self, "points", "line")

    def fields(self) -> Fields:
        return None if self.only is None else frozenset(self.only)

    def apply(self, parts: list[Any], survey: Survey) -> Any:
        where = self.line.points() if self.line is not None else np.array(self.points)
        _, found = sample_everywhere(parts, point_set(where), self.only, survey.cohort)
        columns = dict(zip("xyz", where.T, strict=True))
        if self.line is not None:
            columns["distance"] = np.linalg.norm(where - where[0], axis=1)
        for name in sorted(survey.names) if self.only is None else self.only:
            columns |= components(name, found.get(name, np.full(len(where), np.nan)))
        return Table(columns)


def components(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """A field as columns: itself, or name.x, name.y, name.z, or name.0, name.1, ... beyond three."""
    if array.ndim == 1:
        return {name: array}
    count = array.shape[1]
    return {f"{name}.{'xyz'[n] if count <= 3 else n}": array[:, n] for n in range(count)}


def _size(value: Any, place: Place) -> tuple[int, int, int]:
    if isinstance(value, int):
        value = [value] * 3
    size: tuple[int, int, int] = listing(whole(1, MAX_GRID_POINTS), 3, 3)(value, place)
    if None not in size and np.prod(size, dtype=np.float64) > MAX_GRID_POINTS:
        raise InvalidArgument(f"a grid of {size} has more than {MAX_GRID_POINTS} points")
    return size


@dataclass(frozen=True)
class Resample(Filter):
    """The fields on a uniform grid, at its points: `size` points in x, y, z over `bounds` (default: the mesh's).

    Every rank gets the whole grid; on ranks other than 0 all of it is marked as ghost, so that it counts once. NaN
    outside of the mesh, where cells are marked as hidden. A direction without extent has one point.
    """

    key: ClassVar[str] = "resample"
    size: tuple[Any, ...] = option(_size, (64, 64, 64))
    bounds: tuple[Any, ...] | None = option(listing(interval, 3, 3), None)
    only: tuple[Any, ...] | None = option(names, None, key="fields")

    def fields(self) -> Fields:
        return None if self.only is None else frozenset(self.only)

    def apply(self, parts: list[Any], survey: Survey) -> Any:
        from .parts import CELL, POINT, set_array
        from .vtk import GHOSTS

        image = self.grid(survey)
        inside, found = sample_everywhere(parts, image, self.only, survey.cohort)
        for name, array in found.items():
            set_array(image, POINT, name, array)
        elsewhere = survey.cohort is not None and survey.cohort.rank > 0
        hidden = np.where(inside, 0, 2).astype(np.uint8)  # HIDDENPOINT
        set_array(image, POINT, GHOSTS, hidden | elsewhere)
        set_array(image, CELL, GHOSTS, np.where(_all_corners(inside, image), 0, 32).astype(np.uint8) | elsewhere)
        return [image]

    def grid(self, survey: Survey) -> Any:
        from vtkmodules.vtkCommonDataModel import vtkImageData

        low, high = (survey.low, survey.high) if self.bounds is None else np.array(self.bounds).T
        size = np.where(high > low, self.size, 1)
        image = vtkImageData()
        image.SetDimensions(*map(int, size))
        image.SetOrigin(*low)
        image.SetSpacing(*np.where(size > 1, (high - low) / np.maximum(size - 1, 1), 1.0))
        return image


def _all_corners(inside: np.ndarray, image: Any) -> np.ndarray:
    inside = inside.reshape(image.GetDimensions()[::-1])
    for axis in range(3):
        if inside.shape[axis] > 1:
            count = inside.shape[axis]
            inside = inside.take(range(count - 1), axis) & inside.take(range(1, count), axis)
    return inside.ravel()


@dataclass(frozen=True)
class Histogram(Filter):
    """A table of low, high and count: how many values (of a vector: lengths) lie in each bin, or their weights' sum.

    As numpy.histogram: a bin holds its low end, the last one its high end too. Values that are not finite or out of
    the range are left out. range: default that of the field over the whole mesh.
    """

    key: ClassVar[str] = "histogram"
    makes_table: ClassVar[bool] = True

    field: str = option(text)
    bins: int = option(whole(1, 100_000), 64)
    range: tuple[Any, ...] | None = option(interval, None)
    weights: str | None = option(text, None)

    def fields(self) -> Fields:
        return frozenset(filter(None, (self.field, self.weights)))

    def ranges(self) -> frozenset[str]:
        return frozenset() if self.range is not None else frozenset([self.field])

    def apply(self, parts: list[Any], survey: Survey) -> Any:
        limits = self._apart(*(self.range or survey.ranges[self.field] or (0.0, 1.0)))
        counts = exchange(
            survey.cohort, lambda: self.counts(parts, limits), lambda everything: np.sum(everything, axis=0)
        )
        edges = np.histogram_bin_edges([], self.bins, limits)
        return Table({"low": edges[:-1], "high": edges[1:], "count": counts})

    def _apart(self, low: float, high: float) -> tuple[float, float]:
        """The limits; further apart where so many bins would not be told from each other."""
        least = max(4 * self.bins * float(np.spacing(max(abs(low), abs(high)))), 1.0 if low == high else 0.0)
        return (low, high) if high - low >= least else (low - least / 2, high + least / 2)

    def counts(self, parts: list[Any], limits: tuple[float, float]) -> np.ndarray:
        from .parts import magnitude, owned_values

        counts = np.zeros(self.bins, np.int64 if self.weights is None else np.float64)
        for part in parts:
            array = owned_values(part, self.field)
            weights = owned_values(part, self.weights) if self.weights is not None else None
            if array is None or (weights is None and self.weights is not None):
                continue
            if weights is not None and weights.shape != array.shape[:1]:
                raise InvalidArgument(f"'{self.weights}' has {weights.shape}, and '{self.field}' {len(array)} values")
            array = magnitude(array)
            keep = np.isfinite(array)
            counts += np.histogram(
                array[keep], self.bins, limits, weights=None if weights is None else weights[keep].astype(np.float64)
            )[0]
        return counts


_STATISTICS = ("count", "min", "max", "mean", "std", "sum")


@dataclass(frozen=True)
class Statistics(Filter):
    """A table with a row for each field (default: all): field, count, min, max, mean, std, sum; of a vector's length.

    As the reductions of conditions, which leave out NaN.
    """

    key: ClassVar[str] = "statistics"
    makes_table: ClassVar[bool] = True

    only: tuple[Any, ...] | None = option(names, None, key="fields")

    def fields(self) -> Fields:
        return None if self.only is None else frozenset(self.only)

    def apply(self, parts: list[Any], survey: Survey) -> Any:
        from .parts import owned_fields

        fields = sorted(survey.names) if self.only is None else list(self.only)
        wanted = {key: [Expression(f"{key}(field({name!r}))") for name in fields] for key in _STATISTICS}
        none = {name: np.zeros(0) for name in fields}  # what the filters before have left may lack a field
        arrays = [none | owned_fields(part, fields) for part in parts]
        reductions = Reductions(expression for column in wanted.values() for expression in column)
        found = reductions.compute(arrays, Values(0, 0, 0), survey.cohort)
        columns = {"field": np.array(fields, dtype=str)}
        for key, expressions in wanted.items():
            columns[key] = np.array([found[e.reductions[0].text] for e in expressions], dtype=np.float64)
        return Table(columns)
