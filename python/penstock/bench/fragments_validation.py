"""Whether fragments are right: closed surfaces, volumes, VTK's surface on one level, the same from any ranks.

Cells of bodies whose volumes are known, and of noise, on one level and across levels; no stream stands between.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import _core
from . import fragments_data as data
from .studies import Column, Figures, Row, Run, Sheet

STUDIES = {"validation": "whether surfaces are closed, volumes converge, and ranks and VTK agree"}
THRESHOLD = 0.5
NOISE_SEEDS = 4
RANKS = (1, 2, 3, 5, 8)


@dataclass(frozen=True)
class Torus(data.Balls):
    """Around an axis along z. centres: (1, 3), radii: of the ring and of the tube."""

    def distance(self, points: np.ndarray) -> np.ndarray:
        x, y, z = (points - self.centres[0]).T
        found: np.ndarray = np.hypot(np.hypot(x, y) - self.radii[0], z) - self.radii[1]
        return found

    @property
    def volume(self) -> float:
        return float(2 * np.pi**2 * self.radii[0] * self.radii[1] ** 2)


class HalfBall(data.Balls):
    """Cut in two by the domain's wall."""

    @property
    def volume(self) -> float:
        return super().volume / 2


TORUS = Torus(np.array([[0.5, 0.47, 0.52]]), np.array([0.27, 0.11]))
AT_WALL = HalfBall(np.array([[0.0, 0.43, 0.55]]), np.array([0.3]))


def uniform(depth: int) -> data.Octree:
    places = np.stack(np.unravel_index(np.arange(8**depth), (2**depth,) * 3), axis=1)
    tree = data.Octree(np.full(8**depth, depth), places, depth)
    order = np.argsort(tree.mortons())
    return data.Octree(tree.levels[order], tree.indices[order], depth)


class Pieces:
    """The fragments of a grid, found by ranks that have these rows of blocks each."""

    def __init__(self, tree: data.Octree, values: np.ndarray, ranks: Sequence[np.ndarray], refined: bool = False):
        splits = tree.mortons()[[own[0] for own in ranks]] if refined else None
        parts = []
        for own in ranks:
            others = np.setdiff1d(np.arange(len(tree)), own)
            if splits is not None:
                near = _core.amr_touching_domains(tree.levels[own], tree.indices[own], splits, tree.depth)
                others = np.intersect1d(others, np.concatenate([ranks[rank] for rank in near]))
            levels, indices = tree.levels, tree.indices
            touching = _core.amr_touching(levels[own], indices[own], levels[others], indices[others], tree.depth)
            rows = np.concatenate([own, others[touching]])
            fields: dict[str, Any] = {"fraction": [(values, rows)], "means": []}
            cells, origin, spacing = [data.CELLS] * 3, [0.0] * 3, [1 / data.CELLS] * 3
            parts.append(
                _core.find_fragments(
                    levels[rows], indices[rows], len(own), cells, origin, spacing, tree.depth, fields, THRESHOLD, True
                )
            )
        self.table = _core.merge_fragments([part.encode() for part in parts])
        maps = self.table.pop("maps")
        corners = [part.surface() for part in parts]
        ids = np.concatenate([its for _, its, _, _ in corners])
        self.ids, first, which = np.unique(ids, return_index=True, return_inverse=True)
        self.points = np.concatenate([points for points, *_ in corners])[first]
        starts = np.cumsum([0, *(len(its) for _, its, _, _ in corners)])
        numbered = [its.astype(np.int64) + start for (_, _, its, _), start in zip(corners, starts, strict=False)]
        self.triangles = which.reshape(-1)[np.concatenate(numbered)]
        self.fragment = np.concatenate([m[components] for m, (*_, components) in zip(maps, corners, strict=True)])

    def bad_edges(self) -> int:
        """Edges that are not once in two triangles, in opposite directions."""
        one, other = (np.concatenate([self.triangles[:, c] for c in order]) for order in ((0, 1, 2), (1, 2, 0)))
        forward, counts = np.unique(one * len(self.ids) + other, return_counts=True)
        backward = np.unique(other * len(self.ids) + one)
        return int((counts != 1).sum() + len(np.setxor1d(forward, backward)))

    def euler(self) -> int:
        """Corners - edges + triangles, of a closed surface."""
        return len(np.unique(self.triangles)) - len(self.triangles) * 3 // 2 + len(self.triangles)

    def volume(self) -> float:
        a, b, c = self.points[self.triangles].swapaxes(0, 1)
        return float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6)

    def same_as(self, other: Pieces) -> bool:
        """Bit by bit: the table, the points, and the triangles, whatever the order."""
        tables = all(np.array_equal(self.table[name], other.table[name]) for name in ("volume", "centre", "moments"))
        one, two = (np.unique(np.column_stack([p.ids[p.triangles], p.fragment]), axis=0) for p in (self, other))
        return tables and np.array_equal(self.points, other.points) and np.array_equal(one, two)


