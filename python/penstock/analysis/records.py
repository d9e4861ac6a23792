"""What the sections of a pipeline file hold: chains of filters, plots and scenes, extracts; and how they are read."""

# ruff: noqa: RUF009  (records are frozen)
from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeVar

from ..names import nearest
from . import schema
from .expressions import RESERVED, Expression
from .filters import FILTERS
from .schema import (
    Kind,
    Place,
    Problem,
    build,
    choice,
    listing,
    number,
    option,
    record,
    text,
    whole,
)

T = TypeVar("T")
MAX_NAMES = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,99}")
_FORMAT = re.compile(r"[<>^=]?[-+ ]?0?[0-9]{0,2}(\.[0-9]{1,2})?[deEfgGs]?")
_FILE = "{name}-{cycle:06d}"
_FILES = {"csv": f"{_FILE}.csv", "vtk": _FILE, "vtkhdf": f"{_FILE}.vtkhdf", "blueprint": f"{_FILE}.root"}

Fields = frozenset[str] | None  # None: all there are


# ------------------------------------------------------------------------------------------------------------ kinds


def expression(value: Any, place: Place) -> Expression:
    if not isinstance(value, str | int | float):
        raise Problem(f"an expression is needed, such as cycle % 10 == 0, not {value!r}")
    return Expression(value, place.names["queries"])


def fill(pattern: str, step: int, time: float, name: str) -> str:
    """The text of a pattern, where {cycle}, {step}, {time} and {name} stand for what they are; Problem: none."""
    known = {"cycle": int(step), "step": int(step), "time": float(time), "name": name}
    try:
        for _, word, form, conversion in string.Formatter().parse(pattern):
            if word is not None and (word not in known or conversion or not _FORMAT.fullmatch(form or "")):
                words = ", ".join(f"{{{key}}}" for key in known)
                raise Problem(f"'{pattern}': one of {words} is needed in braces, or such as {{cycle:06d}}")
        return pattern.format(**known)
    except ValueError as error:
        raise Problem(str(error)) from None


def label(value: Any, place: Place) -> str:
    if value == "":
        return ""
    fill(text(value, place), 0, 0.0, "name")
    return str(value)


def file_pattern(value: Any, place: Place) -> str:
    path = PurePosixPath(fill(text(value, place), 0, 0.0, "name"))
    if path.is_absolute() or ".." in path.parts or str(value).endswith("/") or not path.name:
        raise Problem(f"'{value}': the name of a file in the output folder is needed, without '..'")
    return str(value)


def by_name(kind: Kind, allowed: re.Pattern[str] = _NAME) -> Kind:
    """A mapping of names to values of one kind."""

    def read(value: Any, place: Place) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > MAX_NAMES:
            raise Problem(f"a mapping of at most {MAX_NAMES} names is needed, not {str(value)[:80]!r}")
        for name in value:
            if not allowed.fullmatch(str(name)) or (allowed is WORD and name in RESERVED):
                place.at(str(name)).error(f"'{name}' cannot be a name here")
        return {str(name): schema.read_kind(kind, item, place.at(str(name))) for name, item in value.items()}

    return read


# ----------------------------------------------------------------------------------------------------------- chains


def one_filter(value: Any, place: Place) -> Any:
    """{name: options}, or a name alone."""
    value = {value: None} if isinstance(value, str) else value
    if not isinstance(value, dict) or len(value) != 1:
        raise Problem(f"one filter is needed, such as {{contour: {{field: V}}}}, not {str(value)[:80]!r}")
    ((name, options),) = value.items()
    if name not in FILTERS:
        raise Problem(f"there is no filter '{name}'{nearest(str(name), FILTERS)}")
    return schema.read_kind(record(*FILTERS[name]), options, place.at(name))


filters = listing(one_filter, 0, 100)


def union(fields: Iterable[Fields]) -> Fields:
    """The union of sets of names, in which None is the set of all names."""
    found: frozenset[str] = frozenset()
    for each in fields:
        if each is None:
            return None
        found |= each
    return found


class Named:
    """A chain that pipelines name."""

    def __init__(self, name: str, chain: Chain):
        self.name = name
        self.chain = chain

    def __str__(self) -> str:
        return self.name


