"""Copies of regions from any database into any other: what `penstock mesh copy`, join and spread do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..cohort import thread_cohort
from ..errors import InvalidArgument, NotFound, TimeoutError
from .model import Entity, Field, Model
from .region import Region, RegionWriter, create


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


def chosen_blocks(model: Model, choice: Choice) -> list[str]:
    """The element blocks that are kept."""
    names = [each.name for each in model.of("element_block")]
    return [name for name in names if name in (choice.blocks or names) and name not in choice.without_blocks]


def chosen_model(model: Model, choice: Choice) -> Model:
    """The model with the fields and sets that are chosen, in the chosen types."""
    kept = []
    gone = set()
    blocks = chosen_blocks(model, choice)
    for each in model.entities:
        dropped_block = each.type == "element_block" and each.name not in blocks
        if dropped_block or (each.type.endswith("_set") and each.type != "comm_set" and not choice.sets):
            gone.add((each.type, each.name))
            continue
        fields = [
            _typed(its, choice)
            for its in each.fields
            if not its.in_state or not choice.fields or its.name in choice.fields
        ]
        kept.append(replace(each, fields=fields))
    for each in kept:
        if each.type == "assembly":
            each.members = [name for name in each.members if (each.member_type, name) not in gone]
            each.count = len(each.members)
    return replace(model, entities=kept)


def _typed(its: Field, choice: Choice) -> Field:
    if its.dtype in ("int32", "int64") and not its.in_state and its.role != "communication" and choice.integers:
        return replace(its, dtype=f"int{choice.integers}")
    if its.dtype in ("float32", "float64") and choice.reals:
        return replace(its, dtype=f"float{choice.reals}")
    return its


def copy(
    source: Region,
    name: Any,
    *,
    choice: Choice | None = None,
    parts: int = 1,
    progress: Callable[[int, float], None] = lambda _state, _time: None,
    context: Any = None,
    **options: Any,
) -> Copied:
    """Copies a region, from its next state on, into another database. options: of create().

    parts: how many it is written as, each with as many elements as the others (Nemesis files, or ranks of a stream).
    progress: called after each state. Raises what open() and create() do; what is there by then stays incomplete.
    """
    choice = choice or Choice()
    known = {its.name for entity in source.model.entities for its in entity.fields if its.in_state}
    for name_of_field in choice.fields:
        if name_of_field not in known:
            raise NotFound(
                f"no entity has a field {name_of_field!r} of results; there are: {', '.join(sorted(known))[:500]}"
            )
    pieces = _pieces(source, choice, parts)
    copies = _Copies(pieces, choice, lambda model, cohort: create(name, model, comm=cohort, context=context, **options))
    done = Copied()
    try:
        copies.define()
        while (state := pieces[0].next_state()) is not None:
            if not choice.has_state(state.number, state.time):
                continue
            if state.model_number != copies.model_number:
                copies.define(state.model_number)
            copies.copy_state(state.time, done)
            done.states += 1
            progress(state.number, state.time)
        _side_by_side([writer.close for writer in copies.writers])
    except BaseException:
        for writer in copies.writers:
            if writer is not None:
                writer.abandon()
        raise
    done.fields += copies.done.fields
    done.bytes += copies.done.bytes
    return done


def _pieces(source: Region, choice: Choice, parts: int) -> list[Region]:
    core = source._core
    names = [each.name for each in source.model.of("element_block")]
    for name in [*choice.blocks, *choice.without_blocks]:
        if name not in names:
            raise NotFound(f"there is no element block {name!r}; there are: {', '.join(names)[:500]}")
    if names and not chosen_blocks(source.model, choice):
        raise InvalidArgument("no element block is left")
    some = bool(choice.blocks or choice.without_blocks)
    if not some and parts == 1:
        return [source]
    if source.parts > 1:
        raise InvalidArgument("a part, or a share, is copied as it is; copy the joined region for some blocks or parts")
    if some:
        core = core.select(choice.blocks, choice.without_blocks)
    if parts > 1:
        core = core.spread(parts)
    return [Region(core, part, source._timeout) for part in range(parts)]


class _Copies:
    """A writer for each part. Defining is collective, and what parts share comes first, so each has a thread here."""

    def __init__(self, pieces: list[Region], choice: Choice, create: Callable[[Model, Any], RegionWriter]):
        self._pieces, self._choice, self._create = pieces, choice, create
        self._cohort = thread_cohort(len(pieces)) if len(pieces) > 1 else [None]
        self.writers: list[Any] = [None] * len(pieces)
        self.done = Copied()  # of the models
        self.model_number = 0

    def define(self, model_number: int = 0) -> None:
        """The chosen part of the present model, with its values."""
        self.model_number = model_number
        for piece in self._pieces[1:]:
            piece.take_model(model_number)
        models = [chosen_model(piece.model, self._choice) for piece in self._pieces]
        if len(models) == 1:  # which shares nothing with others
            models[0].entities = [each for each in models[0].entities if each.type != "comm_set"]
        _side_by_side([lambda rank=rank: self._define(rank, models[rank]) for rank in range(len(models))])
        for piece, writer in zip(self._pieces, self.writers, strict=True):
            _copy_fields(piece, writer, self.done, lambda its: not its.in_state and its.role != "communication")

    def copy_state(self, time: float, done: Copied) -> None:
        """The pieces' present state. Where they become one file, beginning and ending are collective."""
        states = [writer.state(time) for writer in self.writers]
        _side_by_side([each.__enter__ for each in states])
        for piece, writer in zip(self._pieces, self.writers, strict=True):
            _copy_fields(piece, writer, done, lambda its: its.in_state)
        _side_by_side([lambda each=each: each.__exit__(None) for each in states])

    def _define(self, rank: int, model: Model) -> None:
        try:
            if self.writers[rank] is None:
                self.writers[rank] = self._create(model, self._cohort[rank])
            else:
                self.writers[rank].define(model)
            _copy_fields(self._pieces[rank], self.writers[rank], Copied(), lambda its: its.role == "communication")
        except BaseException:
            if len(self.writers) > 1:
                self._cohort[rank].give_up()
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


def _copy_fields(source: Region, writer: RegionWriter, done: Copied, wanted: Callable[[Field], bool]) -> None:
    for entity in writer.model.entities:
        for its in entity.fields:
            if wanted(its) and entity.rows(its):
                key = (entity.type, entity.name)
                values = source.read(key, its.name, role=its.role)
                writer.write(key, its.name, _narrowed(values, entity, its), role=its.role)
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
