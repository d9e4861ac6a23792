"""Traces of many processes as one: operations of all in the order of their starts, on one clock.

Processes of one machine (same boot id) share the kernel's steady clock, so their order among each other is exact: one
offset from steady to real time, the median of what their headers say, serves all of them. Between machines, the
offsets are as good as the machines' real-time clocks agree (NTP: milliseconds; PTP: microseconds), so an effect may
seem to come before its cause by that much.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .file import Process, Record


@dataclass(slots=True, frozen=True)
class Item:
    process: int
    record: Record
    start_ns: int  # since the first of all

    @property
    def client(self) -> tuple[int, int]:
        return self.process, self.record.client


@dataclass(slots=True)
class Timeline:
    processes: list[Process]
    items: list[Item]
    begin_ns: int = 0  # real time of the first

    def pool_of(self, item: Item) -> str:
        return self.processes[item.process].clients[item.record.client]

    @property
    def duration_ns(self) -> int:
        return max((item.start_ns + item.record.duration_ns for item in self.items), default=0)


def merge(processes: list[Process]) -> Timeline:
    machines = defaultdict(list)
    for one in processes:
        machines[_machine(one)].append(one.realtime_ns - one.monotonic_ns)
    offsets = {machine: statistics.median_high(found) for machine, found in machines.items()}
    starts = [
        (record.start_ns + offsets[_machine(process)], number, record)
        for number, process in enumerate(processes)
        for record in process.records
    ]
    starts.sort(key=lambda one: one[0])
    begin = starts[0][0] if starts else 0
    return Timeline(processes, [Item(process, record, at - begin) for at, process, record in starts], begin)


def _machine(process: Process) -> str:
    return process.boot or f"host {process.host}"


def shown(text: bytes) -> str:
    return text.decode(errors="replace")


def chrome_events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """In Chrome's trace event format: a process for each file, a thread for each client thread. Operations that overlap
    within a thread are asynchronous slices."""
    for number, process in enumerate(timeline.processes, start=1):
        name = f"{process.program} {process.host}:{process.pid}"
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
    busy_until: dict[tuple[int, int], int] = defaultdict(int)  # of each thread
    for number, item in enumerate(timeline.items, start=1):
        record = item.record
        event = {
            "name": record.verb,
            "cat": "stream" if record.of_stream else "pool",
            "pid": item.process + 1,
            "tid": record.thread,
            "ts": item.start_ns / 1e3,
        }
        thread = item.process, record.thread
        if not record.asynchronous and item.start_ns >= busy_until[thread]:
            busy_until[thread] = item.start_ns + record.duration_ns
            yield event | {"ph": "X", "dur": record.duration_ns / 1e3, "args": _arguments(record)}
        else:
            yield event | {"ph": "b", "id": number, "args": _arguments(record)}
            yield event | {"ph": "e", "id": number, "ts": (item.start_ns + record.duration_ns) / 1e3}


def write_chrome_trace(timeline: Timeline, out: Any) -> None:
    out.write('{"displayTimeUnit":"ms","traceEvents":[\n')
    for number, event in enumerate(chrome_events(timeline)):
        out.write((",\n" if number else "") + json.dumps(event, ensure_ascii=False))
    out.write("\n]}\n")


def _arguments(record: Record) -> dict[str, Any]:
    arguments: dict[str, Any] = {"outcome": record.outcome}
    if record.keys:
        arguments["row"], arguments["column"] = (shown(text) for text in record.keys[0])
    if record.of_stream:
        if record.version is not None:
            arguments["step"] = record.version
        if record.arguments and not record.opens:  # whose options are long
            arguments["what"] = shown(record.arguments)
    if record.batch:
        arguments["keys"] = len(record.keys)
    if record.sizes:
        arguments["bytes"] = sum(record.sizes)
    found = {"failed": record.failed, "tag": record.tag, "count": record.count, "function": shown(record.function)}
    arguments |= {name: value for name, value in found.items() if value or (name == "tag" and value is not None)}
    if record.verb == "put":
        arguments["acknowledge"] = record.acknowledge
    return arguments
