"""The statistics files that the library writes where PENSTOCK_STATISTICS points, and rates made of them.

One file for each stream endpoint of a rank 0, `<stream>.<writer|reader>.<pid>.json`, holding the fields of
penstock::StreamStatistics. It is replaced as a whole (renamed into place), so that a reader never sees half of one.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WINDOW_S = 5.0


@dataclass(frozen=True)
class Endpoint:
    """One side of a stream in one program, as last written."""

    stream: str
    role: str  # "writer" or "reader"
    pid: int
    values: dict[str, Any]
    modified: float  # when the file was written, seconds since the epoch

    def count(self, field_name: str) -> int:
        value = self.values.get(field_name, 0)
        return int(value) if isinstance(value, int | float) else 0

    def seconds(self, field_name: str) -> float | None:
        value = self.values.get(field_name)
        return float(value) if isinstance(value, int | float) else None


# Between the parts of one analysis, and from it to the simulation.
_INTERNAL = re.compile(r".*\.requests|.*\.cohort\.\d+|images-[0-9a-f]{32}")


def is_internal(stream: str) -> bool:
    """Whether the stream is part of an analysis, not one that a user has named."""
    return _INTERNAL.fullmatch(stream) is not None


def read_endpoints(folder: Path) -> list[Endpoint]:
    """What is there now, sorted by stream; files that are not statistics are passed over."""
    endpoints = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        parts = path.name.removesuffix(".json").rsplit(".", 2)
        if len(parts) != 3 or parts[1] not in ("writer", "reader") or not parts[2].isdigit():
            continue
        if is_internal(parts[0]):
            continue
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            modified = path.stat().st_mtime
        except (OSError, ValueError):
            continue  # replaced or removed meanwhile
        if isinstance(values, dict):
            endpoints.append(Endpoint(parts[0], parts[1], int(parts[2]), values, modified))
    return endpoints


@dataclass
class Rate:
    """Steps and bytes a second over the last few seconds."""

    samples: deque[tuple[float, int, int]] = field(default_factory=deque)

    def add(self, now: float, steps: int, size: int) -> None:
        if self.samples and steps < self.samples[-1][1]:  # somebody else counts
            self.samples.clear()
        if not self.samples or (steps, size) != self.samples[-1][1:] or now - self.samples[-1][0] > WINDOW_S:
            self.samples.append((now, steps, size))
        while len(self.samples) > 2 and now - self.samples[0][0] > WINDOW_S:
            self.samples.popleft()

    def per_second(self, now: float) -> tuple[float, float] | None:
        """(steps/s, bytes/s), or None before there is anything to divide."""
        if not self.samples:
            return None
        first, last = self.samples[0], self.samples[-1]
        elapsed = max(last[0], now if now - last[0] > WINDOW_S else last[0]) - first[0]
        if elapsed <= 0:
            return None
        return (last[1] - first[1]) / elapsed, (last[2] - first[2]) / elapsed


@dataclass
class Flow:
    """A stream as a whole: its writer, its readers, its rate."""

    stream: str
    writer: Endpoint | None = None
    readers: list[Endpoint] = field(default_factory=list)
    rate: Rate = field(default_factory=Rate)

    @property
    def leading(self) -> Endpoint | None:
        """The side that progress is measured at: the writer, or a reader when the writer is not of this run."""
        return self.writer or (self.readers[0] if self.readers else None)


@dataclass
class Flows:
    """The streams of a run, followed over time."""

    by_name: dict[str, Flow] = field(default_factory=dict)

    def update(self, endpoints: Iterable[Endpoint], now: float) -> list[Flow]:
        for flow in self.by_name.values():
            flow.writer, flow.readers = None, []
        for endpoint in sorted(endpoints, key=lambda e: e.modified):
            flow = self.by_name.setdefault(endpoint.stream, Flow(endpoint.stream))
            if endpoint.role == "writer":
                flow.writer = endpoint
            else:
                flow.readers.append(endpoint)
        for flow in self.by_name.values():
            if flow.leading:
                flow.rate.add(now, flow.leading.count("steps"), flow.leading.count("bytes"))
        return sorted(self.by_name.values(), key=lambda f: f.stream)
