"""Does again what traces recorded, according to a plan, and compares the outcomes.

Objects' bytes are not in a trace: what is put again has the recorded sizes, and bytes that follow from the key.
Everything happens in namespaces ("replay/<run>/<hex of the recorded one>") and streams of its own, so that a
recording of a pool can be replayed on it, by several at once.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..errors import Error, InvalidArgument, NotFound
from ..pool import Pool
from .file import WHOLE, Record
from .plan import ObjectBefore, Plan, objects_before, plan_replay
from .streams import Streams
from .timeline import Item, Timeline, shown

MAX_THREADS = 1024
MAX_DIFFERENCES = 100
BATCH_BYTES, BATCH_OBJECTS = 16 << 20, 1000  # put before
LOOK_S = 0.05  # at whether it shall stop
log = logging.getLogger("penstock")


def fill(key: tuple[bytes, bytes], size: int) -> bytes:
    """The bytes that a replay puts: they depend on the key and the size alone."""
    return np.random.default_rng(zlib.crc32(b"\0".join(key))).bytes(size)


@dataclass(slots=True)
class Outcome:
    code: str = "ok"
    failed: int = 0
    bytes: int = 0  # moved
    message: str = ""

    def note(self, results: list[Any]) -> None:
        for result in results:
            if isinstance(result, Error):
                self.failed += 1
                if self.code == "ok":
                    self.code, self.message = result.code, str(result)
            elif hasattr(result, "view"):
                self.bytes += len(result)


Finish = Callable[[Outcome], None]  # fills in the outcome, or raises


@dataclass
class Control:
    """Looks at a replay and ends it, from other threads."""

    deadline: float = math.inf  # of time.monotonic(): then nothing more is begun
    stop: bool = False
    ended: int = 0  # operations
    _lock: threading.Lock = field(default_factory=threading.Lock)  # guards `ended`

    def note_ended(self) -> None:
        with self._lock:
            self.ended += 1

    def over(self) -> bool:
        return self.stop or time.monotonic() >= self.deadline


class Objects:
    """Operations on objects, done to pools by their public interface. Each recorded client has a Pool of its own,
    opened when it is first used; subscriptions last as long as this."""

    def __init__(self, open_pool: Callable[[str, bytes], Pool], timeline: Timeline):
        self._open_pool = open_pool
        self._timeline = timeline
        self._lock = threading.Lock()  # guards what follows
        self._pools: dict[Any, Pool] = {}
        self._subscriptions: list[Any] = []

    def start(self, item: Item) -> Finish:
        """Begins the operation in its lane; what it returns ends it, in any thread."""
        record = item.record
        pool = self._pool_of(item)
        if record.asynchronous and len(record.keys) == 1:
            if record.verb == "put":
                data = self._data(record)[0]
                put = pool.start_put(*record.keys[0], data, **self._put_options(record))
                return lambda outcome: _moved(outcome, put.wait() and len(data))
            if record.verb in ("want", "need"):
                want = pool.want(*record.keys[0], tag=record.tag, timeout=_seconds(record))
                return lambda outcome: _moved(outcome, len(want.wait()))
        # Everything else is done where its end is waited for, which is at once for calls that block.
        return lambda outcome: getattr(self, f"_{record.verb}")(pool, record, outcome)

    def close(self) -> None:
        for one in (*self._subscriptions, *self._pools.values()):
            one.close()

    def _pool_of(self, item: Item) -> Pool:
        with self._lock:
            name = (*item.client, item.record.namespace)
            if name not in self._pools:
                self._pools[name] = self._open_pool(self._timeline.pool_of(item), item.record.namespace)
            return self._pools[name]

    @staticmethod
    def _data(record: Record) -> list[bytes]:
        sizes = record.sizes or [0] * len(record.keys)
        return [fill(key, size) for key, size in zip(record.keys, sizes, strict=True)]

    @staticmethod
    def _put_options(record: Record) -> dict[str, Any]:
        return {
            "if_exists": record.if_exists,
            "acknowledge": record.acknowledge,
            "tag": record.tag,
            "metadata": shown(record.metadata),
            "timeout": _seconds(record),
        }

    def _put(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        data = self._data(record)
        outcome.bytes = sum(map(len, data))
        if len(data) == 1 and not record.batch:
            pool.put(*record.keys[0], data[0], **self._put_options(record))
        else:
            results = pool.put_many(zip(record.keys, data, strict=True), **self._put_options(record))
            outcome.note(results)

    def _get(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        options: dict[str, Any] = {"tag": record.tag, "timeout": _seconds(record)}
        if record.batch:
            outcome.note(pool.get_many(record.keys, wait=record.verb != "get", **options))
        elif record.keys and record.verb == "get":
            size = None if record.part_bytes == WHOLE else record.part_bytes
            options |= {"version": record.version, "offset": record.offset, "size": size}
            outcome.note([pool.get(*record.keys[0], **options)])
        elif record.keys:
            outcome.note([pool.need(*record.keys[0], **options)])

    _need = _want = _get

    def _info(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        options: dict[str, Any] = {"tag": record.tag, "timeout": _seconds(record)}
        if record.batch:
            outcome.note(pool.info_many(record.keys, **options))
        else:
            pool.info(*record.keys[0], version=record.version, **options)

    def _drop(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        options: dict[str, Any] = {"tag": record.tag, "timeout": _seconds(record)}
        if record.batch:
            outcome.note(pool.drop_many(record.keys, **options))
        else:
            pool.drop(*record.keys[0], version=record.version, **options)

    def _list(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        for _ in pool.list(*record.keys[0], limit=record.count or 1000):
            pass

    def _drop_pattern(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        pool.drop_matching(*record.keys[0])

    def _wait_row(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        row, column = record.keys[0]
        pool.wait_row(row, record.count, column, timeout=_seconds(record))

    def _subscribe(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        subscription = pool.subscribe(*record.keys[0], existing=record.existing)
        with self._lock:
            self._subscriptions.append(subscription)

    def _compute(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        keys, limits = list(record.keys), (record.count or 10_000, record.memory_bytes or 256 << 20)
        words = shown(record.function), keys, shown(record.arguments)
        timeout = -1 if record.timeout_ms < 0 else record.timeout_ms
        outcome.bytes = len(bytes(pool._core.compute(*words, *limits, record.waits, timeout)[0]))

    def _status(self, pool: Pool, record: Record, outcome: Outcome) -> None:
        pool.status()


def _seconds(record: Record) -> float | None:
    return None if record.timeout_ms < 0 else record.timeout_ms / 1000


def _moved(outcome: Outcome, size: int) -> None:
    outcome.bytes = size


@dataclass(slots=True)
class Under:
    """One operation under way. Whoever needs its end first, be it its lane or a step that waits for it, brings it
    about."""

    finish: Finish
    started: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    outcome: Outcome | None = None


@dataclass
class Done:
    """What one copy came to."""

    outcomes: list[Outcome | None]  # of each step; None: not begun
    durations_ns: list[int]  # of each step; -1: its lane did not wait for it
    seconds: float = 0.0
    late_s: float = 0.0  # behind the recorded time, at most
    stopped: bool = False


class Lanes:
    """Does a plan's steps, each lane in a thread of its own."""

    def __init__(self, plan: Plan, speed: float, start: Callable[[Item], Finish], control: Control):
        self._plan = plan
        self._speed = speed
        self._start = start
        self._control = control
        self._changed = threading.Condition()  # guards what follows
        self._under: list[Under | None] = [None] * len(plan.steps)
        self._done = Done([None] * len(plan.steps), [-1] * len(plan.steps))

    def run(self) -> Done:
        lanes: list[list[int]] = [[] for _ in range(self._plan.lanes)]
        for number, step in enumerate(self._plan.steps):
            lanes[step.lane].append(number)
        self._begin = time.monotonic()
        threads = [threading.Thread(target=self._run_lane, args=(lane,), daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._done.seconds = time.monotonic() - self._begin
        return self._done

    def _run_lane(self, lane: list[int]) -> None:
        begun = []
        for number in lane:
            if not self._wait_for(number):
                break
            self._begin_step(number)
            begun.append(number)
            if not self._plan.steps[number].detached:
                self._end(number)
        for number in begun:
            self._end(number)

    def _has_begun(self, number: int) -> bool:
        return self._under[number] is not None

    def _wait_for(self, number: int) -> bool:
        """False: the deadline passed, or an operation that it waits for was never begun."""
        step = self._plan.steps[number]
        at = self._begin + (step.at_ns / 1e9 / self._speed if self._speed else 0)
        if not self._wait_until(lambda: time.monotonic() >= at, at):
            return False
        for earlier in step.after:
            if not self._wait_until(partial(self._has_begun, earlier)):
                return False
            self._end(earlier)
        return self._wait_until(lambda: True)

    def _wait_until(self, there: Callable[[], bool], at: float = math.inf) -> bool:
        with self._changed:
            while True:
                if self._done.stopped or self._control.over():
                    self._done.stopped = True
                    self._changed.notify_all()
                    return False
                if there():
                    return True
                self._changed.wait(min(LOOK_S, max(at - time.monotonic(), 0)))

    def _begin_step(self, number: int) -> None:
        step = self._plan.steps[number]
        now = time.monotonic()
        try:
            finish = self._start(step.item)
        except Exception as error:
            finish = _raiser(error)
        with self._changed:
            if self._speed and step.at_ns:
                self._done.late_s = max(self._done.late_s, now - self._begin - step.at_ns / 1e9 / self._speed)
            self._under[number] = Under(finish, now)
            self._changed.notify_all()

    def _end(self, number: int) -> None:
        under = self._under[number]
        assert under is not None
        with under.lock:
            if under.outcome is not None:
                return
            record = self._plan.steps[number].item.record
            outcome = Outcome()
            try:
                under.finish(outcome)
            except Error as error:
                failed = 0 if record.of_stream else len(record.keys)
                outcome = Outcome(error.code, failed, message=str(error))
            except Exception as error:
                outcome = Outcome("internal", len(record.keys), message=repr(error))
            seconds = time.monotonic() - under.started
            under.outcome, under.finish = outcome, _ended
        with self._changed:
            self._done.outcomes[number] = outcome
            if not self._plan.steps[number].detached:
                self._done.durations_ns[number] = int(seconds * 1e9)
        self._control.note_ended()


def _ended(outcome: Outcome) -> None:
    pass


def _raiser(error: Exception) -> Finish:
    def finish(outcome: Outcome) -> None:
        raise error

    return finish


class Copy:
    """One copy of the recording: what it needs beforehand, what is done, and what it leaves."""

    def __init__(self, context: Any, timeline: Timeline, options: dict[str, Any], keep: bool):
        self._context = context
        self._timeline = timeline
        self._options = options
        self._keep = keep
        self._run = secrets.token_hex(4)
        self._pools: dict[tuple[str, bytes], Pool] = {}
        self._objects: Objects | None = None
        self._streams = Streams(context, timeline, options["pool"], self._run)
        self.done: Done | None = None

    def prepare(self, before: list[ObjectBefore], control: Control) -> None:
        for item in self._timeline.items:
            place = self._timeline.pool_of(item), item.record.namespace
            if not item.record.of_stream and place not in self._pools:
                self._pools[place] = self._open(*place)
        batches: dict[Any, list[ObjectBefore]] = defaultdict(list)
        for one in before:
            batches[self._timeline.pool_of(one.item), one.item.record.namespace, one.tag].append(one)
        for (*place, tag), objects in batches.items():
            while objects and not control.over():
                count = size = 0
                while count < min(len(objects), BATCH_OBJECTS) and (count == 0 or size < BATCH_BYTES):
                    size += objects[count].bytes
                    count += 1
                items = [(one.key, fill(one.key, one.bytes)) for one in objects[:count]]
                del objects[:count]
                for result in self._pools[tuple(place)].put_many(items, tag=tag):
                    if isinstance(result, Error):
                        raise type(result)(f"what was there before the recording cannot be put: {result}")
        self._streams.prepare(control.over)
        self._objects = Objects(self._open, self._timeline)

    def run(self, plan: Plan, speed: float, control: Control) -> None:
        self.done = Lanes(plan, speed, self._start, control).run()

    def clean(self) -> None:
        """Also after a copy that failed."""
        if self._objects:
            self._objects.close()
        for (_, namespace), pool in self._pools.items():
            try:
                if not self._keep:
                    pool.drop_matching("*")
            except Error as error:
                log.warning("a replay's objects stay in the namespace %s: %s", self._name(namespace), error)
            pool.close()
        self._streams.close()
        for pool_name, stream in [] if self._keep else self._streams.made:
            try:
                with self._opened(pool_name) as pool, contextlib.suppress(NotFound):  # it was never opened
                    pool.drop_stream(stream)
            except Error as error:
                log.warning("a replay's stream %s stays in the pool: %s", stream, error)

    @property
    def namespaces(self) -> list[str]:
        return [self._name(namespace) for _, namespace in self._pools]

    @property
    def streams(self) -> list[str]:
        return [stream for _, stream in self._streams.made]

    def _start(self, item: Item) -> Finish:
        if item.record.of_stream:
            return lambda outcome: self._streams.run(item, outcome)
        assert self._objects
        return self._objects.start(item)

    def _name(self, namespace: bytes) -> str:
        return f"replay/{self._run}/{namespace.hex()}"

    def _open(self, pool: str, namespace: bytes) -> Pool:
        return self._opened(pool, ns=self._name(namespace))

    def _opened(self, pool: str, **more: str) -> Pool:
        options = self._options | {"trace": "off", "context": self._context} | more
        return Pool(options.pop("pool") or pool, **options)


def replay(
    timeline: Timeline,
    context: Any,
    options: dict[str, Any],
    *,
    speed: float,
    clients: int,
    keep: bool,
    timeout: float,
    on_progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """What Recording.replay does."""
    if not speed >= 0 or math.isinf(speed):
        raise InvalidArgument("a replay's speed is a number from 0 up")
    if clients < 1:
        raise InvalidArgument(f"a replay by {clients} clients")
    plan = plan_replay(timeline)
    if plan.lanes * clients > MAX_THREADS:
        raise InvalidArgument(
            f"{clients} copies of a recording of {plan.lanes} client threads are more than {MAX_THREADS} threads"
        )
    control = Control(time.monotonic() + timeout)
    copies = [Copy(context, timeline, options, keep) for _ in range(clients)]
    before = objects_before(timeline)
    total = len(timeline.items) * clients

    def progress() -> None:
        if on_progress:
            on_progress(control.ended, total)

    try:
        _at_once(copies, lambda copy: copy.prepare(before, control), control, progress)
        _at_once(copies, lambda copy: copy.run(plan, speed, control), control, progress)
    except BaseException:
        control.stop = True
        raise
    finally:
        _at_once(copies, Copy.clean, control, progress)
    return _report(timeline, plan, copies, speed, keep, len(before))


def _at_once(copies: list[Copy], do: Callable[[Copy], None], control: Control, progress: Callable[[], None]) -> None:
    """For each copy in a thread of its own. Raises the first error, once all have ended; Ctrl-C stops them."""
    errors: list[BaseException] = []

    def one(copy: Copy) -> None:
        try:
            do(copy)
        except Exception as error:
            errors.append(error)
            control.stop = True

    threads = [threading.Thread(target=one, args=(copy,), daemon=True) for copy in copies]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.1)
                progress()
    except BaseException:
        control.stop = True
        for thread in threads:
            thread.join()
        raise
    if errors:
        raise errors[0]


def durations_of(durations_ns: list[int]) -> dict[str, float] | None:
    """{"median_us": ..., "p99_us": ...}; None when there are none."""
    if not durations_ns:
        return None
    ordered = sorted(durations_ns)
    return {
        name: ordered[int(share * (len(ordered) - 1))] / 1e3 for name, share in (("median_us", 0.5), ("p99_us", 0.99))
    }


def _report(
    timeline: Timeline, plan: Plan, copies: list[Copy], speed: float, keep: bool, prepared: int
) -> dict[str, Any]:
    done = [copy.done for copy in copies if copy.done]
    verbs: dict[str, dict[str, Any]] = {}
    durations: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))  # recorded, replayed
    differences: list[dict[str, Any]] = []
    counted = same = moved = 0
    for item in timeline.items:
        durations[item.record.verb][0].append(item.record.duration_ns)
        verbs.setdefault(item.record.verb, {"operations": 0, "different": 0, "outcomes": {}})
    for client, one in enumerate(done):
        for step, outcome, duration_ns in zip(plan.steps, one.outcomes, one.durations_ns, strict=True):
            if outcome is None:
                continue
            record = step.item.record
            alike = (outcome.code, outcome.failed) == (record.outcome, record.failed)
            verb = verbs[record.verb]
            verb["operations"] += 1
            verb["different"] += not alike
            for which, code in (("recorded", record.outcome), ("replayed", outcome.code)):
                verb["outcomes"].setdefault(code, {"recorded": 0, "replayed": 0})[which] += 1
            if duration_ns >= 0:
                durations[record.verb][1].append(duration_ns)
            counted, same, moved = counted + 1, same + alike, moved + outcome.bytes
            if not alike and len(differences) < MAX_DIFFERENCES:
                differences.append(_difference(client, step.item, outcome))
    found = {
        "clients": len(copies),
        "speed": speed,
        "operations": counted,
        "same": same,
        "different": counted - same,
        "bytes": moved,
        "seconds": max((one.seconds for one in done), default=0.0),
        "recorded_seconds": timeline.duration_ns / 1e9,
        "most_late_seconds": max((one.late_s for one in done), default=0.0),
        "prepared_objects": prepared,
        "stopped": any(one.stopped for one in done),
        "verbs": [
            {
                "verb": name,
                **verb,
                "recorded": durations_of(durations[name][0]),
                "replayed": durations_of(durations[name][1]),
            }
            for name, verb in sorted(verbs.items())
        ],
        "differences": differences,
    }
    if keep:
        found["namespaces"] = [name for copy in copies for name in copy.namespaces]
        found["streams"] = [name for copy in copies for name in copy.streams]
    return found


def _difference(client: int, item: Item, outcome: Outcome) -> dict[str, Any]:
    record = item.record
    row, column = record.keys[0] if record.keys else (b"", b"")
    return {
        "client": client,
        "at_s": item.start_ns / 1e9,
        "verb": record.verb,
        "row": shown(row),
        "column": shown(column),
        "recorded": record.outcome,
        "recorded_failed": record.failed,
        "replayed": outcome.code,
        "replayed_failed": outcome.failed,
        "message": outcome.message,
    }
