"""Streamlines across ranks: a particle that leaves a rank's part goes on at whichever rank owns the point it reached.

Rounds of one gather and one broadcast, until all particles have ended: each rank traces those in its own cells, and
beyond, as far as its ghost cells go. Without ghost cells, short steps of Euler's method lead over borders.
"""

# ruff: noqa: RUF009  (records are frozen)
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..cohort import rank_of
from ..errors import InvalidArgument
from .agreement import exchange
from .chain import Fields, Filter, Survey
from .sampling import Line, point_set, sample
from .schema import choice, number, only_one, option, points, record, text, vector, whole

MAX_ROUNDS = 1000
_LEFT_THE_DOMAIN = 1  # vtkStreamTracer's reason to end


@dataclass(frozen=True)
class Ball:
    """n points spread evenly in a ball; default: about the mesh's centre, of a quarter of its diagonal."""

    center: tuple[Any, ...] | None = option(vector, None)
    radius: float | None = option(number(above=0), None)
    n: int = option(whole(1, 10_000), 50)

    def points(self, survey: Survey) -> np.ndarray:
        place = (np.arange(self.n) + 0.5) / self.n
        z = 1 - 2 * (np.arange(self.n) * 0.7548776662466927 % 1)  # uncorrelated with the radius
        angle = np.arange(self.n) * np.pi * (3 - np.sqrt(5))
        around = np.stack([np.sqrt(1 - z * z) * np.cos(angle), np.sqrt(1 - z * z) * np.sin(angle), z], axis=1)
        radius = survey.diagonal / 4 if self.radius is None else self.radius
        center = np.asarray(survey.center if self.center is None else self.center)
        seeds: np.ndarray = center + radius * np.cbrt(place)[:, None] * around
        return seeds


@dataclass(frozen=True)
class Seeds:
    line: Line | None = option(record(Line), None)
    sphere: Ball | None = option(record(Ball, short="radius"), None)
    points: tuple[Any, ...] | None = option(points, None)

    def __post_init__(self) -> None:
        only_one(self, "line", "sphere", "points", needed=False)

    def all(self, survey: Survey) -> np.ndarray:
        if self.points is not None:
            return np.array(self.points)
        if self.line is not None:
            return self.line.points()
        around = (self.sphere or Ball()).points(survey)
        return np.where(survey.high > survey.low, around, survey.low)  # in the plane of a flat mesh


@dataclass(frozen=True)
class Particle:
    """Where a particle is, on its way along (+1) or against (-1) the field, and how far it may still go.

    point: reached by its last owner, at `time`; beyond: a bit further, for when nobody else owns the point; drawn: the
    last point of its line.
    """

    number: int
    sign: int
    point: tuple[float, ...]
    beyond: tuple[float, ...]
    drawn: tuple[float, ...]
    owner: int
    length: float
    steps: int
    time: float = 0.0


@dataclass(frozen=True)
class Streamlines(Filter):
    """Lines along the vector field from seeds, in one direction or both; with the array IntegrationTime, and SeedIds.

    step: at most so many cell lengths; max_length: in the mesh's units, default twice its diagonal. Fields of cells are
    taken to the points.
    """

    key: ClassVar[str] = "streamlines"
    makes: ClassVar[frozenset[str]] = frozenset(["IntegrationTime", "SeedIds"])
    field: str = option(text)
    seeds: Seeds = option(record(Seeds), Seeds())
    direction: str = option(choice("both", "forward", "backward"), "both")
    max_length: float | None = option(number(above=0), None)
    max_steps: int = option(whole(1, 1_000_000), 2000)
    step: float = option(number(above=0, maximum=10), 0.5)

    def fields(self) -> Fields:
        return frozenset([self.field])

    def apply(self, parts: list[Any], survey: Survey) -> Any:
        signs = {"both": (1, -1), "forward": (1,), "backward": (-1,)}[self.direction]
        length = 2 * survey.diagonal if self.max_length is None else self.max_length
        particles = [
            Particle(number, sign, tuple(point), tuple(point), tuple(point), -1, length, self.max_steps)
            for sign in signs
            for number, point in enumerate(self.seeds.all(survey).tolist())
        ]
        rank = rank_of(survey.cohort)
        tracer = _Tracer(self, parts, rank)
        pieces = []
        for _ in range(MAX_ROUNDS):
            if not particles:
                break
            owners, particles = exchange(survey.cohort, partial(tracer.trace_ends, particles), _settled)
            pieces += [tracer.traced[key] for key, owner in owners.items() if owner == rank]
        return _as_lines(pieces)


@dataclass
class _Piece:
    """What one rank traced of one particle: points (n × 3), fields there, and the particle at its end."""

    points: np.ndarray
    fields: dict[str, np.ndarray]
    number: int
    from_beyond: bool
    end: Particle | None  # None: it ended


