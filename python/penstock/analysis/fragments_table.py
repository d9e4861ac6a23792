"""The table of the fragments of a frame: what they are, where, how fast, and of what shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core

FEW_CELLS = 8
VELOCITY = ("vx", "vy", "vz")
# Of the table, those that a surface has as fields.
COLUMNS = ("fragment", "cells", "volume", "mass", *VELOCITY, "length", "width", "height", "hull_ratio")
TABLE = (*COLUMNS, *"xyz", "ax", "ay", "az", "cell", "track")  # but for means


def columns_of(merged: dict[str, Any], means: Sequence[str], velocity: bool) -> dict[str, np.ndarray]:
    """The table: fragment, cells, volume, mass, x, y, z (centre of mass), vx, vy, vz (its velocity), the means, length,
    width and height of the oriented box, ax, ay, az (its long axis), hull_ratio, cell (the lowest number of a cell).

    merged: what _core.merge_fragments() gives. means: names, in its order. velocity: whether it was read.
    """
    count = len(merged["volume"])
    columns = {
        "fragment": np.arange(count),
        "cells": merged["cells"],
        "volume": merged["volume"],
        "mass": merged["mass"],
    }
    columns |= dict(zip("xyz", merged["centre"].T, strict=True))
    if velocity:
        columns |= dict(zip(VELOCITY, merged["velocity"].T, strict=True))
    columns |= dict(zip(means, merged["means"].reshape(count, len(means)).T, strict=True))
    fragment, points = merged["extremes"]
    extremes = np.split(points, np.searchsorted(fragment, np.arange(1, count)))[:count]
    columns |= shape_columns(merged["moments"].reshape(count, 3, 3), extremes, merged["volume"], merged["cells"])
    columns["cell"] = merged["lowest"]
    return columns


def shape_columns(
    moments: np.ndarray, extremes: list[np.ndarray], volume: np.ndarray, cells: np.ndarray
) -> dict[str, np.ndarray]:
    """Of fragments with these central second moments (n, 3, 3) and extreme points of their surfaces (k, 3) each.

    The box lies along the principal axes of the moments and holds the extreme points; its long axis points upwards in
    its largest component. hull_ratio is the volume by that of the convex hull of these points: near 1 for a ball, small
    for a U. The points are those of 162 directions, so that a ball's hull is a little too small. NaN: no finite moments
    (no mass, say); the ratio also for less than FEW_CELLS cells, whose surface is too coarse.
    """
    names = ("length", "width", "height", "ax", "ay", "az", "hull_ratio")
    rows = np.full((len(volume), len(names)), np.nan)
    for row, moment, points, inside, many in zip(rows, moments, extremes, volume, cells >= FEW_CELLS, strict=True):
        if not np.isfinite(moment).all():
            continue
        axes = np.linalg.eigh(moment)[1]
        turned = points @ axes
        sides = np.ptp(turned, axis=0)
        order = np.argsort(-sides, kind="stable")
        long = axes[:, order[0]]
        hull = _core.hull_volume(turned) if many else 0.0
        row[:] = [*sides[order], *(long * np.sign(long[np.abs(long).argmax()])), inside / hull if hull else np.nan]
    return dict(zip(names, rows.T, strict=True))
