"""What writers and readers of streams share."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from . import _core
from .cohort import Cohort
from .errors import InvalidArgument
from .statistics import Statistics, statistics_of

if TYPE_CHECKING:
    from .context import Context

Core = TypeVar("Core", _core.Writer, _core.Reader)
Step = TypeVar("Step")
Spans = list[tuple[np.ndarray, Any]]  # with the memory that they lie in

# The library is asked to wait so long at once. In between Python handles signals: Ctrl-C works.
SLICE_MS = 100
UNCHOSEN_MS = 60_000  # a *_timeout_ms of 0 chooses none: waits for others than readers end then
_FOREVER_MS = 2**63 - 1


def to_ms(timeout: float | None) -> int:
    """Milliseconds, as the library takes them, of seconds; None is -1, as configured."""
    if timeout is None:
        return -1
    if not timeout >= 0:
        raise InvalidArgument(f"a timeout is not negative: {timeout}")
    return _FOREVER_MS if math.isinf(timeout) else math.ceil(timeout * 1000)


def take_spans(spans: Spans) -> None:
    """Makes read-only what was given out to be filled, as the step ends."""
    for array, memory in spans:
        array.flags.writeable = False
        memory.revoke()
    spans.clear()


class Options(Mapping[str, str]):
    """Options by name, as text: a mapping that also says where each value came from.

    print(options) shows all of them as a table.
    """

    def __init__(self, described: Iterable[tuple[str, str, str]]):
        self._described = {name: (value, origin) for name, value, origin in described}

    def __getitem__(self, name: str) -> str:
        return self._described[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._described)

    def __len__(self) -> int:
        return len(self._described)

    def decided(self, values: Mapping[str, str], origin: str) -> Options:
        """These, with values that were not chosen before the stream was opened."""
        changed = {name: (value, origin) for name, value in values.items() if self[name] != value}
        return Options((name, *changed.get(name, given)) for name, given in self._described.items())

    def origin(self, name: str) -> str:
        """Who gave the value: "default", "code", "fixed in code", "penstock.yaml:12", "PENSTOCK_STREAM_HEAT"; of what
        a reader has found: "where it was found"."""
        return self._described[name][1]

    def __repr__(self) -> str:
        rows = [(name, value or '""', origin) for name, (value, origin) in self._described.items()]
        widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
        return "\n".join(f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}" for name, value, origin in rows)


class Deadline:
    """A wait in slices."""

    def __init__(self, timeout: float | None, configured_ms: int):
        ms = to_ms(timeout)
        if ms < 0:
            ms = configured_ms or UNCHOSEN_MS
        self._end = math.inf if ms == _FOREVER_MS else time.monotonic() + ms / 1000

    def slice_ms(self) -> int:
        """How long to wait now; 0 when the time is up."""
        left = self._end - time.monotonic()
        return SLICE_MS if left * 1000 >= SLICE_MS else max(math.ceil(left * 1000), 0)


class Stream(Generic[Core, Step]):
    """The base of Writer and Reader. One thread at a time; calls of several take turns."""

    def __init__(self, core: Core, cohort: Cohort | None, options: Options, context: Context):
        self._core: Core = core
        self._cohort = cohort
        self._options = options
        self._context = context  # which closes this at exit
        self._open_step: weakref.ref[Step] | None = None
        self._unclaimed = False  # a step has begun, and a signal ended the call that was to give it out

    @property
    def _step(self) -> Step | None:
        """The open step. It refers to this stream, so this must not own it: a stream that is dropped ends at once."""
        return self._open_step() if self._open_step is not None else None

    @_step.setter
    def _step(self, step: Step | None) -> None:
        self._open_step = None if step is None else weakref.ref(step)

    def _give_step(self, make: Callable[[Any], Step], begin: Callable[[], Any]) -> Any:
        """What begin() gives; or the step that the last call began and, interrupted, did not give out."""
        was_open = self._core.in_step and not self._unclaimed
        try:
            if not self._unclaimed:
                return begin()
            step = self._step = make(self)
            self._unclaimed = False
            return step
        except BaseException:
            if self._core.in_step and not was_open:
                self._step, self._unclaimed = None, True
            raise

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def closed(self) -> bool:
        return self._core.closed

    @property
    def rank(self) -> int:
        """Of this process in the cohort that opened the stream."""
        return self._cohort.rank if self._cohort else 0

    @property
    def size(self) -> int:
        """Ranks of the cohort that opened the stream."""
        return self._cohort.size if self._cohort else 1

    @property
    def options(self) -> Options:
        """The options in effect, after penstock.yaml and the environment, and where each came from."""
        return self._options

    @property
    def statistics(self) -> Statistics:
        """What was counted since open; also after close."""
        return statistics_of(self._core.statistics())

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<penstock.{type(self).__name__} '{self.name}' {state}>"
