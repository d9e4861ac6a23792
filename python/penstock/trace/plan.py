"""When to do again what traces recorded, and what had to be there before. Pure functions of a timeline.

Each client thread of the recording is a lane, which does its operations in their order. Beyond that, what must be
kept for outcomes to be the same is kept: an operation that began after a change of one of its keys had ended waits
for that change, and a change waits for the reads of its keys that had ended. A read that found an object while the
put of it was still under way waits for the put. Patterns, rows and computations count as reads (drop_pattern:
changes) of every key of their namespace. Operations that overlapped, and could have come out either way, may do so
again. Calls on a stream keep the order of their Writer or Reader; readers wait by themselves for steps, but a step
ends after the looks for it that were in vain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .file import Record
from .timeline import Item, Timeline

CHANGES = ("put", "drop", "drop_pattern")
WIDE = ("list", "drop_pattern", "wait_row", "subscribe", "compute")  # touch whatever their namespace holds
LOOKS, SHOWS = ("read_open", "read_begin"), ("write_open", "write_end", "write_close")


@dataclass(slots=True)
class Step:
    item: Item
    lane: int
    detached: bool  # the lane goes on before it has ended
    at_ns: int  # not before, since the start of the replay; at speed 1
    after: set[int] = field(default_factory=set)  # steps that must have ended: of other lanes, or detached. No cycles.


@dataclass(slots=True)
class Plan:
    steps: list[Step]  # by the timeline's items
    lanes: int


@dataclass(slots=True)
class _Span:
    step: int
    start: int
    end: int


class _Precedence:
    """Operations on one key, or of one namespace: barriers are ordered against everything, others against barriers.

    Operations come in the order of their starts, so what the newest ended barrier has waited for need not be
    remembered."""

    def __init__(self) -> None:
        self.barriers: list[_Span] = []
        self.others: list[_Span] = []
        self.cut = -1  # what this barrier covers has been left out

    def find(self, now: _Span, barrier: bool, after: set[int]) -> int | None:
        """Adds what an operation that begins now has to wait for. Returns the newest barrier that had ended."""
        ended = [one for one in self.barriers if one.end <= now.start]
        if not ended:
            newest = None
        else:
            newest = max(ended, key=lambda one: one.start)
            if newest.step != self.cut:
                self.cut = newest.step

                def remains(one: _Span) -> bool:
                    return one.end > newest.start or one.step >= newest.step

                self.barriers = [one for one in self.barriers if remains(one)]
                self.others = [one for one in self.others if remains(one)]
            after.update(one.step for one in self.barriers if one.end <= now.start)
        if barrier:
            after.update(one.step for one in self.others if one.end <= now.start)
        return newest.step if newest else None

    def add(self, now: _Span, barrier: bool) -> None:
        (self.barriers if barrier else self.others).append(now)


@dataclass(slots=True)
class _Key:
    order: _Precedence = field(default_factory=_Precedence)
    puts: list[_Span] = field(default_factory=list)  # that succeeded


@dataclass(slots=True)
class _Lane:
    number: int
    last: _Span | None = None
    detached: list[_Span] = field(default_factory=list)  # under way


class _Planner:
    def __init__(self, timeline: Timeline):
        self.timeline = timeline
        self.steps: list[Step] = []
        self.lanes: dict[Any, _Lane] = {}
        self.orders: dict[Any, _Precedence] = {}  # of namespaces, of Writers and Readers, of streams
        self.keys: dict[Any, _Key] = {}
        self.early_reads: list[tuple[_Span, _Key]] = []

    def plan(self) -> Plan:
        for number, item in enumerate(self.timeline.items):
            self.make(number, item)
        for read, key in self.early_reads:
            # Whoever begins after a detached read in its lane might have to end before the put: no order would do.
            if self.steps[read.step].detached:
                continue
            # The first put that was under way, if any was: then it must have been early enough.
            for put in key.puts:
                if put.start >= read.end:
                    break
                if put.end > read.start:
                    self.steps[read.step].after.add(put.step)
                    break
        for number, step in enumerate(self.steps):
            step.after.discard(number)
        return Plan(self.steps, len(self.lanes))

    def make(self, number: int, item: Item) -> None:
        record = item.record
        span = _Span(number, item.start_ns, item.start_ns + record.duration_ns)
        self.steps.append(self.into_lane(item, record, span))
        (self.order_stream if record.of_stream else self.order_keys)(item, record, span, self.steps[number].after)

    def into_lane(self, item: Item, record: Record, span: _Span) -> Step:
        lane = self.lanes.setdefault((item.process, record.thread), _Lane(len(self.lanes)))
        step = Step(item, lane.number, record.asynchronous, span.start)
        # A call that the next one did not wait for was asynchronous, whatever it says.
        if lane.last and lane.last.end > span.start and not self.steps[lane.last.step].detached:
            self.steps[lane.last.step].detached = True
            lane.detached.append(lane.last)
        step.after.update(one.step for one in lane.detached if one.end <= span.start)
        lane.detached = [one for one in lane.detached if one.end > span.start]
        if step.detached:
            lane.detached.append(span)
        lane.last = span
        return step

    def ordered(self, name: Any, span: _Span, barrier: bool, after: set[int]) -> None:
        order = self.orders.setdefault(name, _Precedence())
        order.find(span, barrier, after)
        order.add(span, barrier)

    def order_stream(self, item: Item, record: Record, span: _Span, after: set[int]) -> None:
        """One call after the other of each Writer and Reader, whatever threads made them. And what readers find: nobody
        opens a stream, ends a step or closes before the looks that found nothing yet have ended."""
        self.ordered(("client", *item.client), span, True, after)
        if record.verb in LOOKS + SHOWS and record.keys:
            self.ordered(("stream", record.keys[0][0]), span, record.verb in SHOWS, after)

    def order_keys(self, item: Item, record: Record, span: _Span, after: set[int]) -> None:
        if record.verb == "status":
            return
        wide, change = record.verb in WIDE, record.verb in CHANGES
        self.ordered(("namespace", record.namespace), span, wide, after)
        if wide:
            return
        for key in record.keys:
            state = self.keys.setdefault((record.namespace, key), _Key())
            before = state.order.find(span, change, after)
            state.order.add(span, change)
            if record.outcome != "ok":
                continue
            if record.verb == "put":
                state.puts.append(span)
            there = before is not None and self.timeline.items[before].record.verb == "put"
            if record.verb in ("get", "info") and not there:
                self.early_reads.append((span, state))


def plan_replay(timeline: Timeline) -> Plan:
    return _Planner(timeline).plan()


@dataclass(slots=True)
class ObjectBefore:
    """An object that was there before the recording: an operation found it, and none that had begun by then can have
    put it. To be put before a replay; how many bytes it had is known as far as somebody read them."""

    item: Item  # that found it first
    key: tuple[bytes, bytes]
    tag: int | None
    bytes: int = 0


def _found(record: Record, i: int) -> bool:
    """Whether the operation says that its i-th key was there when it began or came to be."""
    if record.verb == "put":
        return record.outcome == "already_exists" and record.failed == len(record.keys)
    if record.verb not in ("get", "need", "want", "info") or record.version is not None:
        return False
    return record.failed == 0 or (i < len(record.sizes) and record.sizes[i] > 0)


def objects_before(timeline: Timeline) -> list[ObjectBefore]:
    def name_of(record: Record, key: tuple[bytes, bytes]) -> Any:
        return record.namespace, key, record.tag  # an object that was put with a tag is found by that tag only

    first_puts: dict[Any, int] = {}  # when the first that may have succeeded began
    for item in timeline.items:
        record = item.record
        if record.verb == "put" and (record.failed == 0 or record.failed < len(record.keys)):
            for key in record.keys:
                first_puts.setdefault(name_of(record, key), item.start_ns)
    objects: dict[Any, ObjectBefore] = {}
    for item in timeline.items:
        record = item.record
        for i, key in enumerate(record.keys):
            if not _found(record, i):
                continue
            name = name_of(record, key)
            if first_puts.get(name, item.start_ns + record.duration_ns) < item.start_ns + record.duration_ns:
                continue
            known = objects.setdefault(name, ObjectBefore(item, key, record.tag))
            if record.verb != "put" and i < len(record.sizes):
                known.bytes = max(known.bytes, record.offset + record.sizes[i])
    return list(objects.values())
