"""The pipeline file: what an analysis does at which steps.

    when: cycle % 10 == 0                 # default trigger of everything below; default: every step
    queries: {top: max(V)}                # expressions by name, for triggers and tables
    pipelines:                            # chains of filters by name
      surface: [{contour: {field: V, value: 0.2}}]
    scenes:                               # pictures: of a pipeline, of filters given inline, or of several `plots`
      surface: {pipeline: surface, color: U, range: [0.33, 0.66], label: "step {cycle}"}
      both: {plots: [{pipeline: surface, opacity: 0.5}, {slice: z, color: V}], when: top > 0.3}
    extracts:                             # files: csv (values or a chain), vtk, vtkhdf, blueprint; or a stream
      table: {type: csv, values: {top: top, mean_U: mean(U)}}
      data: {type: vtk, pipeline: surface, fields: [U, V]}

    steering:                             # values of the simulation's parameters, from the next step on
      F: 0.03 + 0.01 * (top > 0.5)

`mesh: NAME` where a chain starts; default: the only mesh there is. Importing this module does not import VTK.
"""

# ruff: noqa: RUF009  (records are frozen)
from __future__ import annotations

import hashlib
import os
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from ..errors import InvalidArgument, NotFound
from ..names import nearest
from . import schema
from .expressions import RESERVED, Expression, Values, compile_when
from .filters import FILTERS
from .schema import (
    Kind,
    Place,
    Problem,
    Source,
    build,
    choice,
    listing,
    number,
    option,
    plain,
    read_text,
    record,
    text,
    whole,
)

MAX_NAMES = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,99}")
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
            if word is not None and (word not in known or conversion or not _FORMAT.fullmatch(form)):
                words = ", ".join(f"{{{key}}}" for key in known)
                raise Problem(f"'{pattern}': one of {words} is needed in braces, or such as {{cycle:06d}}")
        return pattern.format(**known)
    except ValueError as error:
        raise Problem(str(error)) from None


def label(value: Any, place: Place) -> str:
    if value != "":
        fill(text(value, place), 0, 0.0, "name")
    return value


def file_pattern(value: Any, place: Place) -> str:
    path = PurePosixPath(fill(text(value, place), 0, 0.0, "name"))
    if path.is_absolute() or ".." in path.parts or str(value).endswith("/") or not path.name:
        raise Problem(f"'{value}': the name of a file in the output folder is needed, without '..'")
    return value


def by_name(kind: Kind, allowed: re.Pattern = _NAME) -> Kind:
    """A mapping of names to values of one kind."""

    def read(value: Any, place: Place) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > MAX_NAMES:
            raise Problem(f"a mapping of at most {MAX_NAMES} names is needed, not {str(value)[:80]!r}")
        for name in value:
            if not allowed.fullmatch(str(name)) or (allowed is _WORD and name in RESERVED):
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
    fields = list(fields)
    return None if None in fields else frozenset().union(*fields)


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
    own: tuple = option(filters, (), key="filters")

    def __post_init__(self):
        if self.pipeline is not None and self.own_mesh is not None:
            raise Problem("the mesh stands where the pipeline begins")
        if any(link.makes_table for link in self.filters[:-1]):
            raise Problem("nothing can follow a filter that makes a table")

    @property
    def mesh(self) -> str | None:
        return self.pipeline.chain.mesh if self.pipeline is not None else self.own_mesh

    @property
    def filters(self) -> list[Any]:
        return [*(self.pipeline.chain.filters if self.pipeline else ()), *self.own]

    @property
    def makes_table(self) -> bool:
        return bool(self.filters) and self.filters[-1].makes_table

    def chain_fields(self, *more: str | None) -> Fields:
        """Names of the fields that the filters read, and of these, but for those that the filters make."""
        made = frozenset().union(*(link.makes for link in self.filters))
        used = frozenset(name for name in more if name is not None) - made
        return union([used, *(link.fields() for link in self.filters)])


