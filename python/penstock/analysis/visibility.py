"""In which order boxes are seen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ..errors import InvalidArgument


def visibility_order(
    boxes: Sequence[tuple[Sequence[float], Sequence[float]]],
    direction: Sequence[float],
    eye: Sequence[float] | None = None,
) -> list[int]:
    """The numbers of disjoint boxes (low, high) from back to front.

    direction: of view, away from the eye, in the boxes' coordinates (parallel projection). eye: its position
    (perspective; direction is not used). The boxes are those of a recursive bisection, as partition.boxes() makes them:
    there is a plane between two groups of them, and again within each. Raises InvalidArgument where there is none.
    Empty boxes come first.
    """
    corners = [(np.asarray(low, np.float64), np.asarray(high, np.float64)) for low, high in boxes]
    full = [n for n, (low, high) in enumerate(corners) if (high > low).all()]
    order = sorted(set(range(len(corners))) - set(full))
    pending = [full] if full else []
    while pending:
        group = pending.pop()
        if len(group) == 1:
            order += group
            continue
        axis, cut, low, high = _split([(n, *corners[n]) for n in group])
        away = eye[axis] < cut if eye is not None else direction[axis] >= 0
        far, near = (high, low) if away else (low, high)
        pending += [near, far]  # the last is taken first
    return order


def _low_end(axis: int, box: tuple[int, np.ndarray, np.ndarray]) -> float:
    return float(box[1][axis])


def _split(group: list[tuple[int, np.ndarray, np.ndarray]]) -> tuple[int, float, list[int], list[int]]:
    """An axis, a place on it, and the boxes below and above that."""
    best = None
    for axis in range(len(group[0][1])):
        ordered = sorted(group, key=partial(_low_end, axis))
        ends = np.maximum.accumulate([high[axis] for _, _, high in ordered])
        for n in range(1, len(ordered)):
            if ends[n - 1] <= ordered[n][1][axis]:
                balance = abs(2 * n - len(ordered))
                if best is None or balance < best[0]:
                    best = balance, axis, float(ends[n - 1]), ordered, n
    if best is None:
        raise InvalidArgument(f"no plane separates the boxes {[n for n, _, _ in group]}: they overlap or interlock")
    _, axis, cut, ordered, n = best
    return axis, cut, [each[0] for each in ordered[:n]], [each[0] for each in ordered[n:]]