# ---------------------------------------------------------------------------------------------------------------- cases


def closed(tree: data.Octree, body: data.Balls, right: int, run: Run) -> Figures:
    values = data.volume_fractions(body, tree)
    found = Pieces(tree, values, [np.arange(len(tree))])
    above, below = (found.table[where]["volume"] for where in ("above", "below"))
    all_of_it = float((values.sum(axis=(1, 2, 3)) * (tree.widths / data.CELLS) ** 3).sum())
    return {
        "blocks": len(tree), "triangles": len(found.triangles), "bad_edges": found.bad_edges(),
        "euler_off": found.euler() - right, "volume_percent": 100 * (found.volume() / body.volume - 1),
        "lost": abs(above + below - all_of_it) / all_of_it,
    }  # fmt: skip


def noise(run: Run) -> Figures:
    """Random octrees, random numbers in all cells, some of them at the threshold."""
    blocks = triangles = bad = 0
    for seed in range(NOISE_SEEDS):
        tree = data.octree(data.many(2, seed), 3, half=True)
        values = np.random.default_rng(seed).uniform(size=(len(tree), *(data.CELLS,) * 3))
        values[values > 0.9] = THRESHOLD
        found = Pieces(tree, values, [np.arange(len(tree))])
        blocks, triangles, bad = blocks + len(tree), triangles + len(found.triangles), bad + found.bad_edges()
    return {"blocks": blocks, "triangles": triangles, "bad_edges": bad}


def converging(half: bool, run: Run) -> Figures:
    """The errors of the volume, in percent, at cells half as wide each, and the order of the last two."""
    errors = []
    for depth in (2, 3, 4):
        tree = data.octree(data.ONE, depth, half=half) if half else uniform(depth)
        values = data.volume_fractions(data.ONE, tree, ramp=4)
        found = Pieces(tree, values, [np.arange(len(tree))])
        errors.append(100 * (found.volume() / data.ONE.volume - 1))
    order = float(np.log2(abs(errors[1] / errors[2])))
    return {"coarse": errors[0], "middle": errors[1], "fine": errors[2], "order": order}


def beside_vtk(run: Run) -> Figures:
    from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
    from vtkmodules.vtkCommonDataModel import vtkImageData
    from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D, vtkPolyDataConnectivityFilter

    tree = uniform(3)
    values = data.volume_fractions(data.THREE, tree)
    found = Pieces(tree, values, [np.arange(len(tree))])
    n = data.CELLS * 2**3
    whole = np.empty((n, n, n))
    for at, block in zip(tree.indices * data.CELLS, values, strict=True):
        whole[tuple(slice(first, first + data.CELLS) for first in at[::-1])] = block
    image = vtkImageData()
    image.SetDimensions(n, n, n)
    image.SetSpacing(1 / n, 1 / n, 1 / n)
    image.SetOrigin(0.5 / n, 0.5 / n, 0.5 / n)
    image.GetPointData().SetScalars(numpy_to_vtk(whole.ravel()))
    edges, regions = vtkFlyingEdges3D(), vtkPolyDataConnectivityFilter()
    edges.SetInputData(image)
    edges.SetValue(0, THRESHOLD)
    edges.Update()
    regions.SetInputData(edges.GetOutput())
    regions.SetExtractionModeToAllRegions()
    regions.Update()
    theirs = vtk_to_numpy(edges.GetOutput().GetPoints().GetData()).astype(float)
    same = len(theirs) == len(found.points)
    ordered = [each[np.lexsort(np.rint(each * 1e5).T)] for each in (theirs, found.points)]
    return {
        "points": len(found.points), "vtk_points": len(theirs), "our_triangles": len(found.triangles),
        "vtk_triangles": edges.GetOutput().GetNumberOfCells(),
        "apart": float(np.abs(ordered[0] - ordered[1]).max()) if same else np.inf,
        "fragments": len(found.table["volume"]), "vtk_regions": regions.GetNumberOfExtractedRegions(),
    }  # fmt: skip