def _settled(everything: list[dict[int, tuple[bool, Particle | None]]]) -> tuple[dict[int, int], list[Particle]]:
    """Whose piece of each particle counts, and the particles that go on. Who owns the point itself comes first."""
    owners: dict[int, tuple[bool, int]] = {}
    for rank, traced in enumerate(everything):
        for key, (from_beyond, _) in traced.items():
            owners[key] = min(owners.get(key, (True, len(everything))), (from_beyond, rank))
    ends = (everything[rank][key][1] for key, (_, rank) in sorted(owners.items()))
    return {key: rank for key, (_, rank) in sorted(owners.items())}, [end for end in ends if end is not None]


class _Tracer:
    """One rank's parts: own cells to decide who goes on, and all cells, ghosts too, to trace in."""

    def __init__(self, options: Streamlines, parts: list[Any], rank: int):
        from vtkmodules.vtkCommonDataModel import vtkMultiBlockDataSet

        from .parts import CELL, POINT, association, copy_of, field_names, owned, with_points
        from .vtk import GHOSTS

        self.options, self.rank = options, rank
        self.traced: dict[int, _Piece] = {}
        parts = [with_points(p, *field_names(p)) for p in parts if association(p, options.field) is not None]
        self.own = [part for part in map(owned, parts) if part is not None]
        self.domain = [copy_of(part) for part in parts if part.GetNumberOfCells()]
        self.blocks = vtkMultiBlockDataSet()
        for number_, part in enumerate(self.domain):
            for which in (POINT, CELL):
                part.GetAttributes(which).RemoveArray(GHOSTS)
            self.blocks.SetBlock(number_, part)
        sizes = [_cell_size(part) for part in self.own]
        self.stride = options.step / 3 * (min(sizes) if sizes else 0.0)

    def trace_ends(self, particles: list[Particle]) -> dict[int, tuple[bool, Particle | None]]:
        """Keeps what it traces in `traced`; what the other ranks need to know of it."""
        self.traced = self.trace(particles)
        return {key: (piece.from_beyond, piece.end) for key, piece in self.traced.items()}

    def trace(self, particles: list[Particle]) -> dict[int, _Piece]:
        """The pieces of those particles that are here, by their place in the list."""
        if any(part.GetPointData().GetArray(self.options.field).GetNumberOfComponents() != 3 for part in self.domain):
            raise InvalidArgument(f"'{self.options.field}' is no field of vectors with three components")
        if not self.own:
            return {}
        there, _ = sample(self.own, point_set(np.array([p.point for p in particles])), ())
        there &= np.array([p.owner != self.rank for p in particles])
        beyond, _ = sample(self.own, point_set(np.array([p.beyond for p in particles])), ())
        pieces: dict[int, _Piece] = {}
        for sign in (1, -1):
            keys = [k for k, p in enumerate(particles) if p.sign == sign and (there[k] or beyond[k])]
            if keys:
                starts = [particles[k].point if there[k] else particles[k].beyond for k in keys]
                pieces |= zip(keys, self.run([particles[k] for k in keys], starts, sign), strict=True)
        for key, piece in pieces.items():
            piece.from_beyond = not there[key]
        self.look_beyond([piece for piece in pieces.values() if piece.end is not None])
        return pieces

    def run(self, particles: list[Particle], starts: list[tuple[Any, ...]], sign: int) -> Iterator[_Piece]:
        from vtkmodules.vtkFiltersFlowPaths import vtkStreamTracer

        from .parts import field_names, run, values

        tracer = vtkStreamTracer()
        tracer.SetSourceData(point_set(np.array(starts)))
        tracer.SetInputArrayToProcess(0, 0, 0, 0, self.options.field)
        tracer.SetIntegratorTypeToRungeKutta45()
        tracer.SetIntegrationStepUnit(2)  # cell lengths
        tracer.SetInitialIntegrationStep(self.options.step / 2)
        tracer.SetMinimumIntegrationStep(self.options.step / 50)
        tracer.SetMaximumIntegrationStep(self.options.step)
        tracer.SetMaximumPropagation(max(p.length for p in particles))
        tracer.SetMaximumNumberOfSteps(max(p.steps for p in particles))
        tracer.SetComputeVorticity(False)
        (tracer.SetIntegrationDirectionToForward if sign > 0 else tracer.SetIntegrationDirectionToBackward)()
        lines = run(tracer, self.blocks)
        fields = {name: values(lines, name) for name in field_names(lines) if lines.GetPointData().HasArray(name)}
        found = {}
        for seed, reason, ids in _cells(lines):
            found[seed] = (reason, _points(lines)[ids], {name: array[ids] for name, array in fields.items()})
        none = {name: array[:0] for name, array in fields.items()}
        for n, (particle, start) in enumerate(zip(particles, starts, strict=True)):
            left, where, arrays = found.get(n, (_LEFT_THE_DOMAIN, np.zeros((0, 3)), none))
            yield self.piece(particle, start, left == _LEFT_THE_DOMAIN, where, arrays)

    def piece(
        self, particle: Particle, start: tuple[Any, ...], left: bool, where: np.ndarray, arrays: dict[str, Any]
    ) -> _Piece:
        """Cuts what is too long, since VTK has one limit for all, and moves the particle to the end."""
        leap = float(np.linalg.norm(np.subtract(start, particle.drawn)))  # of Euler's method
        walked = leap + np.concatenate([[0.0], np.linalg.norm(np.diff(where, axis=0), axis=1).cumsum()])[: len(where)]
        keep = min(int(np.searchsorted(walked, particle.length, side="right")), particle.steps + 1)
        left = left and keep == len(where)
        where, arrays = where[:keep], {name: array[:keep] for name, array in arrays.items()}
        if keep:
            speed = float(np.linalg.norm(arrays[self.options.field][0]))
            late = particle.time + (particle.sign * leap / speed if speed else 0.0)
            arrays["IntegrationTime"] = late + arrays["IntegrationTime"]
        after = replace(
            particle,
            point=tuple(where[-1].tolist()) if keep else start,
            drawn=tuple(where[-1].tolist()) if keep else particle.drawn,
            owner=self.rank,
            length=particle.length - (walked[keep - 1] if keep else 0.0),
            steps=particle.steps - max(keep - 1, 1),
            time=float(arrays["IntegrationTime"][-1]) if keep else particle.time,
        )
        if keep and leap:  # no gap in the line
            where = np.concatenate([[particle.drawn], where])
            arrays = {name: np.concatenate([array[:1], array]) for name, array in arrays.items()}
            arrays["IntegrationTime"][0] = particle.time
        goes_on = left and after.length > 0 and after.steps > 0
        return _Piece(where, arrays, particle.number, False, after if goes_on else None)

    def look_beyond(self, pieces: list[_Piece]) -> None:
        """A bit further, by Euler's method, from where particles left; those at rest end."""
        if not pieces:
            return
        particles = [piece.end for piece in pieces if piece.end is not None]
        ends = np.array([each.point for each in particles])
        signs = np.array([[each.sign] for each in particles])
        _, found = sample(self.domain, point_set(ends), [self.options.field])
        velocity = np.nan_to_num(found[self.options.field])
        speed = np.linalg.norm(velocity, axis=1, keepdims=True)
        beyond = ends + signs * velocity * self.stride / np.where(speed > 0, speed, 1)
        for piece, end, point, moves in zip(pieces, particles, beyond.tolist(), (speed > 0).ravel(), strict=True):
            piece.end = replace(end, beyond=tuple(point)) if moves else None


