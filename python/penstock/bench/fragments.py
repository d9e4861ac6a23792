"""`penstock bench fragments`: the surface, the components and the table of fragments on adaptive grids.

Speed is that of one core, by processor time, so that a busy machine matters less. ParaView's filters run where there is
pvbatch (on PATH, or PENSTOCK_PVBATCH names it); fragments_exchange.py has what ranks read.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ..analysis.fragments_search import Search, find
from ..analysis.fragments_table import columns_of
from . import fragments_data as data
from . import fragments_exchange, fragments_validation
from .runner import run_programs
from .studies import Benchmark, Claim, Column, Figures, Row, Run, Sheet, add_options, carry_out, check_options, cores

STUDIES = (
    fragments_validation.STUDIES
    | fragments_exchange.STUDIES
    | {
        "speed": "blocks a second on one core",
        "memory": "by how much the peak memory of a process grows that finds the fragments of a step",
    }
)
THRESHOLD = 0.5
HAS_VTK = importlib.util.find_spec("vtkmodules") is not None
SEARCH = Search("fraction", THRESHOLD, None, None, (), None, None)
SPEED_DEPTH = 4  # about 2,000 blocks
BODIES = {"": data.THREE, "many_": data.many(300, 1)}  # by the prefix of a row's name
MEMORY_DEPTHS = (3, 4, 5)  # 288 to 10,263 blocks
BATCH = 256  # blocks
PEERS = ("AMRDualContour", "AMRConnectivity", "AMRFragmentIntegration")


class Sizes:
    def __init__(self, quick: bool):
        self.strong_depth = 4 if quick else 5
        self.memory_depths = MEMORY_DEPTHS[:2] if quick else MEMORY_DEPTHS
        self.weak_depths = (3, 4) if quick else (3, 4, 5, 6, 7)  # to 8,192 ranks


# ---------------------------------------------------------------------------------------------------------------- speed


@functools.cache
def fields_of(depth: int, bodies: str = "") -> tuple[data.Octree, np.ndarray, np.ndarray]:
    """The blocks of balls, their values, and these with ghost cells."""
    tree = data.octree(BODIES[bodies], depth, half=True)
    values = data.volume_fractions(BODIES[bodies], tree)
    return tree, values, np.concatenate([padded for _, padded in data.with_ghosts(tree, values)])


def percent_off(value: float, right: float) -> float:
    return round(100 * float(value / right - 1), 9) + 0.0


def surface_errors(points: np.ndarray, triangles: np.ndarray) -> Figures:
    """Of three balls. Points that are equal but for rounding are one. Euler number: 2 for each ball."""
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


def ours(bodies: str, depth: int, surface: bool, parts: int, run: Run) -> Figures:
    """Of so many parts, one after the other; with their neighbours, and the table of all."""
    tree, values, _ = fields_of(depth, bodies)
    ends = [part * len(tree) // parts for part in range(parts + 1)]
    others = [np.concatenate([np.arange(a), np.arange(b, len(tree))]) for a, b in itertools.pairwise(ends)]
    begun = time.thread_time()
    found = []
    for first, last, rows in zip(ends, ends[1:], others, strict=False):
        own = tree.rows(first, last)
        if parts > 1:
            touching = _core.amr_touching(own.levels, own.indices, tree.levels[rows], tree.indices[rows], depth)
            rows = rows[touching]
        rows = np.concatenate([np.arange(first, last), rows])
        fields = {"fraction": [(values, rows)], "means": []}
        cells, origin, spacing = [data.CELLS] * 3, [0.0] * 3, [1 / data.CELLS] * 3
        levels, indices = tree.levels[rows], tree.indices[rows]
        found.append(
            _core.find_fragments(
                levels, indices, last - first, cells, origin, spacing, depth, fields, THRESHOLD, surface
            )
        )
    merged = _core.merge_fragments([part.encode() for part in found])
    if surface:  # what a filter takes: the table with boxes and hulls, what tracks follow, the surface
        columns_of(merged, SEARCH.means, velocity=False)
        for part in found:
            part.bricks()
        surfaces = [part.surface() for part in found]
    figures = speed_of(len(tree), time.thread_time() - begun)
    figures["fragments"] = len(merged["volume"])
    figures["mass_percent"] = percent_off(merged["volume"].sum(), mass_inside(tree, values))
    if surface and not bodies:
        starts = np.cumsum([0, *(len(points) for points, *_ in surfaces)])
        triangles = [its.astype(np.int64) + start for (_, _, its, _), start in zip(surfaces, starts, strict=False)]
        figures |= surface_errors(np.concatenate([points for points, *_ in surfaces]), np.concatenate(triangles))
    return figures


def paraview(pvbatch: str, name: str, bodies: str, depth: int, run: Run) -> Figures:
    tree, values, padded = fields_of(depth, bodies)
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
    if "points" in found and not bodies:
        figures |= surface_errors(found["points"], found["triangles"])
    return figures


# --------------------------------------------------------------------------------------------------------------- memory


class OneRank:
    """What the filters take blocks from: here the grid of an open step, of which one rank has all."""

    def __init__(self, grid: Any):
        self.grid = grid

    def blocks(self, fields: Sequence[str], algorithm: Any, batch: int | None) -> Any:
        from ..analysis.amr import Neighbourhood

        return Neighbourhood(self.grid, self.grid.parts(1)[0], algorithm).batches(fields, batch)


def status_kib(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{name}:")[1].split()[0])


def print_memory(folder: str, batch: int) -> None:
    """In a process of its own: what its peak memory grows by when it finds the fragments of a step, and their number.
    batch: 0 for all blocks at once."""
    import penstock

    from ..analysis import describe

    search = replace(SEARCH, batch=batch or None)
    with penstock.open("blocks", engine="file", folder=folder) as stream, stream.step() as step:
        source: Any = OneRank(describe(step)["grid"])
        before = status_kib("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        found = find(source, search, None)
        grown = status_kib("VmHWM") - before
    print(json.dumps({"grown_kib": grown, "fragments": len(found.columns["volume"])}))


def memory(depth: int, batch: int, run: Run) -> Figures:
    """The simulation had a rank to every PER_RANK blocks."""
    tree, values, _ = fields_of(depth)
    fragments_exchange.write_blocks(run.disk, tree, values, max(len(tree) // fragments_exchange.PER_RANK, 1))
    figures = run.figures([sys.executable, "-m", "penstock.bench.fragments", str(run.disk), str(batch)])
    return figures | {"blocks": len(tree), "field_kib": values.nbytes / 1024}


# ----------------------------------------------------------------------------------------------------------------- rows


def speed_rows() -> tuple[list[Row], list[str]]:
    rows, left_out = [], []
    for bodies, name, label, surface, parts in (
        ("", "fragments", "surface with extreme points, components, table", True, 1),
        ("", "parts", "the same in 8 parts", True, 8),
        ("", "components", "components and table alone", False, 1),
        ("many_", "fragments", "300 balls: surface, components, table", True, 1),
    ):
        work = partial(ours, bodies, SPEED_DEPTH, surface, parts)
        rows.append(Row("speed", "penstock", bodies + name, label, work))
    if HAS_VTK:
        alone = partial(per_block, SPEED_DEPTH)
        rows.append(Row("speed", "vtk", "per_block", "Flying Edges, every block by itself", alone))
    else:
        left_out.append("speed: a contour of every block by itself; there is no VTK (pip install vtk)")
    named = os.environ.get("PENSTOCK_PVBATCH") or "pvbatch"
    pvbatch = shutil.which(named)
    if pvbatch:
        for bodies, name in (*(("", name) for name in PEERS), ("many_", PEERS[0])):
            label = f"300 balls: {name}" if bodies else name
            work = partial(paraview, pvbatch, name, bodies, SPEED_DEPTH)
            rows.append(Row("speed", "paraview", bodies + name, label, work))
    else:
        left_out.append(f"speed: ParaView; there is no program {named} (install ParaView, or set PENSTOCK_PVBATCH)")
    return rows, left_out


def memory_rows(depths: Sequence[int]) -> Iterator[Row]:
    for depth, batch in itertools.product(depths, (0, BATCH)):
        label = f"{depth + 1} levels, {f'batches of {batch}' if batch else 'all blocks at once'}"
        yield Row("memory", "penstock", f"{depth}_{batch}", label, partial(memory, depth, batch))


def claims() -> list[Claim]:
    ours, theirs = ("speed", "penstock", "fragments"), ("speed", "paraview", "AMRDualContour")
    parts = ("speed", "penstock", "parts")
    many, many_theirs = ("speed", "penstock", "many_fragments"), ("speed", "paraview", "many_AMRDualContour")
    at_once, batches = (("memory", "penstock", f"{MEMORY_DEPTHS[-1]}_{batch}") for batch in (0, BATCH))
    return [
        Claim("surface, components and table: at least as many blocks a second as AMRDualContour's surface", ours,
              ("blocks_per_s",), 1.0, (theirs,)),
        Claim("the same for 300 balls: about as many", many, ("blocks_per_s",), 0.8, (many_theirs,)),
        Claim("the surface of 8 parts has no open edge", parts, ("open_edges",), 0, sense="at_most", unit=""),
        Claim(f"batches of {BATCH} take at most half the memory of all blocks at once", batches, ("grown_kib",), 0.5,
              (at_once,), sense="at_most", theirs_lower=True),
    ]  # fmt: skip


def sheets() -> list[Sheet]:
    speed = (
        Column("blocks", "blocks"),
        Column("cpu_ms", "CPU ms"),
        Column("blocks_per_s", "blocks/s"),
        Column("fragments", "fragments\n(of 3 balls: 3)"),
        Column("mass_percent", "their mass\n%"),
    )
    surface = (
        Column("triangles", "triangles"),
        Column("open_edges", "open edges"),
        Column("crossed_edges", "edges of more\nthan 2"),
        Column("euler", "Euler number\n(right: 6)"),
        Column("volume_percent", "volume %"),
    )
    kept = (
        Column("blocks", "blocks"),
        Column("fragments", "fragments"),
        Column("field_kib", "their field\nMiB", 2**-10),
        Column("grown_kib", "the analysis\nMiB", 2**-10),
    )
    return [
        *fragments_validation.sheets(),
        *fragments_exchange.sheets(),
        Sheet("speed", f"speed: {STUDIES['speed']}; three balls, {data.CELLS}³ cells; {cores()} cores", speed),
        Sheet("speed", "speed: what is wrong with the surface", surface),
        Sheet("memory", f"memory: {STUDIES['memory']}; one rank, engine file", kept),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="penstock bench fragments", description=__doc__)
    add_options(parser, STUDIES)
    options: Any = parser.parse_args(arguments)
    options.repeat = options.repeat or (1 if options.quick else 5)
    check_options(parser, options, STUDIES)
    sizes = Sizes(options.quick)
    rows, left_out = speed_rows()
    rows = [
        *fragments_validation.rows(),
        *fragments_exchange.rows_of(sizes.strong_depth, sizes.weak_depths),
        *rows,
        *memory_rows(sizes.memory_depths),
    ]
    judged = [] if options.quick else [*fragments_exchange.claims(sizes.weak_depths), *claims()]
    benchmark = Benchmark(rows, left_out, judged, sheets(), ())
    return carry_out(benchmark, options)


if __name__ == "__main__":
    print_memory(sys.argv[1], int(sys.argv[2]))
