"""Fragments over time: which fragment of a step is which of the step before, and where they split and merge.

    tracker = Tracker(width=0.1)                       # of the lattice of bricks
    found = tracker.add(time, table, bricks)           # of each step
    found.tracks, found.events                         # a number for each row; what happened since the step before
    tracker.trajectories()                             # track, time, x, y, z, volume

The rule is overlap and attribute matching (Samtaney, Silver, Zabusky and Cao 1994; Silver and Wang 1997):

1. Each fragment moves with its own velocity: those of the step before forward to this step, those of this step back to
   the step before. The overlap of a pair is the larger of the two, a volume. Forward finds merges, backward finds
   splits, also where a fragment moves by more than its size in a step.
2. Overlaps come from bricks: the volume that a fragment has in each cell of one lattice, the same in all steps,
   whatever grid and ranks a step has. A brick that moves by a part of its width is shared out to those that it then
   covers.
3. Pairs that overlap by less than LEAST of the smaller one are none. Of the others a pair counts that is the best one
   of either side: by overlap over the larger volume, divided by 1 + (distance of centres / sum of radii) squared, so
   that fragments in one brick are told apart.
4. Fragments without such a pair are matched by attributes: the nearest centres first, within REACH sums of radii, of
   volumes that differ by a factor of at most 2.
5. A fragment with two pairs or more has split, or is merged. The track goes on along pairs that are the best of both
   sides; other fragments have new tracks. Equal pairs: the first rows.

Volume is no part of the rule but for 4: `change` in the events shows how well it was kept, as a check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InvalidArgument

Table = Mapping[str, np.ndarray]  # columns of one length
NONE = -1  # in place of a track
LEAST = 0.1
REACH = 2.0
MAX_BRICKS = 1e5  # that a fragment moves by from step to step
MAX_ROWS = 1_000_000  # of trajectories: 48 MB
_EVENTS = {"time": float, "kind": "U12", "before": np.int64, "after": np.int64, "change": float}
_TRAJECTORIES = {"track": np.int64, "time": float, "x": float, "y": float, "z": float, "volume": float}


@dataclass(frozen=True, eq=False, slots=True)
class Bricks:
    """Where fragments are: row (m,) of the table, place (m, 3) in the lattice (integers x, y, z), volume (m,) there."""

    row: np.ndarray
    place: np.ndarray
    volume: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Tracked:
    """tracks: of each row of the table, int64. events: since the step before, a row for each pair of tracks.

    Columns of events: time, kind ("birth", "death", "continuation", "split", "merge"), before and after (tracks, -1 for
    none), change (of the volume of all fragments that are connected by pairs, relative; NaN where there is none before
    or after). A pair in both a split and a merge is in a row of each.
    """

    tracks: np.ndarray
    events: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False, slots=True)
class _Step:
    time: float
    centre: np.ndarray
    velocity: np.ndarray
    volume: np.ndarray
    bricks: Bricks
    tracks: np.ndarray

    @property
    def radius(self) -> np.ndarray:
        """Of balls of the same volume."""
        return np.cbrt(self.volume * 3 / (4 * np.pi))


class Tracker:
    """Give it the steps in the order of time. The same steps give the same tracks.

    width: of the bricks, a number or x, y, z. All ranks may keep one of their own, or one rank alone.
    """

    def __init__(self, width: float | np.ndarray = 1.0):
        self._width = np.broadcast_to(np.asarray(width, float), 3)
        if not (self._width > 0).all():
            raise InvalidArgument(f"width is positive, not {width}")
        nothing = np.empty((0, 3))
        none = np.empty(0, np.int64)
        bricks = Bricks(none, np.empty((0, 3), np.int64), np.empty(0))
        self._last = _Step(-np.inf, nothing, nothing, np.empty(0), bricks, none)
        self._next = 0
        self._rows: list[dict[str, np.ndarray]] = []  # for trajectories
        self._kept = 0

    def add(self, time: float, table: Table, bricks: Bricks) -> Tracked:
        """table: volume, x, y, z (centres), and vx, vy, vz or none of these. Raises InvalidArgument, e.g. for a NaN."""
        last, step = self._last, self._step(time, table, bricks)
        pairs, times = np.unique(_pairs(last, step, self._width), axis=0, return_counts=True)
        both = pairs[times == 2]  # the best of both sides
        step.tracks[both[:, 1]] = last.tracks[both[:, 0]]
        new = step.tracks == NONE
        step.tracks[new] = self._next + np.arange(new.sum())
        self._next += int(new.sum())
        columns = {"x": step.centre[:, 0], "y": step.centre[:, 1], "z": step.centre[:, 2], "volume": step.volume}
        self._rows.append({"track": step.tracks, "time": np.full(len(step.tracks), time), **columns})
        self._kept += len(step.tracks)
        while self._kept > MAX_ROWS and len(self._rows) > 1:
            self._kept -= len(self._rows.pop(0)["track"])
        self._last = step
        return Tracked(step.tracks, _events(last, step, pairs))

    def trajectories(self) -> dict[str, np.ndarray]:
        """Of all steps so far (the newest MAX_ROWS rows), by track and time."""
        table = _table(self._rows, _TRAJECTORIES)
        order = np.lexsort((table["time"], table["track"]))
        return {name: column[order] for name, column in table.items()}

    def _step(self, time: float, table: Table, bricks: Bricks) -> _Step:
        missing = {"volume", "x", "y", "z"} - set(table)
        if missing:
            raise InvalidArgument(f"fragments at time {time}: the table has no column '{min(missing)}'")
        rows = len(table["volume"])
        moving = all(name in table for name in ("vx", "vy", "vz"))
        centre, velocity = (
            np.stack([np.asarray(table[name], float) for name in names], axis=1) if there else np.zeros((rows, 3))
            for names, there in ((("x", "y", "z"), True), (("vx", "vy", "vz"), moving))
        )
        volume = np.asarray(table["volume"], float)
        for what, values in (("volume", volume), ("centre", centre), ("velocity", velocity)):
            if len(values) != rows or not np.isfinite(values).all():
                raise InvalidArgument(
                    f"fragments at time {time}: {what} is not a finite number for each of {rows} rows"
                )
        if (volume <= 0).any():
            raise InvalidArgument(f"fragments at time {time}: a volume is not positive")
        if not time > self._last.time:
            raise InvalidArgument(f"fragments at time {time} come after those at {self._last.time}")
        if (
            bricks.place.shape != (len(bricks.row), 3)
            or bricks.volume.shape != bricks.row.shape
            or (len(bricks.row) and not 0 <= bricks.row.min() <= bricks.row.max() < rows)
        ):
            raise InvalidArgument(
                f"bricks at time {time}: row, place (m, 3) and volume are not of the table's {rows} rows"
            )
        row, place = (np.asarray(each, np.int64) for each in (bricks.row, bricks.place))
        bricks = Bricks(row, place, np.asarray(bricks.volume, float))
        return _Step(float(time), centre, velocity, volume, bricks, np.full(rows, NONE, np.int64))


# ------------------------------------------------------------------------------------------------------------- matching


def _pairs(last: _Step, step: _Step, width: np.ndarray) -> np.ndarray:
    """Pairs that count (n, 2): a row of either step. Those that are the best of both sides come twice."""
    dt = step.time - last.time
    last, step = (_slowed(each, dt, width) for each in (last, step))
    overlaps = [_overlaps(last, step, dt, width), _overlaps(step, last, -dt, width)]
    pairs = np.concatenate([overlaps[0][0], overlaps[1][0][:, ::-1]])
    overlap = np.concatenate([each for _, each in overlaps])
    volumes = last.volume[pairs[:, 0]], step.volume[pairs[:, 1]]
    score = overlap / np.maximum(*volumes) / (1 + _distance(last, step, pairs) ** 2)
    enough = overlap >= LEAST * np.minimum(*volumes)
    pairs, score = pairs[enough], score[enough]
    # The better of forward and backward first, and of equal ones the first rows.
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -score))
    pairs = pairs[order]
    of_old, of_new = (pairs[np.unique(pairs[:, side], return_index=True)[1]] for side in (0, 1))
    more = _by_attributes(last, step, of_old, of_new)
    return np.concatenate([of_old, of_new, more, more])


def _slowed(step: _Step, dt: float, width: np.ndarray) -> _Step:
    """Fragments of absurd velocities at rest."""
    with np.errstate(over="ignore", invalid="ignore"):  # before the first step, dt is infinite
        slow = (np.abs(step.velocity * dt) < MAX_BRICKS * width).all(axis=1, keepdims=True)
    return replace(step, velocity=np.where(slow, step.velocity, 0.0))


def _by_attributes(last: _Step, step: _Step, of_old: np.ndarray, of_new: np.ndarray) -> np.ndarray:
    """One to one, of rows that are in no pair."""
    free = [np.ones(len(last.volume), bool), np.ones(len(step.volume), bool)]
    for pairs in (of_old, of_new):
        free[0][pairs[:, 0]] = free[1][pairs[:, 1]] = False
    dt = step.time - last.time
    near = [_near(last, step, dt), _near(step, last, -dt)[:, ::-1]]
    pairs = np.unique(np.concatenate(near), axis=0)
    pairs = pairs[free[0][pairs[:, 0]] & free[1][pairs[:, 1]]]
    ratio = last.volume[pairs[:, 0]] / step.volume[pairs[:, 1]]
    pairs = pairs[(ratio <= 2) & (ratio >= 0.5)]
    pairs = pairs[np.argsort(_distance(last, step, pairs), kind="stable")]
    taken = []
    for old, new in pairs.tolist():
        if free[0][old] and free[1][new]:
            free[0][old] = free[1][new] = False
            taken.append((old, new))
    return np.array(taken, np.int64).reshape(-1, 2)


def _distance(last: _Step, step: _Step, pairs: np.ndarray) -> np.ndarray:
    """Of centres, forward or backward, in sums of radii."""
    old, new = pairs.T
    apart, dt = step.centre[new] - last.centre[old], step.time - last.time
    both = [np.linalg.norm(apart - velocity * dt, axis=1) for velocity in (last.velocity[old], step.velocity[new])]
    nearer: np.ndarray = np.minimum(*both) / (last.radius[old] + step.radius[new])
    return nearer


def _overlaps(one: _Step, other: _Step, dt: float, width: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (n, 2) of rows, and the volume that both have in common after `one` has moved for dt."""
    if not len(one.volume) or not len(other.volume):  # dt is infinite before the first step
        return np.empty((0, 2), np.int64), np.empty(0)
    ours, theirs = _moved(one.bricks, one.velocity * dt / width), other.bricks
    place = _numbered(np.concatenate([ours.place, theirs.place]))
    many = int(place.max(initial=0)) + 1
    # A fragment that moved has each place once.
    keys, which = np.unique(ours.row * many + place[: len(ours.row)], return_inverse=True)
    volume = np.bincount(which, ours.volume, len(keys))
    their_place = place[len(ours.row) :]
    order = np.argsort(their_place, kind="stable")
    first, last = (np.searchsorted(their_place[order], keys % many, side) for side in ("left", "right"))
    left, right = _ranges(first, last)
    right = order[right]
    common = np.minimum(volume[left], theirs.volume[right])
    size = len(other.volume)
    found, which = np.unique(keys[left] // many * size + theirs.row[right], return_inverse=True)
    return np.stack([found // size, found % size], axis=1), np.bincount(which, common, len(found))


def _moved(bricks: Bricks, by: np.ndarray) -> Bricks:
    """by: how far each fragment moves, in bricks."""
    shift = by[bricks.row]
    whole = np.floor(shift).astype(np.int64)
    part = shift - whole
    places, volumes = [], []
    for corner in np.ndindex(2, 2, 2):
        share = np.where(corner, part, 1 - part).prod(axis=1)
        places.append(bricks.place + whole + np.array(corner))
        volumes.append(bricks.volume * share)
    return Bricks(np.tile(bricks.row, 8), np.concatenate(places), np.concatenate(volumes))


def _numbered(places: np.ndarray) -> np.ndarray:
    """A number for each place (n, 3), equal for equal ones."""
    if not len(places):
        return np.empty(0, np.int64)
    inside = places - places.min(axis=0)
    if inside.max() >= 1 << 21:
        raise InvalidArgument(f"fragments lie {inside.max()} bricks apart; choose a larger width")
    numbers: np.ndarray = np.unique(inside @ (1 << np.array([0, 21, 42])), return_inverse=True)[1]
    return numbers


def _near(one: _Step, other: _Step, dt: float) -> np.ndarray:
    """Pairs whose centres, after `one` has moved for dt, are within REACH sums of radii."""
    if not len(one.volume) or not len(other.volume):
        return np.empty((0, 2), np.int64)
    centre, order = one.centre + one.velocity * dt, np.argsort(other.centre[:, 0], kind="stable")
    most = REACH * (one.radius + other.radius.max())
    x = other.centre[order, 0]
    left, right = _ranges(np.searchsorted(x, centre[:, 0] - most), np.searchsorted(x, centre[:, 0] + most, "right"))
    right = order[right]
    apart = np.linalg.norm(centre[left] - other.centre[right], axis=1)
    close = apart <= REACH * (one.radius[left] + other.radius[right])
    return np.stack([left[close], right[close]], axis=1)


def _ranges(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each i, all of first[i] up to last[i]: the numbers i, and those."""
    counts = last - first
    left = np.repeat(np.arange(len(counts)), counts)
    return left, np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + first[left]


# --------------------------------------------------------------------------------------------------------------- events


def _events(last: _Step, step: _Step, pairs: np.ndarray) -> dict[str, np.ndarray]:
    old, new = pairs.T
    after = np.bincount(old, minlength=len(last.tracks))  # of each old row, its pairs
    before = np.bincount(new, minlength=len(step.tracks))
    change = _changes(pairs, (last.volume, step.volume))
    split, merged = after[old] > 1, before[new] > 1
    kinds = {"continuation": ~split & ~merged, "split": split, "merge": merged}
    rows = [(kind, last.tracks[old[which]], step.tracks[new[which]], change[which]) for kind, which in kinds.items()]
    died, born = last.tracks[after == 0], step.tracks[before == 0]
    rows.append(("death", died, np.full(len(died), NONE), np.full(len(died), np.nan)))
    rows.append(("birth", np.full(len(born), NONE), born, np.full(len(born), np.nan)))
    tables = [
        {"time": np.full(len(a), step.time), "kind": np.full(len(a), kind), "before": a, "after": b, "change": c}
        for kind, a, b, c in rows
    ]
    return _table(tables, _EVENTS)


def _changes(pairs: np.ndarray, volumes: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """For each pair, the relative change of the volume of all fragments connected with it."""
    group = np.arange(len(pairs))
    while True:  # the least number of what is connected
        least = group
        for side in (0, 1):
            lowest = np.full(len(volumes[side]), len(pairs))
            np.minimum.at(lowest, pairs[:, side], least)
            least = lowest[pairs[:, side]]
        if np.array_equal(least, group):
            break
        group = least
    sums = []
    for side in (0, 1):
        rows, first = np.unique(pairs[:, side], return_index=True)
        sums.append(np.bincount(group[first], volumes[side][rows], len(pairs))[group])
    relative: np.ndarray = sums[1] / sums[0] - 1
    return relative


def _table(tables: list[dict[str, np.ndarray]], columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {
        name: np.concatenate([np.empty(0, dtype), *(table[name] for table in tables)]).astype(dtype)
        for name, dtype in columns.items()
    }
