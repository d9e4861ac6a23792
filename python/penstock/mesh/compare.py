"""Comparison of two regions, whatever databases and decompositions they come from.

Entities are matched by type and name, nodes and elements by their ids where both regions have ids, else by their
order; members of sets, sides and connectivity are compared through that. Whole numbers of 32 and 64 bits are the same.
Every difference counts: fields or entities that one region lacks, times, the number of states, NaN against a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidArgument
from .model import Entity, Field, Model, Structured
from .region import Region

LISTED = 20  # differences that a report holds, unless told otherwise


@dataclass(frozen=True, slots=True)
class Tolerance:
    """When two real numbers are the same. Any one that is given suffices.

    absolute: |a - b| at most; relative: of the greater of |a| and |b|; combined: relative where that is above 1, else
    absolute (of one number); ulps: floating-point numbers between them. floor: numbers below it in size count as 0.
    ignore: never looked at.
    """

    absolute: float | None = None
    relative: float | None = None
    combined: float | None = None
    ulps: int | None = None
    floor: float = 0.0
    ignore: bool = False

    def same(self, a: np.ndarray | np.generic, b: np.ndarray | np.generic) -> np.ndarray:
        """Element by element. NaN is the same as NaN only, infinity as the same infinity only."""
        a, b = np.asarray(a), np.asarray(b)
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(a) & np.isfinite(b)
        with np.errstate(invalid="ignore", over="ignore"):
            size = np.maximum(np.abs(a), np.abs(b))
            apart = np.abs(a - b)
            near = finite & (size < self.floor)
            if self.absolute is not None:
                near |= finite & (apart <= self.absolute)
            if self.relative is not None:
                near |= finite & (apart <= self.relative * size)
            if self.combined is not None:
                near |= finite & (apart <= self.combined * np.maximum(size, 1.0))
            if self.ulps is not None:
                near |= finite & (_ulps_apart(a, b) <= self.ulps)
        either: np.ndarray = equal | near
        return either

    @staticmethod
    def of(options: Mapping[str, Any]) -> Tolerance:
        """From a mapping, as a file of tolerances has it. Raises InvalidArgument."""
        known = {each: _number(options[each]) for each in Tolerance.__slots__ if each in options}
        for name in options:
            if name not in known:
                raise InvalidArgument(f"unknown tolerance {name!r}; there are: {', '.join(Tolerance.__slots__)}")
        for name, value in known.items():
            if name != "ignore" and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise InvalidArgument(f"{name}: a tolerance is a number of at least 0, not {value!r}")
        return Tolerance(**known)


def _number(value: Any) -> Any:
    """YAML takes 1e-9, without a point, for text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _ulps_apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many steps from one floating-point number to the next; in the coarser of the two types."""
    kind = (
        min(a.dtype, b.dtype, key=lambda each: each.itemsize) if a.dtype.kind == b.dtype.kind == "f" else np.dtype("f8")
    )
    bits = np.dtype(f"i{kind.itemsize}")
    lowest = np.iinfo(bits).min

    def ordered(values: np.ndarray) -> np.ndarray:
        raw = np.ascontiguousarray(values, kind).view(bits)
        return np.where(raw < 0, lowest - raw, raw)

    return np.abs(ordered(a).astype(np.float64) - ordered(b).astype(np.float64))


@dataclass(slots=True)
class Difference:
    """what: "time", "states", "model", "entity", "field", "values"."""

    what: str
    where: str
    text: str
    state: int | None = None

    def __str__(self) -> str:
        at = "" if self.state is None else f"state {self.state}: "
        return f"{at}{self.where}: {self.text}" if self.where else f"{at}{self.text}"


@dataclass(slots=True)
class Report:
    """differences: the first of them; total counts all. largest: (field, state, row, a, b) of the farthest values."""

    total: int = 0
    differences: list[Difference] = field(default_factory=list)
    states: int = 0
    fields: int = 0
    values: int = 0
    limit: int = LISTED

    @property
    def same(self) -> bool:
        return self.total == 0

    def add(self, what: str, where: str, text: str, state: int | None = None) -> None:
        self.total += 1
        if len(self.differences) < self.limit:
            self.differences.append(Difference(what, where, text, state))


@dataclass(frozen=True, slots=True)
class Options:
    tolerance: Tolerance = Tolerance()
    coordinates: Tolerance | None = None  # else as tolerance
    time: Tolerance = Tolerance()
    by_field: Mapping[str, Tolerance] = field(default_factory=dict)
    ids: bool = True  # match by ids; else by order
    records: bool = False  # QA and information records, title and properties too
    limit: int = LISTED


def compare(a: Region, b: Region, options: Options | None = None) -> Report:
    """Compares two regions, from their next states on. Raises what reading does."""
    options = options or Options()
    report = Report(limit=options.limit)
    match = _Match(a, b, options, report)
    match.model()
    models = a.model_number, b.model_number
    state = 0
    while True:
        ours, theirs = a.next_state(), b.next_state()
        if ours is None or theirs is None:
            if (ours is None) != (theirs is None):
                report.add("states", "", f"the {'second' if ours is None else 'first'} has more than {state} states")
            return report
        if not options.time.same(np.float64(ours.time), np.float64(theirs.time)):
            report.add("time", "", f"the time is {ours.time!r} and {theirs.time!r}", state)
        changed = ours.model_number != models[0], theirs.model_number != models[1]
        if changed[0] != changed[1]:
            report.add("model", "", f"the topology changes in the {'first' if changed[0] else 'second'} only", state)
        if any(changed):
            match = _Match(a, b, options, report)
            match.model()
            models = ours.model_number, theirs.model_number
        match.fields(lambda its: its.in_state, state)
        report.states += 1
        state += 1


class _Match:
    """Which entities, rows and fields of two regions belong together."""

    def __init__(self, a: Region, b: Region, options: Options, report: Report):
        self._a, self._b = a, b
        self._options = options
        self._report = report
        self._pairs: list[tuple[Entity, Entity]] = []
        self._rows: dict[tuple[str, str], np.ndarray | None] = {}  # of b, for each row of a
        self._numbers: dict[str, np.ndarray | None] = {}  # by type: of b's numbers, a's number

    def model(self) -> None:
        """Everything that no state changes."""
        a, b = self._a.model, self._b.model
        if a.dimensions != b.dimensions:
            self._report.add("model", "", f"the meshes have {a.dimensions} and {b.dimensions} dimensions")
        if self._options.records:
            self._records(a, b)
        self._entities(a, b)
        for kind in ("node_block", "edge_block", "face_block", "element_block"):
            self._match_numbers(kind)
        for one, two in self._pairs:
            if one.type in _SETS and one.count == two.count:
                self._rows[one.type, one.name] = self._match_members(one, two)
        self.fields(lambda its: not its.in_state, None)

    def _records(self, a: Model, b: Model) -> None:
        for name in ("title", "qa", "information", "properties"):
            if getattr(a, name) != getattr(b, name):
                self._report.add("model", name, f"{getattr(a, name)!r} and {getattr(b, name)!r}"[:300])

    def _entities(self, a: Model, b: Model) -> None:
        skipped = ("comm_set",)
        ours = {(each.type, each.name): each for each in a.entities if each.type not in skipped}
        theirs = {(each.type, each.name): each for each in b.entities if each.type not in skipped}
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            where = f"{key[0]} {key[1]}"
            if key not in theirs or key not in ours:
                self._report.add("entity", where, f"only the {'first' if key in ours else 'second'} has it")
                continue
            one, two = ours[key], theirs[key]
            for name in ("id", "count", "members"):
                if getattr(one, name) != getattr(two, name):
                    self._report.add("entity", where, f"{name} is {getattr(one, name)} and {getattr(two, name)}")
            if one.structured != two.structured:
                self._report.add("entity", where, _parts_apart(one.structured, two.structured)[:300])
            if one.count and two.count and one.topology.lower() != two.topology.lower():
                self._report.add("entity", where, f"topology is {one.topology!r} and {two.topology!r}")
            if self._options.records and one.properties != two.properties:
                self._report.add("entity", where, f"properties are {one.properties} and {two.properties}"[:300])
            self._pairs.append((one, two))

    def _match_numbers(self, kind: str) -> None:
        """Numbers run through the blocks of a kind; each block is matched by ids by itself."""
        pairs = [(one, two) for one, two in self._pairs if one.type == kind]
        size = self._b.model.count(kind)
        start_a, start_b = _starts(self._a.model, kind), _starts(self._b.model, kind)
        to = np.full(size, -1, np.int64)
        plain = True
        for one, two in pairs:
            if one.count != two.count:
                plain = False
                continue
            rows = self._match_ids(one, two)
            self._rows[kind, one.name] = rows
            order = np.arange(one.count) if rows is None else rows
            to[start_b[two.name] + order] = start_a[one.name] + np.arange(one.count)
            plain &= rows is None and start_a[one.name] == start_b[two.name]
        self._numbers[kind] = None if plain else to

    def _match_ids(self, one: Entity, two: Entity) -> np.ndarray | None:
        """Row of two for each row of one; None: the same rows."""
        if not self._options.ids or one.find("ids", "mesh") is None or two.find("ids", "mesh") is None:
            return None
        ours, theirs = self._a.read((one.type, one.name), "ids"), self._b.read((two.type, two.name), "ids")
        if np.array_equal(ours, theirs):
            return None
        order_a, order_b = np.argsort(ours, kind="stable"), np.argsort(theirs, kind="stable")
        missing = np.flatnonzero(ours[order_a] != theirs[order_b])
        if missing.size:
            self._report.add(
                "values",
                f"{one.type} {one.name}, ids",
                f"the ids are not the same ones ({missing.size} of {ours.size})",
            )
            return None
        rows = np.empty(ours.size, np.int64)
        rows[order_a] = order_b
        return rows

    def _match_members(self, one: Entity, two: Entity) -> np.ndarray | None:
        """By what the members are, in whatever order."""
        name = "element_side" if one.type == "side_set" else "members"
        if one.find(name, "mesh") is None or two.find(name, "mesh") is None or not one.count:
            return None
        ours = self._keys(self._a.read((one.type, one.name), name))
        theirs = self._keys(self._renumbered(two, two.find(name, "mesh"), self._b.read((two.type, two.name), name)))
        if np.array_equal(ours, theirs):
            return None
        order_a, order_b = np.argsort(ours, kind="stable"), np.argsort(theirs, kind="stable")
        if not np.array_equal(ours[order_a], theirs[order_b]):
            return None  # reported as values
        rows = np.empty(ours.size, np.int64)
        rows[order_a] = order_b
        return rows

    @staticmethod
    def _keys(members: np.ndarray) -> np.ndarray:
        return members.astype(np.int64) if members.ndim == 1 else members[:, 0].astype(np.int64) * 64 + members[:, 1]

    def _renumbered(self, entity: Entity, its: Field | None, values: np.ndarray) -> np.ndarray:
        """Numbers of b as a's."""
        if its is None:
            return values
        kind, all_components = _core.mesh_reference(entity.type, entity.topology, its.role, its.name)
        to = self._numbers.get(kind)
        if to is None:
            return values
        values = values.copy()
        numbers = values if all_components else values[:, 0]
        known = (numbers >= 0) & (numbers < to.size)
        numbers[...] = np.where(known, to[np.where(known, numbers, 0)], -1)
        return values

    def fields(self, wanted: Callable[[Field], bool], state: int | None) -> None:
        for one, two in self._pairs:
            if one.count == two.count == 0:
                continue  # Exodus keeps no fields of what has no members
            ours = {(its.role, its.name): its for its in one.fields if wanted(its)}
            theirs = {(its.role, its.name): its for its in two.fields if wanted(its)}
            for key in [*ours, *(key for key in theirs if key not in ours)]:
                where = f"{one.type} {one.name}, {key[1]}"
                tolerance = self._tolerance(key[1])
                if tolerance.ignore:
                    continue
                if key not in ours or key not in theirs:
                    if not self._is_implied(one, key) and state in (None, 0):
                        self._report.add("field", where, f"only the {'first' if key in ours else 'second'} has it")
                elif one.count == two.count:
                    self._field(one, two, ours[key], theirs[key], where, tolerance, state)

    def _is_implied(self, entity: Entity, key: tuple[str, str]) -> bool:
        """Ids and an order of elements that are 1, 2, 3, ... say nothing that their absence does not."""
        if key not in (("mesh", "ids"), ("map", "elem_map")):
            return False
        role, name = key
        region = self._a if self._a.model.find((entity.type, entity.name)).find(name, role) else self._b
        numbers = region.read((entity.type, entity.name), name, role=role)
        first = _starts(region.model, entity.type)[entity.name] + 1
        return bool(np.array_equal(numbers, np.arange(first, first + numbers.size)))

    def _tolerance(self, name: str) -> Tolerance:
        default = self._options.tolerance
        if name == "coordinates" and self._options.coordinates is not None:
            default = self._options.coordinates
        return self._options.by_field.get(name, default)

    def _field(
        self, one: Entity, two: Entity, ours: Field, theirs: Field, where: str, tolerance: Tolerance, state: int | None
    ) -> None:
        report = self._report
        if ours.width != theirs.width or one.rows(ours) != two.rows(theirs):
            report.add("field", where, f"the shape is {one.shape(ours)} and {two.shape(theirs)}", state)
            return
        a = self._a.read((one.type, one.name), ours.name, role=ours.role)
        b = self._renumbered(two, theirs, self._b.read((two.type, two.name), theirs.name, role=theirs.role))
        rows = self._rows.get((one.type, one.name))
        if rows is not None and ours.role != "reduction":
            if len(rows) != len(b):
                report.add(
                    "field", where, "rows are in another order, which entries of different lengths cannot follow", state
                )
                return
            b = b[rows]
        report.fields += 1
        report.values += a.size
        exact = a.dtype.kind not in "fc" and b.dtype.kind not in "fc"
        same = a == b if exact else tolerance.same(a, b)
        if not same.all():
            report.add("values", where, _describe(a, b, same), state)


def _parts_apart(one: Structured | None, two: Structured | None) -> str:
    """What two structured blocks differ in."""
    apart = [each for each in Structured.__slots__ if getattr(one, each, None) != getattr(two, each, None)]
    return "; ".join(f"{each} is {getattr(one, each, None)} and {getattr(two, each, None)}" for each in apart)


_SETS = ("node_set", "edge_set", "face_set", "element_set", "side_set")


def _starts(model: Model, kind: str) -> dict[str, int]:
    starts, at = {}, 0
    for each in model.of(kind):
        starts[each.name] = at
        at += each.count
    return starts


def _describe(a: np.ndarray, b: np.ndarray, same: np.ndarray) -> str:
    differ = np.argwhere(~same)
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.where(same, 0, a.astype(np.float64) - b.astype(np.float64)))
    at = tuple(
        int(i)
        for i in (np.unravel_index(np.nanargmax(apart), apart.shape) if np.nanmax(apart, initial=0) > 0 else differ[0])
    )
    text = f"{len(differ)} of {a.size} values differ"
    place = ", ".join(str(i) for i in at)
    return f"{text}; at [{place}]: {a[at]!s} and {b[at]!s} (apart {abs(float(a[at]) - float(b[at])):.3g})"
