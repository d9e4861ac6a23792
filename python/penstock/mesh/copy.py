"""Copies of regions from any database into any other: what `penstock mesh copy`, join and spread do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..cohort import thread_cohort
from ..errors import InvalidArgument, NotFound, TimeoutError
from .load_balance import Balance, parts_and_assignment
from .model import Entity, Field, Model
from .region import Key, Region, RegionWriter, State, create


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a region is copied."""

    states: Sequence[int] | None = None  # numbers, from 0; None: all
    times: tuple[float, float] = (-np.inf, np.inf)
    blocks: Sequence[str] = ()  # element blocks, with their nodes; none named: all
    without_blocks: Sequence[str] = ()
    sets: bool = True
    fields: Sequence[str] = ()  # transient and reduction fields; none named: all
    integers: int = 0  # bits of ids, connectivity and the like: 32, 64, or 0 (as they are)
    reals: int = 0  # bits of real numbers

    def has_state(self, number: int, time: float) -> bool:
        return (self.states is None or number in self.states) and self.times[0] <= time <= self.times[1]


@dataclass(slots=True)
class Copied:
    states: int = 0
    fields: int = 0
    bytes: int = 0


class Edit:
    """How the model of a part becomes another one.

    region: the one that is there, at the start of this model. model: to be changed; its entities and fields keep their
    values under any name. `edit[entity, field] = values` gives those of a new one, or other ones: an array, or a
    function of a State of the old region, by its old names, which is called for each.
    """

    def __init__(self, region: Region):
        self.region = region
        self.model = Model.from_text(region.model.to_text())
        # By id() of a new one: itself, so that the number stays its own, and the old one.
        self._entities: dict[int, tuple[Entity, Entity]] = {}
        self._fields: dict[int, tuple[Field, Entity, Field]] = {}
        self._given: dict[tuple[int, int], tuple[Field, Any]] = {}
        for old, new in zip(region.model.entities, self.model.entities, strict=True):
            self._entities[id(new)] = (new, old)
            for its, changed in zip(old.fields, new.fields, strict=True):
                self._fields[id(changed)] = (changed, old, its)

    def __setitem__(self, key: Key, values: Any) -> None:
        entity, field = key
        its = self.model.find(entity)
        which = its.find(field)
        if which is None:
            raise NotFound(f"{its.type} {its.name!r} has no field {field!r}: add it to the model first")
        self._given[id(its), id(which)] = (which, values)

    def finish(self) -> None:
        """Assemblies that were there follow: members have their new names, or are left out."""
        now: dict[tuple[str, str], str | None] = {(old.type, old.name): None for _, old in self._entities.values()}
        for each in self.model.entities:
            if id(each) in self._entities:
                old = self._entities[id(each)][1]
                now[old.type, old.name] = each.name
        for each in self.model.of("assembly"):
            if id(each) in self._entities:
                was = self._entities[id(each)][1]
                names = {name: now.get((was.member_type, name), name) for name in was.members}
                members = [names.get(name, name) for name in each.members]
                each.members = [name for name in members if name is not None]
            each.count = len(each.members)

    def values(self, entity: Entity, its: Field) -> Any:
        if (id(entity), id(its)) in self._given:
            _, given = self._given[id(entity), id(its)]
            return given(self.region.state) if callable(given) else given
        if id(its) not in self._fields:
            raise InvalidArgument(f"{entity.type} {entity.name!r}: field {its.name!r} is new, and no values are given")
        _, old, was = self._fields[id(its)]
        return self.region.read((old.type, old.name), was.name, role=was.role)


def chosen_blocks(model: Model, choice: Choice) -> list[str]:
    """The element blocks that are kept."""
    names = [each.name for each in model.of("element_block")]
    return [name for name in names if name in (choice.blocks or names) and name not in choice.without_blocks]


def choose(model: Model, choice: Choice) -> None:
    """Keeps the fields and sets that are chosen, in the chosen types."""
    blocks = chosen_blocks(model, choice)

    def has(each: Entity) -> bool:
        if each.type == "element_block":
            return each.name in blocks
        return choice.sets or not each.type.endswith("_set") or each.type == "comm_set"

    model.entities = [each for each in model.entities if has(each)]
    for each in model.entities:
        each.fields = [its for its in each.fields if not its.in_state or not choice.fields or its.name in choice.fields]
        for its in each.fields:
            _choose_type(its, choice)


def _choose_type(its: Field, choice: Choice) -> None:
    if its.dtype in ("int32", "int64") and not its.in_state and its.role != "communication" and choice.integers:
        its.dtype = f"int{choice.integers}"
    if its.dtype in ("float32", "float64") and choice.reals:
        its.dtype = f"float{choice.reals}"


def copy(
    source: Region,
    name: Any,
    *,
    choice: Choice | None = None,
    parts: int | Balance = 1,
    progress: Callable[[int, float], None] = lambda _state, _time: None,
    context: Any = None,
    **options: Any,
) -> Copied:
    """Copies a region, from its next state on, into another database. options: of create().

    parts: how many it is written as, each with as many elements as the others (Nemesis files, or ranks of a stream); or
    a Balance, which says the part of each element.
    progress: called after each state. Raises what open() and create() do; what is there by then stays incomplete.
    """
    choice = choice or Choice()
    known = {its.name for entity in source.model.entities for its in entity.fields if its.in_state}
    for name_of_field in choice.fields:
        if name_of_field not in known:
            raise NotFound(
                f"no entity has a field {name_of_field!r} of results; there are: {', '.join(sorted(known))[:500]}"
            )
    return transfer(
        _pieces(source, choice, parts),
        lambda edit: choose(edit.model, choice),
        lambda model, cohort: create(name, model, comm=cohort, context=context, **options),
        wanted=choice.has_state,
        progress=progress,
    )


