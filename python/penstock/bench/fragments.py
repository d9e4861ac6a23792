"""`penstock bench fragments`: the surface, the components and the table of fragments on adaptive grids.

What ranks of an analysis exchange is counted twice: on grids of up to half a million blocks by computing who touches
whom, and with a few ranks on a stream. Speed is that of one core, by processor time, so that a busy machine matters
less. ParaView's filters run where there is pvbatch (on PATH, or PENSTOCK_PVBATCH names it).
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import fragments_data as data
from . import fragments_exchange
from .runner import run_programs
from .studies import Benchmark, Column, Figures, Row, Run, Sheet, add_options, carry_out, check_options, cores

STUDIES = fragments_exchange.STUDIES | {
    "speed": "blocks a second on one core",
}
THRESHOLD = 0.5
SPEED_DEPTH = 4  # about 2,000 blocks
PEERS = ("AMRDualContour", "AMRConnectivity", "AMRFragmentIntegration")


class Sizes:
    def __init__(self, quick: bool):
        self.strong_depth = 4 if quick else 5
        self.weak_depths = (3, 4) if quick else (3, 4, 5, 6, 7)  # to 8,192 ranks


# ---------------------------------------------------------------------------------------------------------------- speed


@functools.cache
def fields_of(depth: int) -> tuple[data.Octree, np.ndarray, np.ndarray]:
    """Three balls: the blocks, their values, and these with ghost cells."""
    tree = data.octree(data.THREE, depth, half=True)
    values = data.volume_fractions(data.THREE, tree)
    return tree, values, np.concatenate([padded for _, padded in data.with_ghosts(tree, values)])


def percent_off(value: float, right: float) -> float:
    return round(100 * float(value / right - 1), 9) + 0.0


def surface_errors(points: np.ndarray, triangles: np.ndarray) -> Figures:
    """Points that are equal but for rounding are one. Euler number: 2 for each ball."""
    places, number = np.unique(np.round(points * 2.0**24), axis=0, return_inverse=True)
    joined = number.reshape(-1)[triangles]
    joined = joined[(joined != np.roll(joined, 1, axis=1)).all(axis=1)]
    edges = np.sort(np.concatenate([joined[:, [a, b]] for a, b in ((0, 1), (1, 2), (2, 0))]), axis=1)
    different, uses = np.unique(edges, axis=0, return_counts=True)
    corners = places[joined] / 2.0**24
    volume = np.einsum("ij,ij->i", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])).sum() / 6
    return {
        "triangles": len(triangles),
        "open_edges": int((uses == 1).sum()),
        "crossed_edges": int((uses > 2).sum()),
        "euler": len(np.unique(joined)) - len(different) + len(joined),
        "volume_percent": percent_off(volume, data.THREE.volume),
    }


def mass_inside(tree: data.Octree, values: np.ndarray) -> float:
    """Of the cells that belong to fragments."""
    cells = np.where(values >= THRESHOLD, values, 0).sum(axis=(1, 2, 3))
    return float((cells * (tree.widths / data.CELLS) ** 3).sum())


def per_block(depth: int, run: Run) -> Figures:
    """Every block by itself, with its upper neighbours' first cells: what a contour filter makes of blocks."""
    from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
    from vtkmodules.vtkCommonDataModel import vtkImageData
    from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D

    tree, _, padded = fields_of(depth)
    points, triangles, first = [], [], 0
    begun = time.thread_time()
    for row in range(len(tree)):
        width = float(tree.widths[row])
        image = vtkImageData()
        image.SetDimensions(*(data.CELLS + 1,) * 3)
        image.SetSpacing(*(width / data.CELLS,) * 3)
        image.SetOrigin(*(width * (tree.indices[row] + 0.5 / data.CELLS)))
        own = np.maximum(padded[row, 1:, 1:, 1:], 0).ravel()  # outside the domain: below the threshold
        image.GetPointData().SetScalars(numpy_to_vtk(own))
        contour = vtkFlyingEdges3D()
        contour.SetInputData(image)
        contour.SetValue(0, THRESHOLD)
        contour.ComputeNormalsOff()
        contour.Update()
        surface = contour.GetOutput()
        if surface.GetNumberOfPolys():
            points.append(vtk_to_numpy(surface.GetPoints().GetData()).astype(np.float64))
            triangles.append(vtk_to_numpy(surface.GetPolys().GetConnectivityArray()).reshape(-1, 3) + first)
            first += len(points[-1])
    seconds = time.thread_time() - begun
    return speed_of(len(tree), seconds) | surface_errors(np.concatenate(points), np.concatenate(triangles))