def named(value: Any, place: Place) -> Named | None:
    known = place.names["pipelines"]
    if not isinstance(value, str) or value not in known:
        raise Problem(f"there is no pipeline '{value}'{nearest(str(value), known)}")
    return Named(value, known[value]) if known[value] is not None else None


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Filters on a mesh: those of a pipeline, then its own. mesh: None: the only one there is."""

    pipeline: Named | None = option(named, None)
    own_mesh: str | None = option(text, None, key="mesh")
    own: tuple[Any, ...] = option(filters, (), key="filters")

    def __post_init__(self) -> None:
        if self.pipeline is not None and self.own_mesh is not None:
            raise Problem("the mesh stands where the pipeline begins")
        if any(link.makes_table for link in self.filters[:-1]):
            raise Problem("nothing can follow a filter that makes a table")
        for link in self.filters[1:]:
            if link.takes_blocks:
                alone = f", in a chain without 'pipeline: {self.pipeline}'" if self.pipeline is not None else ""
                raise Problem(
                    f"'{link.key}' reads the blocks of the mesh, and stands first in a chain: put it before "
                    f"'{self.filters[0].key}'{alone}"
                )

    @property
    def mesh(self) -> str | None:
        return self.pipeline.chain.mesh if self.pipeline is not None else self.own_mesh

    @property
    def filters(self) -> list[Any]:
        return [*(self.pipeline.chain.filters if self.pipeline else ()), *self.own]

    @property
    def makes_table(self) -> bool:
        return bool(self.filters) and self.filters[-1].makes_table

    @property
    def made(self) -> frozenset[str]:
        """Names of the fields that the filters make."""
        return frozenset().union(*(link.makes for link in self.filters))

    def chain_fields(self, *more: str | None) -> Fields:
        """Names of the fields that the filters read, and of these, but for those that the filters make."""
        used = frozenset(name for name in more if name is not None) - self.made
        return union([used, *(link.fields() for link in self.filters)])

    def needed(self, *more: str | None) -> frozenset[str]:
        """As chain_fields(), of the fields that the filters and `more` name: without them there is no result."""
        read = frozenset().union(*(link.fields() or () for link in self.filters))
        return (read | {name for name in more if name is not None}) - self.made


def gathered(value: dict[str, Any], place: Place, key: str, inner: Callable[[str], bool]) -> dict[str, Any]:
    """The mapping, in which the keys that `inner` holds for have moved, in their order, to a list under `key`."""
    moved = [name for name in value if inner(name)]
    if not moved or key in value:
        return value
    for number_, name in enumerate(moved):
        place.source.moved((*place.path, name), (*place.path, key, number_, name))
    return {**{k: v for k, v in value.items() if k not in moved}, key: [{name: value[name]} for name in moved]}


def inline(value: dict[str, Any], place: Place) -> dict[str, Any]:
    """Filters given as keys become the list `filters`."""
    return gathered(value, place, "filters", FILTERS.__contains__)


def chain(value: Any, place: Place) -> Chain | None:
    """Of a pipeline: a list of filters, or a mapping."""
    if isinstance(value, dict):
        return build(Chain, inline(value, place), place, FILTERS)
    place.source.moved(place.path, (*place.path, "filters"))
    return build(Chain, {"filters": value}, place)


def fields_of(one: Expression, queries: Mapping[str, Expression]) -> frozenset[str]:
    """The fields that an expression and all queries it names read."""
    seen: set[str] = set()
    waiting = [one]
    found: frozenset[str] = frozenset()
    while waiting:
        current = waiting.pop()
        found |= current.fields
        waiting += [queries[name] for name in current.queries - seen if name in queries]
        seen |= current.queries
    return found


# ------------------------------------------------------------------------------------------------ scenes and extracts


@dataclass(frozen=True)
class Points:
    """Points as balls. radius: None: chosen by the size of the mesh."""

    radius: float | None = option(number(above=0), None)


@dataclass(frozen=True, kw_only=True)
class Plot(Chain):
    """One thing to see in a scene. range: of the colours; None: that of the field. volume: a field, seen through."""

    color: str | None = option(text, None)
    range: tuple[Any, ...] | None = option(schema.interval, None)
    opacity: float = option(number(0, 1), 1.0)
    volume: str | None = option(text, None)
    points: Points | None = option(record(Points, short="radius"), None)

    def __post_init__(self) -> None:
        super().__post_init__()
        schema.only_one(self, "volume", "points", needed=False)
        if self.makes_table:
            raise Problem("a table is no picture: write it as an extract of type csv")

    @property
    def fields(self) -> Fields:
        return self.chain_fields(self.color, self.volume)

    @property
    def needs(self) -> frozenset[str]:
        return self.needed(self.color, self.volume)


def plot(value: Any, place: Place) -> Plot | None:
    if not isinstance(value, dict):
        raise Problem(f"a mapping is needed, such as {{pipeline: surface, color: U}}, not {value!r}")
    return build(Plot, inline(value, place), place, FILTERS)


@dataclass(frozen=True)
class Camera:
    """direction: from the centre to the eye. zoom: 1 shows the whole mesh."""

    direction: tuple[Any, ...] = option(schema.direction, (1.0, -1.75, 0.95))
    up: tuple[Any, ...] = option(schema.direction, (0.0, 0.0, 1.0))
    zoom: float = option(number(above=0, maximum=1000), 1.0)


@dataclass(frozen=True, kw_only=True)
class Triggered:
    """What happens at the steps at which `when` holds. queries: all of the pipeline."""

    name: str
    when: Expression = option(expression)
    queries: Mapping[str, Expression] = field(repr=False, compare=False)

    def triggered_fields(self, expressions: Iterable[Expression], other: Fields) -> Fields:
        """The fields of the trigger, of these expressions, of all queries these name, and the others."""
        return union([*(fields_of(e, self.queries) for e in (self.when, *expressions)), other])


@dataclass(frozen=True, kw_only=True)
class Scene(Triggered):
    """A picture. size: in pixels. label: shown in it. file: in the output folder."""

    plots: tuple[Plot, ...] = option(listing(plot, 1, 50))
    camera: Camera = option(record(Camera, short="direction"), Camera())
    size: tuple[int, int] = option(listing(whole(16, 16384), 2, 2), (800, 720))
    label: str = option(label, "")
    file: str = option(file_pattern, "{name}-{cycle:06d}.png")

    @property
    def chains(self) -> tuple[Chain, ...]:
        return self.plots

    @property
    def made(self) -> frozenset[str]:
        return frozenset().union(*(plot.made for plot in self.plots))

    @property
    def fields(self) -> Fields:
        return self.triggered_fields((), union(plot.fields for plot in self.plots))


@dataclass(frozen=True, kw_only=True)
class Extract(Triggered, Chain):
    """A file of each step, or a table's row, or a step of a stream.

    values: of a table with one row for each step. selected (`fields` in YAML): of the results of the chain; None: all.
    """

    type: str = option(choice("csv", "vtk", "vtkhdf", "blueprint", "stream"))
    selected: tuple[Any, ...] | None = option(schema.names, None, key="fields")
    values: dict[str, Expression] | None = option(by_name(expression, re.compile(r"[^,\"\n\r]{1,100}")), None)
    file: str | None = option(file_pattern, None)
    stream: str | None = option(text, None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values is not None and (self.type != "csv" or self.filters or self.mesh or self.selected):
            raise Problem("values: make a csv table of their own, without a mesh, filters or fields")
        if self.values == {}:
            raise Problem("values: at least one is needed, such as {top: max(V)}")
        if (self.stream is not None) != (self.type == "stream"):
            raise Problem("type: stream needs the name of a stream, as in stream: surface; other types have none")
        if self.makes_table and self.type not in ("csv", "stream"):
            raise Problem("a table is written as type: csv or stream")

    @property
    def chains(self) -> tuple[Chain, ...]:
        return () if self.values is not None else (self,)

    @property
    def fields(self) -> Fields:
        if self.values is not None:
            return self.triggered_fields(self.values.values(), frozenset())
        # The columns of a table are no fields, and a table has what its filter read.
        chosen = () if self.makes_table else self.selected
        return self.triggered_fields((), None if chosen is None else self.chain_fields(*chosen))

    @property
    def needs(self) -> frozenset[str]:
        return self.needed(*(() if self.makes_table else self.selected or ()))


def scene(value: Any, place: Place) -> Scene | None:
    """A scene without `plots` is one of one plot, whose keys stand in it."""
    if not isinstance(value, dict):
        raise Problem(f"a mapping is needed, such as {{slice: z, color: U}}, not {value!r}")
    ours = [*schema.options_of(Plot), *FILTERS]
    if "plots" not in value:
        first = {key: item for key, item in value.items() if key in ours}
        for key in first:
            place.source.moved((*place.path, key), (*place.path, "plots", 0, key))
        value = {**{key: item for key, item in value.items() if key not in ours}, "plots": [first]}
    return _triggered(Scene, value, place, ours)


def extract(value: Any, place: Place) -> Extract | None:
    if not isinstance(value, dict):
        raise Problem(f"a mapping is needed, such as {{type: vtk, pipeline: surface}}, not {value!r}")
    default = "{name}.csv" if "values" in value else _FILES.get(str(value.get("type")))
    value = {"file": default, **value} if default else value
    return _triggered(Extract, inline(value, place), place, FILTERS)


def _triggered(cls: type[T], value: dict[str, Any], place: Place, also: Iterable[str]) -> T | None:
    value = {"when": place.names["when"].text, **value}
    return build(cls, value, place, also, name=place.path[-1], queries=place.names["queries"])
