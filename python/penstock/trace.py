"""Traces: what clients of pools did, recorded, looked at, and done again.

A client records when its Pool or its stream in a pool has `trace`, or by $PENSTOCK_TRACE, or by `trace` in
penstock.yaml: a folder gets one compact file for each process. The bytes of objects and steps are not recorded.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from . import _core
from .errors import InvalidArgument
from .stream import SLICE_MS, to_ms

PAGE = 1000


class Recording:
    """What processes left in their traces, on one clock. Immutable.

    paths: files, or folders of files *.trace. Processes of one machine are in their exact order; between machines the
    order is as good as their clocks agree. Raises NotFound, ProtocolError (no trace).
    """

    def __init__(self, *paths: str | os.PathLike[str]):
        if not paths:
            raise InvalidArgument("a recording of no files")
        self._core = _core.Recording.read([os.fspath(path) for path in paths])

    def __len__(self) -> int:
        """How many operations."""
        return self._core.operations()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Operations in the order of their starts: at_s since the first, us that it took, process, thread, pool, verb,
        outcome, keys, and where they have them bytes, failed, tag, function; of streams step and what (box,
        selection)."""
        for first in range(0, len(self), PAGE):
            for line in self._core.lines(first, PAGE).splitlines():
                yield json.loads(line)

    def summary(self) -> dict[str, Any]:
        """Processes, and for each verb operations, keys, bytes, durations (median_us, p99_us) and errors."""
        return json.loads(self._core.summary())

    def merge(self, path: str | os.PathLike[str]) -> None:
        """Writes all operations into one file, a line of JSON each: pandas.read_json(path, lines=True)."""
        self._core.write_lines(os.fspath(path))

    def to_chrome(self, path: str | os.PathLike[str]) -> None:
        """Writes Chrome's trace event format, which https://ui.perfetto.dev opens."""
        self._core.write_chrome_trace(os.fspath(path))

    def replay(
        self,
        pool: str = "",
        *,
        speed: float = 1.0,
        clients: int = 1,
        directory: str = "",
        role: str = "",
        token: str = "",
        keep: bool = False,
        timeout: float = math.inf,
        on_progress: Callable[[int, int], None] | None = None,
        context: Any = None,
    ) -> dict[str, Any]:
        """Does it again, and returns how it went: operations, same, different, verbs (outcomes and durations, recorded
        and replayed), and the first hundred differences.

        pool: "" for the recorded one. speed: 2 is twice as fast, 0 as fast as the outcomes allow. clients: so many
        copies of the whole recording at once. Each copy has namespaces of its own, where what the recorded clients
        found and none had put is put first, and which are emptied at the end unless `keep`. Streams are written and
        read under names of their own, which are dropped. timeout: seconds, after which nothing more is begun.
        on_progress(ended, all) is called a few times a second. Ctrl-C stops it.
        """
        from .context import _default_context

        context = context if context is not None else _default_context()
        options = {"pool": pool, "directory": directory, "role": role, "token": token}
        running = context._core.start_replay(self._core, options, speed, clients, keep, to_ms(timeout))
        try:
            while not running.wait(SLICE_MS):
                if on_progress:
                    on_progress(*running.progress())
        except BaseException:
            running.stop()
            raise
        if on_progress:
            on_progress(*running.progress())
        return json.loads(running.report())
