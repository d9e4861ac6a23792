"""The filter `fragments`: connected regions of cells above a threshold, in the blocks of an AMR mesh.

docs/internals/fragments.md says how they are found. A fragment of a step has a number, by size, and a track, which
follows it from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .. import _core
from ..cohort import Cohort
from ..errors import InvalidArgument, NotFound
from ..names import nearest
from . import schema
from .amr import Arrays, Batch, Runs
from .chain import Filter, Source, Survey, Table
from .reductions import exchange
from .schema import Problem, choice, interval, number, option, text, whole
from .tracking import Bricks, Tracked, Tracker

FEW_CELLS = 8
MAX_FRAMES = 10_000  # whose events are kept for filters that look at few frames
# Of the table, those that a surface has as fields.
COLUMNS = ("fragment", "cells", "volume", "mass", "vx", "vy", "vz", "length", "width", "height", "hull_ratio")

TABLE = frozenset([*COLUMNS, *"xyz", "ax", "ay", "az", "cell", "track"])  # but for means


@dataclass(frozen=True)
class Search:
    """What decides which fragments are found: equal searches of one frame are made once."""

    field: str
    threshold: float
    mass: str | None
    velocity: str | None
    means: tuple[str, ...]
    algorithm: str | None
    batch: int | None

    @property
    def fields(self) -> list[str]:
        names = (self.field, self.mass, self.velocity, *self.means)
        return list(dict.fromkeys(name for name in names if name is not None))


@dataclass(frozen=True)
class Piece:
    """The surface that this rank found in one batch: points (n, 3), triangles (m, 3), the fragment of each triangle,
    and the number of each point, which is the same on all ranks that have it."""

    points: np.ndarray
    triangles: np.ndarray
    fragment: np.ndarray
    ids: np.ndarray


@dataclass(frozen=True)
class Found:
    """The fragments of one frame. It refers to no block of the frame.

    columns: a row for each fragment, by volume, the largest first; the same on all ranks. bricks: what the fragments
    have of the cells of level 0, and pieces, of this rank. maps: of each batch, the fragment of each component.
    """

    columns: dict[str, np.ndarray]
    bricks: list[Bricks]
    pieces: list[Piece]
    maps: list[np.ndarray]


def find(source: Source, search: Search, cohort: Cohort | None) -> Found:
    """Collective. InvalidArgument: neighbouring blocks differ by more than one level, or a field has another shape."""
    parts: list[Any] = []
    bricks: list[Bricks] = []

    def mine() -> list[bytes]:
        encoded = []
        for batch in source.blocks(search.fields, search.algorithm, search.batch):
            part = _part(batch, search)
            parts.append(part)
            encoded.append(part.encode())
            bricks.append(Bricks(*part.bricks()))
            part.release()  # no blocks but those of a batch are in memory
        return encoded

    def joined(by_rank: list[list[bytes]]) -> tuple[dict[str, np.ndarray], list[list[np.ndarray]]]:
        merged = _core.merge_fragments([part for found in by_rank for part in found])
        maps = iter(merged["maps"])
        return columns_of(merged, search), [[next(maps) for _ in found] for found in by_rank]

    columns, by_rank = exchange(cohort, mine, joined)
    maps = by_rank[cohort.rank if cohort is not None else 0]
    pieces = []
    for part, numbers in zip(parts, maps, strict=True):
        points, ids, triangles, components = part.surface()
        pieces.append(Piece(points, triangles, numbers[components], ids))
    followed = [replace(each, row=numbers[each.row]) for each, numbers in zip(bricks, maps, strict=True)]
    return Found(columns, followed, pieces, maps)


def labels_of(source: Source, search: Search, found: Found) -> np.ndarray:
    """The fragment of each cell of this rank's own blocks, x fastest, without ghost layers; -1 for none."""
    plain = replace(search, mass=None, velocity=None, means=())
    batches = source.blocks(plain.fields, plain.algorithm, plain.batch)
    labels = [_part(batch, plain, False).labels(numbers) for batch, numbers in zip(batches, found.maps, strict=True)]
    return np.concatenate([np.empty(0, np.int32), *labels])


def _part(batch: Batch, search: Search, surface: bool = True) -> Any:
    fields = {"fraction": batch.fields[search.field], "means": [batch.fields[name] for name in search.means]}
    if search.mass is not None:
        fields["mass"] = batch.fields[search.mass]
    if search.velocity is not None:
        fields["velocity"] = _interleaved(batch.fields[search.velocity])
    mesh = batch.mesh
    return _core.find_fragments(
        batch.levels, batch.indices, batch.own, batch.cells, mesh.origin, mesh.spacing, batch.depth, fields,
        search.threshold, surface,
    )  # fmt: skip