def transfer(
    pieces: list[Region],
    change: Callable[[Edit], None],
    create: Callable[[Model, Any], RegionWriter],
    *,
    wanted: Callable[[int, float], bool] = lambda _state, _time: True,
    progress: Callable[[int, float], None] = lambda _state, _time: None,
) -> Copied:
    """Writes the parts of a region, from its next state on, as changed. pieces: they share one source.

    create: makes the writer of a part, of a model and a cohort (None where there is one part).
    """
    copies = _Copies(pieces, change, create)
    try:
        copies.define()
        while (state := pieces[0].next_state()) is not None:
            if not wanted(state.number, state.time):
                continue
            if state.model_number != copies.model_number:
                copies.define(state.model_number)
            copies.write(state)
            progress(state.number, state.time)
        _side_by_side([writer.close for writer in copies.writers])
    except BaseException:
        for writer in copies.writers:
            if writer is not None:
                writer.abandon()
        raise
    return copies.done


def _pieces(source: Region, choice: Choice, how: int | Balance) -> list[Region]:
    parts, assignment, nodes = parts_and_assignment(how)
    core = source._core
    names = [each.name for each in source.model.of("element_block")]
    for name in [*choice.blocks, *choice.without_blocks]:
        if name not in names:
            raise NotFound(f"there is no element block {name!r}; there are: {', '.join(names)[:500]}")
    if names and not chosen_blocks(source.model, choice):
        raise InvalidArgument("no element block is left")
    some = bool(choice.blocks or choice.without_blocks)
    if some and assignment is not None:
        raise InvalidArgument("a balance is of all elements: choose blocks in a copy of their own")
    if not some and parts == 1 and assignment is None:
        return [source]
    if source.parts > 1:
        raise InvalidArgument("a part, or a share, is copied as it is; copy the joined region for some blocks or parts")
    if some:
        core = core.select(choice.blocks, choice.without_blocks)
    if parts > 1 or assignment is not None:
        core = core.spread(parts, assignment, nodes)
    return [Region(core, part, source._timeout) for part in range(parts)]


class _Copies:
    """A writer for each part. Defining is collective, and what parts share comes first, so each has a thread here."""

    def __init__(
        self, pieces: list[Region], change: Callable[[Edit], None], create: Callable[[Model, Any], RegionWriter]
    ):
        self._pieces, self._change, self._create = pieces, change, create
        self._cohort = thread_cohort(len(pieces)) if len(pieces) > 1 else [None]
        self._edits: list[Edit] = []
        self.writers: list[Any] = [None] * len(pieces)
        self.done = Copied()
        self.model_number = 0

    def define(self, model_number: int = 0) -> None:
        """The present model, changed, with its values."""
        self.model_number = model_number
        for piece in self._pieces[1:]:
            piece.take_model(model_number)
        self._edits = [Edit(piece) for piece in self._pieces]
        for edit in self._edits:
            self._change(edit)
            edit.finish()
        if len(self._edits) == 1:  # which shares nothing with others
            model = self._edits[0].model
            model.entities = [each for each in model.entities if each.type != "comm_set"]
        _side_by_side([partial(self._define, rank, edit.model) for rank, edit in enumerate(self._edits)])
        for edit, writer in zip(self._edits, self.writers, strict=True):
            _copy_fields(edit, writer, self.done, lambda its: not its.in_state and its.role != "communication")

    def write(self, state: State) -> None:
        for piece in self._pieces[1:]:
            piece.state = State(piece, state.number, state.time)
        writing = [writer.state(state.time) for writer in self.writers]
        _side_by_side([each.begin for each in writing])  # collective where it begins a file, or parts share one
        for edit, writer in zip(self._edits, self.writers, strict=True):
            _copy_fields(edit, writer, self.done, lambda its: its.in_state)
        _side_by_side([each.end for each in writing])
        self.done.states += 1

    def _define(self, rank: int, model: Model) -> None:
        try:
            if self.writers[rank] is None:
                self.writers[rank] = self._create(model, self._cohort[rank])
            else:
                self.writers[rank].define(model)
            _copy_fields(self._edits[rank], self.writers[rank], Copied(), lambda its: its.role == "communication")
        except BaseException:
            cohort = self._cohort[rank]
            if cohort is not None:
                cohort.give_up()
            raise


def _side_by_side(calls: Sequence[Callable[[], Any]]) -> None:
    """Each in a thread of its own. Raises the first error."""
    if len(calls) == 1:
        calls[0]()
        return
    errors: list[BaseException] = []

    def guarded(call: Callable[[], Any]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:  # the others are told that somebody gave up
        raise next((each for each in errors if not isinstance(each, TimeoutError)), errors[0])


def _copy_fields(edit: Edit, writer: RegionWriter, done: Copied, wanted: Callable[[Field], bool]) -> None:
    for entity in writer.model.entities:
        for its in entity.fields:
            if wanted(its) and entity.rows(its):
                values = np.asarray(edit.values(entity, its))
                writer.write((entity.type, entity.name), its.name, _narrowed(values, entity, its), role=its.role)
                done.fields += 1
                done.bytes += values.nbytes


def _narrowed(values: np.ndarray, entity: Entity, its: Field) -> np.ndarray:
    """Real numbers as chosen; whole numbers are checked where they are written."""
    if values.dtype.kind == "i" and its.dtype == "int32" and values.dtype.itemsize > 4:
        narrow = values.astype(np.int32)
        if not np.array_equal(narrow, values):
            raise InvalidArgument(f"{entity.name}, {its.name}: a number does not fit into 32 bits")
        return narrow
    return values