def speed_of(blocks: int, seconds: float) -> Figures:
    return {"blocks": blocks, "cpu_ms": 1e3 * seconds, "blocks_per_s": blocks / seconds}


def paraview(pvbatch: str, name: str, depth: int, run: Run) -> Figures:
    tree, values, padded = fields_of(depth)
    blocks, out = run.folder / "blocks.npz", run.folder / "out.npz"
    np.savez(blocks, levels=tree.levels, indices=tree.indices, values=padded)
    script = Path(__file__).with_name("fragments_peer.py")
    run_programs([[pvbatch, str(script), name, str(blocks), str(THRESHOLD), str(out)]], {}, run.folder, run.deadline_s)
    found = np.load(out)
    figures = speed_of(len(tree), float(found["seconds"]))
    if "fragments" in found:
        figures["fragments"] = int(found["fragments"])
    if "masses" in found:
        figures["mass_percent"] = percent_off(float(found["masses"].sum()), mass_inside(tree, values))
    if "points" in found:
        figures |= surface_errors(found["points"], found["triangles"])
    return figures


# ----------------------------------------------------------------------------------------------------------------- rows


def speed_rows() -> tuple[list[Row], list[str]]:
    rows, left_out = [], []
    if importlib.util.find_spec("vtkmodules"):
        work = partial(per_block, SPEED_DEPTH)
        rows.append(Row("speed", "vtk", "per_block", "Flying Edges, every block by itself", work))
    else:
        left_out.append("speed: a contour of every block by itself; there is no VTK (pip install vtk)")
    pvbatch = os.environ.get("PENSTOCK_PVBATCH") or shutil.which("pvbatch")
    if pvbatch:
        rows += [Row("speed", "paraview", name, name, partial(paraview, pvbatch, name, SPEED_DEPTH)) for name in PEERS]
    else:
        left_out.append("speed: ParaView; there is no pvbatch on PATH, and PENSTOCK_PVBATCH is not set")
    return rows, left_out


def sheets() -> list[Sheet]:
    speed = (
        Column("blocks", "blocks"),
        Column("cpu_ms", "CPU ms"),
        Column("blocks_per_s", "blocks/s"),
        Column("fragments", "fragments\n(right: 3)"),
        Column("mass_percent", "their mass\n%"),
    )
    surface = (
        Column("triangles", "triangles"),
        Column("open_edges", "open edges"),
        Column("crossed_edges", "edges of more\nthan 2"),
        Column("euler", "Euler number\n(right: 6)"),
        Column("volume_percent", "volume %"),
    )
    return [
        *fragments_exchange.sheets(),
        Sheet("speed", f"speed: {STUDIES['speed']}; three balls, {data.CELLS}³ cells; {cores()} cores", speed),
        Sheet("speed", "speed: what is wrong with the surface", surface),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="penstock bench fragments", description=__doc__)
    add_options(parser, STUDIES)
    options: Any = parser.parse_args(arguments)
    options.repeat = options.repeat or (1 if options.quick else 5)
    check_options(parser, options, STUDIES)
    sizes = Sizes(options.quick)
    rows, left_out = speed_rows()
    exchange = fragments_exchange.rows_of(sizes.strong_depth, sizes.weak_depths)
    claims = [] if options.quick else fragments_exchange.claims(sizes.weak_depths)
    benchmark = Benchmark([*exchange, *rows], left_out, claims, sheets(), ())
    return carry_out(benchmark, options)
