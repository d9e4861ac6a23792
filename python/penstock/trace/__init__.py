"""Traces: what programs did to pools and streams, recorded, looked at, and done again.

A client records when its Pool or its stream has `trace`, or by $PENSTOCK_TRACE, or by `trace` in penstock.yaml: a
folder gets one compact file for each process. The bytes of objects and steps are not recorded.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument
from . import file, replay, timeline
from .timeline import Item, shown


class Recording:
    """What processes left in their traces, on one clock. Immutable.

    paths: files, or folders of files *.trace. Processes of one machine are in their exact order; between machines the
    order is as good as their clocks agree. Raises NotFound, ProtocolError (no trace).
    """

    def __init__(self, *paths: str | os.PathLike[str]):
        if not paths:
            raise InvalidArgument("a recording of no files")
        self._timeline = timeline.merge([process for path in paths for process in file.read(Path(path))])

    def __len__(self) -> int:
        """How many operations."""
        return len(self._timeline.items)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Operations in the order of their starts: at_s since the first, us that it took, process, thread, pool, verb,
        outcome, keys, and where they have them bytes, failed, tag, function; of streams step and what (box,
        selection)."""
        return map(self._described, self._timeline.items)

    def summary(self) -> dict[str, Any]:
        """Processes, and for each verb operations, keys, bytes, durations (median_us, p99_us) and errors."""
        verbs: dict[str, list[file.Record]] = {}
        for verb in file.VERBS:
            verbs[verb] = []
        for item in self._timeline.items:
            verbs[item.record.verb].append(item.record)
        return {
            "operations": len(self),
            "begin_s": self._timeline.begin_ns / 1e9,
            "seconds": self._timeline.duration_ns / 1e9,
            "processes": [_process(one) for one in self._timeline.processes],
            "verbs": [_verb(verb, records) for verb, records in verbs.items() if records],
        }

    def merge(self, path: str | os.PathLike[str]) -> None:
        """Writes all operations into one file, a line of JSON each: pandas.read_json(path, lines=True)."""
        with open(path, "w", encoding="utf-8") as out:
            for operation in self:
                out.write(json.dumps(operation, ensure_ascii=False) + "\n")

    def to_chrome(self, path: str | os.PathLike[str]) -> None:
        """Writes Chrome's trace event format, which https://ui.perfetto.dev opens."""
        with open(path, "w", encoding="utf-8") as out:
            timeline.write_chrome_trace(self._timeline, out)

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
        from ..context import _default_context

        context = context if context is not None else _default_context()
        options = {"pool": pool, "directory": directory, "role": role, "token": token}
        how: dict[str, Any] = {"speed": speed, "clients": clients, "keep": keep, "timeout": timeout}
        return replay.replay(self._timeline, context, options, **how, on_progress=on_progress)

    def _described(self, item: Item) -> dict[str, Any]:
        record = item.record
        line = {
            "at_s": item.start_ns / 1e9,
            "us": record.duration_ns / 1e3,
            "process": item.process,
            "thread": record.thread,
            "pool": self._timeline.pool_of(item),
            "verb": record.verb,
            "outcome": record.outcome,
            "keys": [[shown(row), shown(column)] for row, column in record.keys],
        }
        found = {"bytes": record.sizes, "failed": record.failed, "function": shown(record.function)}
        line |= {name: value for name, value in found.items() if value}
        if record.tag is not None:
            line["tag"] = record.tag
        if record.of_stream:
            if record.version is not None:
                line["cohort" if record.opens else "step"] = record.version
            if record.arguments:
                line["what"] = shown(record.arguments)
        return line


def _process(process: file.Process) -> dict[str, Any]:
    described = {
        "host": process.host,
        "pid": process.pid,
        "program": process.program,
        "clients": len(process.clients),
        "operations": len(process.records),
        "lost_bytes": process.lost_bytes,
    }
    return described | ({"problem": process.problem} if process.problem else {})


def _verb(verb: str, records: list[file.Record]) -> dict[str, Any]:
    return {
        "verb": verb,
        "operations": len(records),
        "keys": sum(len(one.keys) for one in records),
        "failed_keys": sum(one.failed for one in records),
        "bytes": sum(sum(one.sizes) for one in records),
        "durations": replay.durations_of([one.duration_ns for one in records]),
        "errors": dict(Counter(one.outcome for one in records if one.outcome != "ok")),
    }