def _joined(bricks: Sequence[Bricks]) -> Bricks:
    """A brick once for each row."""
    row = np.concatenate([np.empty(0, np.int64), *(each.row for each in bricks)])
    place = np.concatenate([np.empty((0, 3), np.int64), *(each.place for each in bricks)])
    volume = np.concatenate([np.empty(0), *(each.volume for each in bricks)])
    sides = place.max(axis=0, initial=0) + 1
    key = row
    for axis in range(3):
        key = key * sides[axis] + place[:, axis]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return Bricks(row[first], place[first], np.bincount(which.reshape(-1), volume, len(first)))


def _interleaved(arrays: Arrays) -> Runs:
    if isinstance(arrays, list):
        return arrays
    return [(np.stack([each for each, _ in runs], axis=-1), runs[0][1]) for runs in zip(*arrays, strict=True)]


# ----------------------------------------------------------------------------------------------------- characterisation


def columns_of(merged: dict[str, Any], search: Search) -> dict[str, np.ndarray]:
    """The table: fragment, cells, volume, mass, x, y, z (centre of mass), vx, vy, vz (its velocity), the means, length,
    width and height of the oriented box, ax, ay, az (its long axis), hull_ratio, cell (the lowest number of a cell)."""
    count = len(merged["volume"])
    columns = {
        "fragment": np.arange(count),
        "cells": merged["cells"],
        "volume": merged["volume"],
        "mass": merged["mass"],
    }
    columns |= dict(zip("xyz", merged["centre"].T, strict=True))
    if search.velocity is not None:
        columns |= dict(zip(("vx", "vy", "vz"), merged["velocity"].T, strict=True))
    columns |= dict(zip(search.means, merged["means"].reshape(count, len(search.means)).T, strict=True))
    fragment, points = merged["extremes"]
    extremes = np.split(points, np.searchsorted(fragment, np.arange(1, count)))[:count]
    columns |= shape_columns(merged["moments"].reshape(count, 3, 3), extremes, merged["volume"], merged["cells"])
    columns["cell"] = merged["lowest"]
    return columns


def shape_columns(
    moments: np.ndarray, extremes: list[np.ndarray], volume: np.ndarray, cells: np.ndarray
) -> dict[str, np.ndarray]:
    """Of fragments with these central second moments (n, 3, 3) and extreme points of their surfaces (k, 3) each.

    The box lies along the principal axes of the moments and holds the extreme points; its long axis points upwards in
    its largest component. hull_ratio is the volume by that of the convex hull of these points: near 1 for a ball, small
    for a U. The points are those of 162 directions, so that a ball's hull is a little too small. NaN: no finite moments
    (no mass, say); the ratio also for less than FEW_CELLS cells, whose surface is too coarse.
    """
    names = ("length", "width", "height", "ax", "ay", "az", "hull_ratio")
    rows = np.full((len(volume), len(names)), np.nan)
    for row, moment, points, inside, many in zip(rows, moments, extremes, volume, cells >= FEW_CELLS, strict=True):
        if not np.isfinite(moment).all():
            continue
        axes = np.linalg.eigh(moment)[1]
        sides = np.ptp(points @ axes, axis=0)
        order = np.argsort(-sides, kind="stable")
        long = axes[:, order[0]]
        hull = hull_volume(points) if many else 0.0
        row[:] = [*sides[order], *(long * np.sign(long[np.abs(long).argmax()])), inside / hull if hull else np.nan]
    return dict(zip(names, rows.T, strict=True))


