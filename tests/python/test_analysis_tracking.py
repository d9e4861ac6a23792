"""Fragments over time: balls that move, collide and burst, painted on a lattice, whose splits and merges are known."""

import itertools

import numpy as np
import penstock
import pytest
from penstock.analysis.tracking import Bricks, Tracker

CELL = 0.1
WIDTH = 4 * CELL  # of a brick


def paint(balls, low=-np.inf, high=np.inf):
    """balls: (centre, radius, velocity). Those that touch are one fragment. Returns the table, the bricks, and for each
    row the set of its balls. What is outside low <= x < high is not seen."""
    owner = {}
    for number, (centre, radius, _) in enumerate(balls):
        first, last = (np.floor((np.array(centre) + sign * radius) / CELL).astype(int) for sign in (-1, 1))
        for cell in itertools.product(*(range(a, b + 1) for a, b in zip(first, last, strict=True))):
            place = (np.array(cell) + 0.5) * CELL
            if np.linalg.norm(place - centre) <= radius and low <= place[0] < high:
                owner.setdefault(cell, set()).add(number)
    groups = [{number} for number in sorted(set().union(*owner.values()))] if owner else []
    for together in {frozenset(each) for each in owner.values()}:
        met = [group for group in groups if group & together]
        groups = [group for group in groups if group not in met] + [set().union(*met)]
    groups.sort(key=min)
    rows = {number: row for row, group in enumerate(groups) for number in group}
    cells = np.array(list(owner)).reshape(-1, 3)
    row = np.array([rows[min(each)] for each in owner.values()], int)
    counts = np.bincount(row, minlength=len(groups))
    table = {"volume": counts * CELL**3}
    for axis, name in enumerate("xyz"):
        table[name] = np.bincount(row, (cells[:, axis] + 0.5) * CELL, len(groups)) / np.maximum(counts, 1)
        moving = [sum(balls[n][1] ** 3 * balls[n][2][axis] for n in group) for group in groups]
        table["v" + name] = np.array(moving) / [sum(balls[n][1] ** 3 for n in group) for group in groups]
    keys, size = np.unique(np.column_stack([row, cells // 4]), axis=0, return_counts=True)
    return table, Bricks(keys[:, 0], keys[:, 1:], size * CELL**3), [frozenset(group) for group in groups]


def follow(steps, **limits):
    """steps: (time, balls). The tracks of each step as {balls of a fragment: track}, and all events."""
    tracker, tracks, events = Tracker(WIDTH), [], []
    for time, balls in steps:
        table, bricks, groups = paint(balls, **limits)
        found = tracker.add(time, table, bricks)
        tracks.append(dict(zip(groups, found.tracks.tolist(), strict=True)))
        columns = (found.events[name].tolist() for name in ("kind", "before", "after"))
        events += [(time, *event) for event in zip(*columns, strict=True)]
    return tracker, tracks, events


def of_kind(events, *kinds):
    return sorted(event for event in events if event[1] in kinds)


@pytest.mark.parametrize("dt", [0.1, 0.3, 1.0])
def test_two_balls_collide_and_part(dt):
    """They meet at time 3, stay one until 5, and part at right angles to where they came from."""
    radius = 0.45

    def balls(t):
        if t < 3:
            away, speed = (radius + (3 - t) * 1.5), (-1.5, 0, 0)
            return [((away, 0, 0), radius, speed), ((-away, 0, 0), radius, (1.5, 0, 0))]
        if t <= 5:
            return [((0.3, 0, 0), radius, (0, 0, 0)), ((-0.3, 0, 0), radius, (0, 0, 0))]
        away = 0.6 + (t - 5) * 1.5
        return [((0, away, 0), radius, (0, 1.5, 0)), ((0, -away, 0), radius, (0, -1.5, 0))]

    times = np.arange(0.013, 8, dt)
    tracker, tracks, events = follow([(t, balls(t)) for t in times])
    both = frozenset({0, 1})
    assert {len(each) for each in tracks} == {1, 2}
    together = [i for i, each in enumerate(tracks) if both in each]
    met, parted = together[0], together[-1] + 1
    assert of_kind(events, "birth") == [(times[0], "birth", -1, 0), (times[0], "birth", -1, 1)]
    merged = tracks[met][both]
    assert of_kind(events, "merge") == [(times[met], "merge", 0, merged), (times[met], "merge", 1, merged)]
    assert merged in (0, 1)
    assert of_kind(events, "split") == [(times[parted], "split", merged, t) for t in sorted(tracks[parted].values())]
    assert merged in tracks[parted].values() and not of_kind(events, "death")
    table = tracker.trajectories()
    assert sorted(set(table["track"].tolist())) == [0, 1, 2]
    assert (np.diff(table["time"])[np.diff(table["track"]) == 0] > 0).all()


def test_a_burst_in_one_step():
    """One ball is six, each farther away than it was large; the largest goes on as it."""
    directions = [np.array(d, float) for d in ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1))]
    radii = [0.55, 0.5, 0.5, 0.5, 0.5, 0.5]
    pieces = [(d * 2, r, d * 2) for d, r in zip(directions, radii, strict=True)]
    steps = [(0.0, [((0, 0, 0), 0.9, (0, 0, 0))]), (1.0, pieces), (2.0, [(p * 2, r, v) for p, r, v in pieces])]
    _, tracks, events = follow(steps)
    assert of_kind(events, "split") == [(1.0, "split", 0, track) for track in range(6)]
    assert tracks[1] == tracks[2] and tracks[1][frozenset({0})] == 0
    assert len(of_kind(events, "continuation")) == 6 and not of_kind(events, "merge", "death")


@pytest.mark.parametrize("seed", range(8))
def test_balls_that_never_meet_keep_their_tracks(seed):
    """Whatever the order of the rows, in steps of several diameters, while some leave the domain."""
    rng = np.random.default_rng(seed)
    start = np.stack(np.meshgrid(*[np.arange(3) * 2.5] * 3), axis=-1).reshape(-1, 3)
    start = start[rng.permutation(27)[:12]] + rng.uniform(-0.3, 0.3, (12, 3))
    radii, speed = rng.uniform(0.25, 0.7, 12), np.array([4.0, 1.5, -3.0])
    drift = rng.uniform(-0.1, 0.1, (12, 3))
    steps = []
    for t in np.cumsum(rng.uniform(0.1, 1.5, 6)):
        order = rng.permutation(12)
        steps.append((t, order, [(start[n] + (speed + drift[n]) * t, radii[n], speed + drift[n]) for n in order]))
    _, tracks, events = follow([(t, balls) for t, _, balls in steps], high=12.0)
    seen = {}
    for (_, order, _), found in zip(steps, tracks, strict=True):
        for group, track in found.items():
            (ball,) = group
            assert seen.setdefault(order[ball], track) == track
    gone = len(tracks[0]) - len(tracks[-1])
    assert len(of_kind(events, "death")) == gone and len(of_kind(events, "birth")) == len(tracks[0])
    assert not of_kind(events, "split", "merge")


def test_two_fragments_in_one_brick_are_told_apart():
    """Bricks say nothing of two balls that lie within the same ones; centres do."""
    table = {"volume": np.full(2, 0.01), "x": np.array([0.1, 0.3]), "y": np.zeros(2), "z": np.zeros(2)}
    bricks = Bricks(np.array([0, 1]), np.zeros((2, 3), int), np.full(2, 0.01))
    tracker = Tracker(WIDTH)
    first = tracker.add(0.0, table, bricks).tracks
    second = tracker.add(1.0, {name: column[::-1] for name, column in table.items()}, bricks)
    assert second.tracks.tolist() == first.tolist()[::-1]
    assert second.events["kind"].tolist() == ["continuation"] * 2


def test_a_small_fragment_beside_a_large_one_stays_itself():
    """Moved by half a brick, it has less in common with itself than with the large one in the same bricks."""
    row, places = np.repeat([0, 1], 27), np.tile(list(np.ndindex(3, 3, 3)), (2, 1))
    volume = np.array([4.0, 0.1])
    tracker = Tracker(WIDTH)
    for step in range(3):
        x = step * WIDTH / 2 + np.array([0.0, 0.2])
        table = {"volume": volume, "x": x, "y": np.zeros(2), "z": np.zeros(2), "vx": np.full(2, WIDTH / 2)}
        table |= {"vy": np.zeros(2), "vz": np.zeros(2)}
        moved = places + np.array([(step + 1) // 2, 0, 0])
        found = tracker.add(float(step), table, Bricks(row, moved, volume[row] / 27))
        assert found.tracks.tolist() == [0, 1]
        assert found.events["kind"].tolist() == ["continuation" if step else "birth"] * 2


def test_volume_is_a_check_and_steps_may_be_empty():
    tracker = Tracker(WIDTH)
    one = [((0, 0, 0), 0.5, (0, 0, 0))]
    for time, balls in ((0.0, []), (1.0, one), (2.0, [((0, 0, 0), 0.4, (0, 0, 0))]), (3.0, []), (4.0, one)):
        table, bricks, _ = paint(balls)
        events = tracker.add(time, table, bricks).events
        kinds = {0.0: [], 1.0: ["birth"], 2.0: ["continuation"], 3.0: ["death"], 4.0: ["birth"]}
        assert events["kind"].tolist() == kinds[time]
        if time == 2.0:
            assert events["change"][0] == pytest.approx(0.8**3 - 1, abs=0.02)
    assert tracker.trajectories()["track"].tolist() == [0, 0, 1]


def test_a_hit_that_moves_a_fragment_off_its_path_is_matched_by_attributes():
    table = {"volume": np.array([0.5]), "x": np.array([0.0]), "y": np.zeros(1), "z": np.zeros(1)}
    tracker = Tracker(WIDTH)

    def brick(x, volume):
        return Bricks(np.zeros(1, int), np.array([[np.floor(x / WIDTH), 0, 0]], int), np.array([volume]))

    tracker.add(0.0, table, brick(0.0, 0.5))
    for x, volume, kind in ((1.6, 0.45, "continuation"), (3.2, 0.1, "birth"), (9.0, 0.1, "birth")):
        events = tracker.add(x, table | {"x": np.array([x]), "volume": np.array([volume])}, brick(x, volume)).events
        assert events["kind"].tolist()[-1] == kind


def test_tables_that_are_refused():
    good = {"volume": np.ones(1), "x": np.zeros(1), "y": np.zeros(1), "z": np.zeros(1)}
    brick = Bricks(np.zeros(1, int), np.zeros((1, 3), int), np.ones(1))
    tracker = Tracker()
    tracker.add(1.0, good, brick)
    for time, table, bricks, why in (
        (1.0, good, brick, "time 1.0 come after those at 1.0"),
        (2.0, good | {"x": np.full(1, np.nan)}, brick, "centre is not a finite number"),
        (2.0, good | {"volume": np.zeros(1)}, brick, "a volume is not positive"),
        (2.0, {"volume": np.ones(1)}, brick, "no column 'x'"),
        (2.0, good, Bricks(np.array([1]), np.zeros((1, 3), int), np.ones(1)), "are not of the table's 1 rows"),
    ):
        with pytest.raises(penstock.InvalidArgument, match=why):
            tracker.add(time, table, bricks)
    with pytest.raises(penstock.InvalidArgument, match="width is positive"):
        Tracker(0)