def gathered(value: dict, place: Place, key: str, inner: Callable[[str], bool]) -> dict:
    """The mapping, in which the keys that `inner` holds for have moved, in their order, to a list under `key`."""
    moved = [name for name in value if inner(name)]
    if not moved or key in value:
        return value
    for number_, name in enumerate(moved):
        place.source.moved((*place.path, name), (*place.path, key, number_, name))
    return {**{k: v for k, v in value.items() if k not in moved}, key: [{name: value[name]} for name in moved]}


def inline(value: dict, place: Place) -> dict:
    """Filters given as keys become the list `filters`."""
    return gathered(value, place, "filters", FILTERS.__contains__)


def chain(value: Any, place: Place) -> Chain | None:
    """Of a pipeline: a list of filters, or a mapping."""
    if isinstance(value, dict):
        return build(Chain, inline(value, place), place, FILTERS)
    place.source.moved(place.path, (*place.path, "filters"))
    return build(Chain, {"filters": value}, place)


# ------------------------------------------------------------------------------------------------ scenes and extracts


@dataclass(frozen=True)
class Points:
    """Points as balls. radius: None: chosen by the size of the mesh."""

    radius: float | None = option(number(above=0), None)


@dataclass(frozen=True, kw_only=True)
class Plot(Chain):
    """One thing to see in a scene. range: of the colours; None: that of the field. volume: a field, seen through."""

    color: str | None = option(text, None)
    range: tuple | None = option(schema.interval, None)
    opacity: float = option(number(0, 1), 1.0)
    volume: str | None = option(text, None)
    points: Points | None = option(record(Points, short="radius"), None)

    def __post_init__(self):
        super().__post_init__()
        schema.only_one(self, "volume", "points", needed=False)
        if self.makes_table:
            raise Problem("a table is no picture: write it as an extract of type csv")

    @property
    def fields(self) -> Fields:
        return self.chain_fields(self.color, self.volume)


def plot(value: Any, place: Place) -> Plot | None:
    if not isinstance(value, dict):
        raise Problem(f"a mapping is needed, such as {{pipeline: surface, color: U}}, not {value!r}")
    return build(Plot, inline(value, place), place, FILTERS)


@dataclass(frozen=True)
class Camera:
    """direction: from the centre to the eye. zoom: 1 shows the whole mesh."""

    direction: tuple = option(schema.direction, (1.0, -1.75, 0.95))
    up: tuple = option(schema.direction, (0.0, 0.0, 1.0))
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
    def fields(self) -> Fields:
        return self.triggered_fields((), union(plot.fields for plot in self.plots))


@dataclass(frozen=True, kw_only=True)
class Extract(Triggered, Chain):
    """A file of each step, or a table's row, or a step of a stream.

    values: of a table with one row for each step. selected (`fields` in YAML): of the results of the chain; None: all.
    """

    type: str = option(choice("csv", "vtk", "vtkhdf", "blueprint", "stream"))
    selected: tuple | None = option(schema.names, None, key="fields")
    values: dict[str, Expression] | None = option(by_name(expression, re.compile(r"[^,\"\n\r]{1,100}")), None)
    file: str | None = option(file_pattern, None)
    stream: str | None = option(text, None)

    def __post_init__(self):
        super().__post_init__()
        if self.values is not None and (self.type != "csv" or self.filters or self.mesh or self.selected):
            raise Problem("values: make a csv table of their own, without a mesh, filters or fields")
        if self.values == {}:
            raise Problem("values: at least one is needed, such as {top: max(V)}")
        if (self.stream is not None) != (self.type == "stream"):
            raise Problem("type: stream needs the name of a stream, as in stream: surface; other types have none")
        if self.makes_table and self.type != "csv":
            raise Problem("a table is written as type: csv")

    @property
    def fields(self) -> Fields:
        if self.values is not None:
            return self.triggered_fields(self.values.values(), frozenset())
        # The columns of a table are no fields, and a table has what its filter read.
        chosen = () if self.makes_table else self.selected
        return self.triggered_fields((), None if chosen is None else self.chain_fields(*chosen))


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