def hull_volume(points: np.ndarray) -> float:
    """Of the convex hull of points (k, 3); 0 when they lie in a plane."""
    from vtkmodules.vtkCommonCore import vtkObject
    from vtkmodules.vtkFiltersCore import vtkDelaunay3D

    from .parts import run
    from .sampling import point_set
    from .vtk import numpy_of

    points = np.unique(points, axis=0)
    if len(points) < 4:
        return 0.0
    centred = points - points.mean(axis=0)
    spread, axes = np.linalg.eigh(centred.T @ centred / len(points))
    if not spread[0] > 1e-20 * spread[2]:
        return 0.0
    sides = np.sqrt(spread)
    round_ones = centred @ axes / sides  # a flat body would be within the filter's tolerance
    shown = vtkObject.GetGlobalWarningDisplay()
    vtkObject.GlobalWarningDisplayOff()  # of points on one sphere
    try:
        grid: Any = run(vtkDelaunay3D(), point_set(round_ones))
    finally:
        vtkObject.SetGlobalWarningDisplay(shown)
    corners = numpy_of(grid.GetCells().GetConnectivityArray()).reshape(-1, 4)
    a, b, c, d = round_ones[corners].swapaxes(0, 1)
    return float(np.abs(np.einsum("ij,ij->i", b - a, np.cross(c - a, d - a))).sum() / 6 * np.prod(sides))


class Tracks:
    """Fragments from frame to frame. track: of each fragment of the last one. Rank 0 follows them for all."""

    def __init__(self) -> None:
        self.track = np.empty(0, np.int64)
        self._tracker: Tracker | None = None
        self._time = -np.inf
        self._events: list[dict[str, np.ndarray]] = []  # the newest MAX_FRAMES
        self._frames = 0
        self._seen: dict[int, int] = {}  # frames whose events a filter has had, by its id

    def add(self, time: float, found: Found, spacing: Sequence[float], cohort: Cohort | None) -> None:
        """Collective. spacing: of level 0. A time that is not later than the last one, as after a restart, begins new
        tracks."""

        def follow(by_rank: list[list[Bricks]]) -> Tracked:
            if self._tracker is None or time <= self._time:
                self._tracker = Tracker(np.array(spacing))
            bricks = _joined([each for bricks in by_rank for each in bricks])
            return _followed(self._tracker, time, found.columns, bricks)

        tracked = exchange(cohort, lambda: found.bricks, follow)
        self.track, self._time = tracked.tracks, time
        self._events = [*self._events[1 - MAX_FRAMES :], tracked.events]
        self._frames += 1

    def events(self, reader: object) -> dict[str, np.ndarray]:
        """Those since this reader asked last."""
        new = self._frames - self._seen.get(id(reader), 0)
        self._seen[id(reader)] = self._frames
        tables = self._events[-new:] if new else [{n: column[:0] for n, column in self._events[-1].items()}]
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    def trajectories(self) -> dict[str, np.ndarray]:
        """On rank 0."""
        return self._tracker.trajectories() if self._tracker is not None else {}


def _followed(tracker: Tracker, time: float, columns: dict[str, np.ndarray], bricks: Bricks) -> Tracked:
    """Fragments without a finite place have the track -1; those without a finite velocity are taken to rest."""
    names = ["volume", *"xyz"]
    there = np.isfinite([columns[name] for name in names]).all(axis=0) & (columns["volume"] > 0)
    table = {name: columns[name][there] for name in names}
    if "vx" in columns:
        velocity = np.array([columns[name][there] for name in ("vx", "vy", "vz")])
        velocity = np.where(np.isfinite(velocity).all(axis=0), velocity, 0.0)
        table |= dict(zip(("vx", "vy", "vz"), velocity, strict=True))
    kept = there[bricks.row]
    rows = np.cumsum(there)[bricks.row[kept]] - 1
    tracked = tracker.add(time, table, Bricks(rows, bricks.place[kept], bricks.volume[kept]))
    tracks = np.full(len(there), -1, np.int64)
    tracks[there] = tracked.tracks
    return Tracked(tracks, tracked.events)


# --------------------------------------------------------------------------------------------------------- the filters


