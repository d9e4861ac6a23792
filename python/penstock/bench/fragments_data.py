"""Balls in octrees of blocks, for `penstock bench fragments` and its tests.

A block has 8^3 cells and lies at `indices` (x, y, z), counted in blocks of its level; level 0 is the unit cube. Blocks
are in the order of their Morton numbers (bit 0 is of x, 1 of y, 2 of z). Blocks that touch differ by one level at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..analysis.partition import morton_numbers

CELLS = 8  # of a block, along each axis
# A block is refined when its centre is within so many of its widths of a surface. Blocks of a level and the next that
# touch have their centres at most 1.5 sqrt(3) widths of the smaller apart: no less than 2.598 keeps levels 2:1.
REACH = 2.6
FEW = 4096  # blocks whose cells are computed at once


@dataclass(frozen=True)
class Balls:
    """That do not touch. centres: (n, 3); radii: (n,)."""

    centres: np.ndarray
    radii: np.ndarray

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Of points (n, 3) to the nearest surface, negative inside."""
        nearest = np.full(len(points), np.inf)
        for centre, radius in zip(self.centres, self.radii, strict=True):
            away = points - centre
            np.minimum(nearest, np.sqrt(np.einsum("ij,ij->i", away, away)) - radius, out=nearest)
        return nearest

    @property
    def volume(self) -> float:
        return float((4 / 3 * np.pi * self.radii**3).sum())


ONE = Balls(np.array([[0.5, 0.5, 0.5]]), np.array([0.31]))
THREE = Balls(np.array([[0.25, 0.27, 0.3], [0.71, 0.66, 0.28], [0.45, 0.55, 0.75]]), np.array([0.19, 0.21, 0.17]))


def many(count: int, seed: int) -> Balls:
    """At random places, of radii that fit: small enough that all find room."""
    random = np.random.default_rng(seed)
    largest = 0.4 * count ** (-1 / 3)
    centres, radii = np.empty((0, 3)), np.empty(0)
    while len(radii) < count:
        radius = random.uniform(0.5, 1) * largest
        centre = random.uniform(radius, 1 - radius, 3)
        if (np.linalg.norm(centres - centre, axis=1) > radii + 1.2 * radius).all():
            centres, radii = np.vstack([centres, centre]), np.append(radii, radius)
    return Balls(centres, radii)


@dataclass(frozen=True)
class Octree:
    levels: np.ndarray  # (n,) int64
    indices: np.ndarray  # (n, 3) int64
    depth: int  # no block is of a higher level

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def widths(self) -> np.ndarray:
        """Of the blocks."""
        return 0.5**self.levels

    def mortons(self) -> np.ndarray:
        return morton_numbers(self.levels, self.indices, self.depth)

    def rows(self, first: int, last: int) -> Octree:
        return Octree(self.levels[first:last], self.indices[first:last], self.depth)


def octree(balls: Balls, depth: int, half: bool = False) -> Octree:
    """Blocks of the level `depth` at all surfaces; half: only where y < 1/2, so that surfaces cross the levels."""
    children = np.stack(np.unravel_index(np.arange(8), (2, 2, 2))[::-1], axis=1)
    indices = np.zeros((1, 3), np.int64)
    levels, leaves = [], []
    for level in range(depth + 1):
        width = 0.5**level
        split = np.abs(balls.distance((indices + 0.5) * width)) <= (REACH * width if level < depth else -1)
        if half and level == depth - 1:
            split &= indices[:, 1] < 2**level / 2
        leaves.append(indices[~split])
        levels.append(np.full(len(leaves[-1]), level))
        indices = (2 * indices[split, None] + children).reshape(-1, 3)
    tree = Octree(np.concatenate(levels), np.concatenate(leaves), depth)
    order = np.argsort(tree.mortons())
    return Octree(tree.levels[order], tree.indices[order], depth)


def volume_fractions(balls: Balls, tree: Octree, ramp: float = 1.0) -> np.ndarray:
    """(blocks, z, y, x): 1 inside, 0 outside, and linear over so many cells at a surface."""
    places = np.moveaxis(np.indices((CELLS,) * 3), 0, -1)[..., ::-1] + 0.5
    values = np.empty((len(tree), *places.shape[:3]))
    for first in range(0, len(tree), FEW):
        some = tree.rows(first, first + FEW)
        cell = (some.widths / CELLS)[:, None, None, None]
        points = some.indices[:, None, None, None] * some.widths[:, None, None, None, None] + places * cell[..., None]
        distance = balls.distance(points.reshape(-1, 3)).reshape(len(some), *places.shape[:3])
        values[first : first + FEW] = np.clip(0.5 - distance / (ramp * cell), 0, 1)
    return values


def with_ghosts(tree: Octree, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Rows from one on, and their values (blocks, z, y, x) with a layer of ghost cells as the block's level sees them:
    the coarser cell that covers the place, the mean of the finer ones in it, -inf outside the domain."""
    starts = tree.mortons()
    side = CELLS + 2
    outer = np.moveaxis(np.indices((side,) * 3), 0, -1).reshape(-1, 3)
    outer = outer[((outer == 0) | (outer == side - 1)).any(axis=1)]
    eighths = np.stack(np.unravel_index(np.arange(8), (2, 2, 2)), axis=1)
    for first in range(0, len(tree), FEW // 8):
        some = tree.rows(first, first + FEW // 8)
        padded = np.empty((len(some), *(side,) * 3))
        padded[:, 1:-1, 1:-1, 1:-1] = values[first : first + FEW // 8]
        # Places of eighths of ghost cells, counted in cells of half the least width.
        unit = 1 << (tree.depth - some.levels)
        cells = some.indices[:, None, ::-1] * CELLS + outer - 1
        fine = (2 * cells[:, :, None] + eighths) * unit[:, None, None, None]
        there = ((cells >= 0) & (cells < (CELLS << some.levels)[:, None, None])).all(axis=2)
        found = np.full((*there.shape, 8), -np.inf)
        found[there] = values_at(tree, starts, values, fine[there].reshape(-1, 3)).reshape(-1, 8)
        padded[:, outer[:, 0], outer[:, 1], outer[:, 2]] = found.mean(axis=2)
        yield first, padded


def values_at(tree: Octree, starts: np.ndarray, values: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """fine: places (n, 3) z, y, x, counted in cells of half the least width."""
    blocks = fine[:, ::-1] // (2 * CELLS)
    numbers = morton_numbers(np.full(len(blocks), tree.depth), blocks, tree.depth)
    rows = np.searchsorted(starts, numbers, side="right") - 1
    cells = fine // (2 << (tree.depth - tree.levels[rows]))[:, None] - tree.indices[rows, ::-1] * CELLS
    return np.asarray(values[rows, cells[:, 0], cells[:, 1], cells[:, 2]])
