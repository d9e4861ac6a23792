"""The filters `fragments` and `fragment_table`: connected regions of cells above a threshold, in an AMR mesh.

A fragment of a step has a number, by size, and a track, which follows it from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..cohort import rank_of
from ..errors import InvalidArgument
from ..names import nearest
from . import schema
from .chain import Filter, Source, Survey, Table
from .fragments_datasets import cells_of, lines_of, surfaces_of
from .fragments_search import Found, Search, find, labels_of
from .fragments_table import COLUMNS, TABLE, VELOCITY
from .fragments_tracks import Tracks
from .schema import Problem, choice, interval, number, option, text, whole


@dataclass(frozen=True)
class _Options(Filter):
    """What both filters take. See Fragments."""

    takes_blocks: ClassVar[bool] = True

    field: str = option(text)
    threshold: float = option(number(above=0, maximum=1), 0.5)
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
    def columns(self) -> list[str]:
        """Of the table."""
        left_out = VELOCITY if self.velocity is None else ()
        return [*(name for name in TABLE if name not in left_out), *self.average]

    @property
    def search(self) -> Search:
        return Search(self.field, self.threshold, self.mass, self.velocity, self.average, self.algorithm, self.batch)

    def fields(self) -> frozenset[str]:
        return frozenset(self.search.fields)

    def keeps(self) -> frozenset[Any]:
        return frozenset([("tracks", self.search)])

    def _found(self, survey: Survey) -> Found:
        return _source(survey).once(self.search, lambda: find(_source(survey), self.search, survey.cohort))

    def _tracks(self, survey: Survey) -> Tracks:
        """Those of this frame."""
        source = _source(survey)
        (key,) = self.keeps()
        tracks = source.kept(key, Tracks)
        found = self._found(survey)
        source.once(key, lambda: tracks.add(source.time, found, source.spacing, survey.cohort))
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

    def row_order(self) -> tuple[str, ...]:
        return ("track", "time") if self.give == "trajectories" else ()

    def apply(self, parts: list[Any], survey: Survey) -> list[Any]:
        if self.give == "trajectories":
            tracks = self._tracks(survey)
            return lines_of(tracks.trajectories()) if rank_of(survey.cohort) == 0 else []
        found, track = self._found(survey), self._tracks(survey).track
        keep = self._chosen(found.columns)
        if self.give == "surface":
            return surfaces_of(found, track, keep, [*COLUMNS, *self.average])
        labels = labels_of(_source(survey), self.search, found)
        return cells_of(parts, labels.reshape(len(parts), -1) if len(parts) else labels, track, keep)


@dataclass(frozen=True)
class FragmentTable(_Options):
    """A table of the fragments, a row for each; see Fragments for the options.

    give: table; histogram: of the column `of` in so many `bins` over `range` (default: all), evenly in its logarithm
    where `log` is true; events: what happened to tracks since the last step whose events were written.
    """

    key: ClassVar[str] = "fragment_table"
    makes_table: ClassVar[bool] = True
    give: str = option(choice("table", "histogram", "events"), "table")
    of: str = option(text, "volume")
    bins: int = option(whole(1, 10_000), 32)
    range: tuple[Any, ...] | None = option(interval, None)
    log: bool = option(schema.boolean, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of not in self.columns:
            raise Problem(f"of: the table of fragments has no column '{self.of}'{nearest(self.of, self.columns)}")

    def apply(self, parts: list[Any], survey: Survey) -> Table:
        tracks = self._tracks(survey)
        if self.give == "events":
            return Table(tracks.events(survey.reader, survey.cohort))
        columns = self._found(survey).columns
        keep = self._chosen(columns)
        chosen = {name: column[keep] for name, column in {**columns, "track": tracks.track}.items()}
        return Table(chosen) if self.give == "table" else self._histogram(chosen)

    def _histogram(self, columns: dict[str, np.ndarray]) -> Table:
        values = columns[self.of][np.isfinite(columns[self.of])].astype(np.float64)
        values = np.log10(values[values > 0]) if self.log else values
        limits: Any = np.log10(self.range) if self.log and self.range is not None else self.range
        counts, edges = np.histogram(values, self.bins, limits)
        edges = 10.0**edges if self.log else edges
        return Table({"low": edges[:-1], "high": edges[1:], "count": counts})