def _cell_size(part: Any) -> float:
    extent = np.diff(np.array(part.GetBounds()).reshape(3, 2)).ravel()
    extent = extent[extent > 0]
    return float((np.prod(extent) / part.GetNumberOfCells()) ** (1 / len(extent))) if len(extent) else 0.0


def _points(lines: Any) -> np.ndarray:
    from vtkmodules.util.numpy_support import vtk_to_numpy

    points: np.ndarray = vtk_to_numpy(lines.GetPoints().GetData())
    return points


def _cells(lines: Any) -> Iterator[tuple[int, int, np.ndarray]]:
    """Of each line: the seed's number, why it ended, the numbers of its points."""
    from vtkmodules.util.numpy_support import vtk_to_numpy

    from .parts import values

    if lines.GetNumberOfCells() == 0:
        return
    offsets = vtk_to_numpy(lines.GetLines().GetOffsetsArray())
    ids = vtk_to_numpy(lines.GetLines().GetConnectivityArray())
    seeds, reasons = values(lines, "SeedIds").tolist(), values(lines, "ReasonForTermination").tolist()
    for seed, reason, begin, end in zip(seeds, reasons, offsets, offsets[1:], strict=False):
        yield seed, reason, ids[begin:end]


def _as_lines(pieces: list[_Piece]) -> list[Any]:
    from vtkmodules.util.numpy_support import numpy_to_vtkIdTypeArray
    from vtkmodules.vtkCommonDataModel import vtkCellArray

    from .parts import CELL, POINT, set_array

    pieces = [piece for piece in pieces if len(piece.points) > 1]
    if not pieces:
        return []
    lines = point_set(np.concatenate([piece.points for piece in pieces]))
    ends = np.cumsum([0, *(len(piece.points) for piece in pieces)])
    cells = vtkCellArray()
    cells.SetData(
        numpy_to_vtkIdTypeArray(ends.astype(np.int64), deep=True),
        numpy_to_vtkIdTypeArray(np.arange(ends[-1], dtype=np.int64), deep=True),
    )
    lines.SetLines(cells)
    for name in sorted(set.intersection(*(set(piece.fields) for piece in pieces))):
        set_array(lines, POINT, name, np.concatenate([piece.fields[name] for piece in pieces]))
    set_array(lines, CELL, "SeedIds", np.array([piece.number for piece in pieces], dtype=np.int64))
    return [lines]