@dataclass(frozen=True)
class _Options(Filter):
    """What both filters take. See Fragments."""

    takes_blocks: ClassVar[bool] = True

    field: str = option(text)
    threshold: float = option(number(above=0), 0.5)
    mass: str | None = option(text, None)
    velocity: str | None = option(text, None)
    average: tuple[Any, ...] = option(schema.names, ())
    min_volume: float = option(number(0), 0.0)
    largest: int | None = option(whole(1, 1_000_000), None)
    algorithm: str | None = option(choice("refined", "baseline"), None)
    batch: int | None = option(whole(1, 1 << 30), None)

    def __post_init__(self) -> None:
        for name in self.average:
            if name in TABLE:
                raise Problem(f"average: '{name}' is a column of the table of fragments; its mean would have no name")

    @property
    def search(self) -> Search:
        return Search(self.field, self.threshold, self.mass, self.velocity, self.average, self.algorithm, self.batch)

    def fields(self) -> frozenset[str]:
        return frozenset(self.search.fields)

    def _found(self, survey: Survey) -> Found:
        return _source(survey).once(self.search, lambda: find(_source(survey), self.search, survey.cohort))

    def _tracks(self, survey: Survey) -> Tracks:
        """Those of this frame."""
        source = _source(survey)
        tracks = source.kept(("tracks", self.search), Tracks)
        found = self._found(survey)
        source.once(("tracks", self.search), lambda: tracks.add(source.time, found, source.spacing, survey.cohort))
        return tracks

    def _chosen(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """Which fragments, by number."""
        numbers = columns["fragment"]
        chosen: np.ndarray = (columns["volume"] >= self.min_volume) & (numbers < (self.largest or len(numbers)))
        return chosen


def _source(survey: Survey) -> Source:
    if survey.source is None:
        raise InvalidArgument("fragments are found in the blocks of a channel's AMR mesh")
    return survey.source


@dataclass(frozen=True)
class Fragments(_Options):
    """Connected regions of cells where the field is at least the threshold, through cell faces; of an AMR mesh.

    field: the share of a cell's volume, a float from 0 to 1, or uint8 from 0 to 255. mass: the field of the material's
    mass by the cell's volume; default: the volume. velocity: a field of three components. average: fields to be
    averaged, weighted by the material's volume. min_volume, largest: which fragments to give. algorithm: how touching
    blocks are found: refined needs a mesh with `splits`, and is the default there; baseline looks at all blocks.
    batch: read so many blocks at a time.

    give: surface: closed surfaces, whose cells have the columns of the table as fields; cells: the cells themselves,
    with `fragment` and `track`; trajectories: where the centres of fragments were so far, as lines with `track`, `time`
    and `volume` at their points.
    """

    key: ClassVar[str] = "fragments"
    makes: ClassVar[frozenset[str]] = frozenset([*COLUMNS, "track", "time", "Normals"])
    give: str = option(choice("surface", "cells", "trajectories"), "surface")

    def apply(self, parts: list[Any], survey: Survey) -> list[Any]:
        if self.give == "trajectories":
            tracks = self._tracks(survey)
            return _lines(tracks.trajectories()) if _first(survey.cohort) else []
        found, track = self._found(survey), self._tracks(survey).track
        keep = self._chosen(found.columns)
        if self.give == "surface":
            return _surfaces(found, track, keep, [*COLUMNS, *self.average])
        labels = labels_of(_source(survey), self.search, found)
        return _cells(parts, labels.reshape(len(parts), -1) if len(parts) else labels, track, keep)


@dataclass(frozen=True)
class FragmentTable(_Options):
    """A table of the fragments, a row for each; see Fragments for the options.

    give: table; histogram: of the column `of` in so many `bins` over `range` (default: all), evenly in its logarithm
    where `log` is true; events: what happened to tracks since the analysed step before.
    """

    key: ClassVar[str] = "fragment_table"
    makes_table: ClassVar[bool] = True
    give: str = option(choice("table", "histogram", "events"), "table")
    of: str = option(text, "volume")
    bins: int = option(whole(1, 10_000), 32)
    range: tuple[Any, ...] | None = option(interval, None)
    log: bool = option(schema.boolean, False)

    def apply(self, parts: list[Any], survey: Survey) -> Table:
        tracks = self._tracks(survey)
        if self.give == "events":
            return Table(tracks.events(self))
        columns = self._found(survey).columns
        keep = self._chosen(columns)
        chosen = {name: column[keep] for name, column in {**columns, "track": tracks.track}.items()}
        return Table(chosen) if self.give == "table" else self._histogram(chosen)

    def _histogram(self, columns: dict[str, np.ndarray]) -> Table:
        if self.of not in columns:
            raise NotFound(f"the table of fragments has no column '{self.of}'{nearest(self.of, columns)}")
        values = columns[self.of][np.isfinite(columns[self.of])].astype(np.float64)
        values = np.log10(values[values > 0]) if self.log else values
        limits: Any = np.log10(self.range) if self.log and self.range is not None else self.range
        counts, edges = np.histogram(values, self.bins, limits)
        edges = 10.0**edges if self.log else edges
        return Table({"low": edges[:-1], "high": edges[1:], "count": counts})


def _first(cohort: Cohort | None) -> bool:
    return cohort is None or cohort.rank == 0


def _surfaces(found: Found, track: np.ndarray, keep: np.ndarray, shown: Sequence[str]) -> list[Any]:
    """One dataset of all pieces, whose common points are one."""
    from .parts import CELL, POINT, set_array

    pieces = [piece for piece in found.pieces if len(piece.triangles)]
    if not pieces:
        return []
    starts = np.cumsum([0, *(len(piece.points) for piece in pieces)])
    triangles = np.concatenate([p.triangles + start for p, start in zip(pieces, starts, strict=False)])
    fragment = np.concatenate([piece.fragment for piece in pieces])
    chosen = keep[fragment]
    _, first, point_of = np.unique(np.concatenate([p.ids for p in pieces]), return_index=True, return_inverse=True)
    points = np.concatenate([piece.points for piece in pieces])[first]
    triangles, fragment = point_of[triangles[chosen]], fragment[chosen]
    surface = _polygons(points, triangles)
    set_array(surface, POINT, "Normals", normals(points, triangles).astype(np.float32))
    surface.GetPointData().SetActiveNormals("Normals")
    set_array(surface, CELL, "track", track[fragment])
    for name in shown:
        if name in found.columns:
            set_array(surface, CELL, name, found.columns[name][fragment])
    return [surface] if len(triangles) else []


def normals(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Of the points of a surface: the mean of the triangles around, weighted by their areas; of length 1, or 0."""
    a, b, c = points[triangles].swapaxes(0, 1)
    faces = np.repeat(np.cross(b - a, c - a), 3, axis=0)
    corners = triangles.ravel()
    summed = np.stack([np.bincount(corners, faces[:, d], len(points)) for d in range(3)], axis=1)
    length = np.linalg.norm(summed, axis=1, keepdims=True)
    unit: np.ndarray = summed / np.where(length > 0, length, 1)
    return unit


def _polygons(points: np.ndarray, triangles: np.ndarray) -> Any:
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonDataModel import vtkCellArray

    from .sampling import point_set

    surface = point_set(points)
    cells = vtkCellArray()
    offsets = np.arange(0, 3 * len(triangles) + 1, 3, dtype=np.int64)
    cells.SetData(numpy_to_vtk(offsets, deep=True), numpy_to_vtk(triangles.ravel().astype(np.int64), deep=True))
    surface.SetPolys(cells)
    return surface


def _cells(parts: Sequence[Any], labels: np.ndarray, track: np.ndarray, keep: np.ndarray) -> list[Any]:
    """The cells of the fragments to keep. parts: blocks as images, with ghost layers; labels: of their own cells."""
    from vtkmodules.vtkCommonDataModel import vtkDataObject
    from vtkmodules.vtkFiltersCore import vtkThreshold

    from .parts import CELL, copy_of, owned, run, set_array

    chosen = np.append(keep, False)  # the last is for -1
    tracks = np.append(track, -1)
    found = []
    for part, label in zip(parts, labels, strict=True):
        if not chosen[label].any():
            continue
        block = owned(part)
        set_array(block, CELL, "fragment", np.where(chosen[label], label, -1))
        set_array(block, CELL, "track", tracks[label])
        threshold = vtkThreshold()
        threshold.SetInputArrayToProcess(0, 0, 0, vtkDataObject.FIELD_ASSOCIATION_CELLS, "fragment")
        threshold.SetLowerThreshold(0)
        threshold.SetThresholdFunction(vtkThreshold.THRESHOLD_UPPER)
        threshold.SetUpperThreshold(0)
        found.append(copy_of(run(threshold, block)))
    return found


def _lines(trajectories: dict[str, np.ndarray]) -> list[Any]:
    """A line for each track; a point for one of a single step."""
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonDataModel import vtkCellArray

    from .parts import POINT, set_array
    from .sampling import point_set

    order = np.lexsort((trajectories["time"], trajectories["track"]))
    rows = {name: column[order] for name, column in trajectories.items()}
    if not len(order):
        return []
    lines = point_set(np.stack([rows[axis] for axis in "xyz"], axis=1))
    ends = np.flatnonzero(np.diff(rows["track"])) + 1
    offsets = np.array([0, *ends, len(order)], np.int64)
    cells = vtkCellArray()
    cells.SetData(numpy_to_vtk(offsets, deep=True), numpy_to_vtk(np.arange(len(order), dtype=np.int64), deep=True))
    lines.SetLines(cells)
    for name in ("track", "time", "volume"):
        set_array(lines, POINT, name, rows[name])
    return [lines]