def any_ranks(placement: str, run: Run) -> Figures:
    """Of so many divisions among ranks, how many have another table or surface than one rank."""
    tree = data.octree(data.THREE, 4, half=True)
    values = data.volume_fractions(data.THREE, tree)
    alone, differ = Pieces(tree, values, [np.arange(len(tree))]), 0
    for ranks in RANKS:
        rows = np.arange(len(tree))
        if placement == "random":
            rows = np.random.default_rng(ranks).permutation(rows)
        divided = [np.sort(each) for each in np.array_split(rows, ranks)]
        differ += not Pieces(tree, values, divided, refined=placement == "refined").same_as(alone)
    return {"divisions": len(RANKS), "differ": differ}


def rows() -> Iterator[Row]:
    bodies = {
        "ball": (data.ONE, 2),
        "three balls": (data.THREE, 6),
        "torus": (TORUS, 0),
        "ball cut by a wall": (AT_WALL, 2),
    }
    for (name, (body, right)), levels in itertools.product(bodies.items(), ("one level", "across levels")):
        tree = uniform(3) if levels == "one level" else data.octree(body, 4, half=True)
        work = partial(closed, tree, body, right)
        yield Row("validation", "closed", f"{name}, {levels}", f"{name}, {levels}", work)
    yield Row("validation", "closed", "noise", f"noise on {NOISE_SEEDS} octrees", noise)
    for half, name in ((False, "one level"), (True, "across levels")):
        yield Row("validation", "converging", name, f"ball, {name}", partial(converging, half))
    yield Row("validation", "vtk", "vtk", "three balls, one level", beside_vtk)
    for placement in ("baseline", "refined", "random"):
        label = {"random": "blocks at random"}.get(placement, f"runs of the Z curve, {placement}")
        yield Row("validation", "ranks", placement, label, partial(any_ranks, placement))


def sheets() -> list[Sheet]:
    return [
        Sheet("validation", "validation: closed surfaces (bad edges, Euler number) and what is conserved", (
            Column("blocks", "blocks"), Column("triangles", "triangles"), Column("bad_edges", "bad edges"),
            Column("euler_off", "Euler number\noff by"), Column("volume_percent", "volume %"),
            Column("lost", "fragments + rest\n- all, relative"),
        )),
        Sheet("validation", "validation: error of the volume, %, at cells half as wide each", (
            Column("coarse", "1/32"), Column("middle", "1/64"), Column("fine", "1/128"), Column("order", "order"),
        )),
        Sheet("validation", "validation: beside VTK's Flying Edges and connectivity", (
            Column("points", "points"), Column("vtk_points", "VTK's"), Column("our_triangles", "triangles"),
            Column("vtk_triangles", "VTK's"), Column("apart", "points apart by"), Column("fragments", "fragments"),
            Column("vtk_regions", "VTK's"),
        )),
        Sheet("validation", f"validation: {', '.join(map(str, RANKS))} ranks beside one, bit by bit", (
            Column("divisions", "divisions"), Column("differ", "other table\nor surface"),
        )),
    ]  # fmt: skip
