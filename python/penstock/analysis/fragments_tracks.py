"""Fragments from frame to frame, over all ranks: which track each one belongs to, and events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..cohort import Cohort
from .agreement import exchange
from .fragments_search import Found
from .tracking import MAX_ROWS, Bricks, Tracked, Tracker

MAX_FRAMES = 10_000  # whose events are kept for extracts of few frames, up to MAX_ROWS rows


class Tracks:
    """Fragments from frame to frame. track: of each fragment of the last one. Rank 0 follows them for all."""

    def __init__(self) -> None:
        self.track = np.empty(0, np.int64)
        self._tracker: Tracker | None = None
        self._time = -np.inf
        self._events: list[dict[str, np.ndarray]] = []  # of the newest frames, on rank 0
        self._rows = 0  # of these
        self._frames = 0
        self._seen: dict[str, int] = {}  # frames whose events a reader has had

    def add(self, time: float, found: Found, spacing: Sequence[float], cohort: Cohort | None) -> None:
        """Collective. spacing: of level 0. A time that is not later than the last one, as after a restart, begins new
        tracks."""

        def follow(by_rank: list[list[Bricks]]) -> np.ndarray:
            if self._tracker is None or time <= self._time:
                self._tracker = Tracker(np.array(spacing))
            bricks = _joined([each for bricks in by_rank for each in bricks])
            tracked = _followed(self._tracker, time, found.columns, bricks)
            self._keep(tracked.events)
            return tracked.tracks

        self.track, self._time = exchange(cohort, lambda: found.bricks, follow), time

    def _keep(self, events: dict[str, np.ndarray]) -> None:
        self._events.append(events)
        self._rows += len(events["time"])
        self._frames += 1
        while len(self._events) > MAX_FRAMES or (self._rows > MAX_ROWS and len(self._events) > 1):
            self._rows -= len(self._events.pop(0)["time"])

    def events(self, reader: str, cohort: Cohort | None) -> dict[str, np.ndarray]:
        """Those since this reader asked last; the same on all ranks. Collective."""

        def new(_: object) -> dict[str, np.ndarray]:
            frames = self._frames - self._seen.get(reader, 0)
            self._seen[reader] = self._frames
            tables = self._events[-frames:] if frames else [{n: each[:0] for n, each in self._events[-1].items()}]
            return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

        return exchange(cohort, lambda: None, new)

    def trajectories(self) -> dict[str, np.ndarray]:
        """On rank 0."""
        return self._tracker.trajectories() if self._tracker is not None else {}


def _followed(tracker: Tracker, time: float, columns: dict[str, np.ndarray], bricks: Bricks) -> Tracked:
    """Fragments without a finite place have the track -1; those without a finite velocity are taken to rest."""
    names = ["volume", *"xyz"]
    there = np.isfinite([columns[name] for name in names]).all(axis=0) & (columns["volume"] > 0)
    table = {name: columns[name][there] for name in names}
    if "vx" in columns:
        velocity = np.array([columns[name][there] for name in ("vx", "vy", "vz")])
        velocity = np.where(np.isfinite(velocity).all(axis=0), velocity, 0.0)
        table |= dict(zip(("vx", "vy", "vz"), velocity, strict=True))
    kept = there[bricks.row]
    rows = np.cumsum(there)[bricks.row[kept]] - 1
    tracked = tracker.add(time, table, Bricks(rows, bricks.place[kept], bricks.volume[kept]))
    tracks = np.full(len(there), -1, np.int64)
    tracks[there] = tracked.tracks
    return Tracked(tracks, tracked.events)


def _joined(bricks: Sequence[Bricks]) -> Bricks:
    """A brick once for each row."""
    row = np.concatenate([np.empty(0, np.int64), *(each.row for each in bricks)])
    place = np.concatenate([np.empty((0, 3), np.int64), *(each.place for each in bricks)])
    volume = np.concatenate([np.empty(0), *(each.volume for each in bricks)])
    sides = place.max(axis=0, initial=0) + 1
    key = row
    for axis in range(3):
        key = key * sides[axis] + place[:, axis]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return Bricks(row[first], place[first], np.bincount(which.reshape(-1), volume, len(first)))