def _triggered(cls: type, value: dict, place: Place, also: Iterable[str]) -> Any:
    value = {"when": place.names["when"].text, **value}
    return build(cls, value, place, also, name=place.path[-1], queries=place.names["queries"])


# ------------------------------------------------------------------------------------------------------- the whole file


def fields_of(one: Expression, queries: Mapping[str, Expression]) -> frozenset[str]:
    """The fields that an expression and all queries it names read."""
    seen: set[str] = set()
    waiting, found = [one], frozenset()
    while waiting:
        current = waiting.pop()
        found |= current.fields
        waiting += [queries[name] for name in current.queries - seen if name in queries]
        seen |= current.queries
    return found


def _ordered(queries: dict[str, Expression], source: Source) -> dict[str, Expression]:
    """Each after those whose value it takes; an error when there is no such order."""
    ordered: dict[str, Expression] = {}
    for _ in queries:
        ready = [n for n in queries if n not in ordered and queries[n].current <= ordered.keys()]
        ordered |= {name: queries[name] for name in ready}
    for name in queries.keys() - ordered.keys():
        source.report(("queries", name), "depends on itself; previous() takes the value of the step before")
    return ordered


_KEYS = ("when", "queries", "pipelines", "scenes", "extracts", "steering")


class Pipeline:
    """A pipeline file, checked: `when`, and by name `queries` (in the order to evaluate them), `pipelines`, `scenes`
    and `extracts`. error: why the file's newest content is not in force, else None."""

    def __init__(self, text: str, name: str = "pipeline"):
        """PipelineError with all that is wrong in the text; the name stands in it."""
        self.path: Path | None = None
        self.error: InvalidArgument | None = None
        self._seen: tuple[Any, ...] = ()
        self._read(text, name)

    @classmethod
    def loads(cls, text: str, name: str = "pipeline") -> Pipeline:
        return cls(text, name)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Pipeline:
        """PipelineError: no such file, or what is wrong in it."""
        text = read_text(path)
        pipeline = cls(text, str(path))
        pipeline.path = Path(path)
        pipeline._seen = (_state_of(pipeline.path), _digest(text))
        return pipeline

    def _read(self, text: str, name: str) -> None:
        source = Source(text, name)
        data = source.data if source.data is not None else {}
        if not isinstance(data, dict):
            raise schema.PipelineError(f"{name}: a mapping is needed, with {', '.join(_KEYS)}")
        for key in data:
            if key not in _KEYS:
                source.report((str(key),), f"unknown key{nearest(str(key), _KEYS)}")
        given = data.get("queries")
        names: dict[str, Any] = {"queries": given if isinstance(given, dict) else {}, "pipelines": {}}
        place = Place(source, (), names)

        def read(key: str, kind: Kind, default: Any) -> Any:
            return schema.read_kind(kind, data.get(key, default), place.at(key))

        queries = read("queries", by_name(expression, _WORD), {}) or {}
        when = read("when", expression, "1")
        names["when"] = when or Expression("1")
        if None not in queries.values():
            names["queries"] = _ordered(queries, source)
        pipelines = names["pipelines"] = read("pipelines", by_name(chain), {}) or {}
        scenes, extracts = read("scenes", by_name(scene), {}), read("extracts", by_name(extract), {})
        self.steering: dict[str, Expression] = read("steering", by_name(expression), {}) or {}
        source.check()
        self.text, self.when, self.queries, self.pipelines = text, when, names["queries"], pipelines
        self.scenes, self.extracts = scenes, extracts

    # ------------------------------------------------------------------------------------------------------ reloading

    def changed_text(self) -> str | None:
        """The file's content if it is another one than at the last call or load; None otherwise, and after an error,
        which `error` then holds. For one rank, which gives it to replace() on all."""
        state = _state_of(self.path) if self.path is not None else None
        if self.path is None or (self._seen and state == self._seen[0]):
            return None
        try:
            text = read_text(self.path)
        except schema.PipelineError as error:
            self.error, self._seen = error, (state, None)
            return None
        digest = _digest(text)
        same, self._seen = digest == self._seen[1], (state, digest)
        return None if same else text

    def replace(self, text: str) -> bool:
        """Puts another text in force; False when it is wrong: `error` says why, and what was in force stays so."""
        try:
            self._read(text, str(self.path or "pipeline"))
            self.error = None
        except schema.PipelineError as error:
            self.error = error
        return self.error is None

    def reload_if_changed(self) -> bool:
        """Whether the file changed and its new content is in force now. Compares the file's time and size, then its
        content."""
        text = self.changed_text()
        return text is not None and self.replace(text)

    # ------------------------------------------------------------------------------------------------- what it needs

    @property
    def triggered(self) -> list[Scene | Extract]:
        return [*self.scenes.values(), *self.extracts.values()]

    def expressions(self) -> list[Expression]:
        """All that a step may evaluate: queries, triggers, values of tables."""
        tables = [e for x in self.extracts.values() for e in (x.values or {}).values()]
        return [*self.queries.values(), *(one.when for one in self.triggered), *tables, *self.steering.values()]

    @property
    def history_length(self) -> int:
        """How many steps back previous() looks; at least 1."""
        return max([1, *(e.depth for e in self.expressions())])

    def evaluate_queries(self, values: Values) -> None:
        """Adds to values.queries those queries whose reductions and queries are there."""
        for name, query in self.queries.items():
            if all(r.text in values.reduced for r in query.reductions) and query.current <= values.queries.keys():
                values.queries[name] = query.evaluate(values)

    def demand(self) -> list[dict[str, Any]]:
        """The rules {"fields": names or None for all, "when": program} for the coprocessor; one for each program.

        Queries and steering are asked for at the steps of the default trigger, queries also with whatever names them.
        """
        never, rules = [0], {}
        wanted = [(compile_when(one.when), one.fields) for one in self.triggered]
        wanted += [
            (compile_when(self.when), fields_of(each, self.queries))
            for each in (*self.queries.values(), *self.steering.values())
        ]
        for program, fields in wanted:
            if program != never:
                rules.setdefault(tuple(program), []).append(fields)
        merged = ((list(program), union(fields)) for program, fields in rules.items())
        return [{"fields": None if f is None else sorted(f), "when": program} for program, f in merged]

    def check_fields(self, known: Sequence[str]) -> None:
        """PipelineError with every field that is not among those known."""
        where = {f"{kind}.{n}": x.fields for kind in ("scenes", "extracts") for n, x in getattr(self, kind).items()}
        where |= {f"queries.{name}": query.fields for name, query in self.queries.items()}
        where |= {f"steering.{name}": each.fields for name, each in self.steering.items()}
        problems = [
            f"{self.path or 'pipeline'}: {place}: there is no field '{name}'{nearest(name, known)}"
            for place, fields in where.items()
            for name in sorted((fields or frozenset()) - set(known))
        ]
        if problems:
            raise schema.PipelineError(*problems)

    def to_yaml(self) -> str:
        """The pipeline in force, with all defaults; loads() reads it again."""
        parts = {key: plain(getattr(self, key)) for key in _KEYS}
        return yaml.safe_dump(parts, sort_keys=False, allow_unicode=True)


def the_mesh(wanted: str | None, known: Sequence[str]) -> str:
    """The mesh that a chain starts from. NotFound: none of that name; InvalidArgument: none named of several."""
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted is None:
        raise InvalidArgument(f"mesh: one of {', '.join(known)} is needed" if known else "there is no mesh")
    if wanted not in known:
        raise NotFound(f"there is no mesh '{wanted}'{nearest(wanted, known)}")
    return wanted


def _state_of(path: Path) -> tuple[int, ...] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return (state.st_mtime_ns, state.st_size, state.st_ino)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
