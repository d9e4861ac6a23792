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
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from . import fragments_data as data
from .runner import RunFailed, run_programs
from .studies import Benchmark, Claim, Column, Figures, Row, Run, Sheet, add_options, carry_out, check_options, cores

STUDIES = {
    "exchange": "what a rank reads to find the blocks that touch its own, by computing who touches whom",
    "speed": "blocks a second on one core",
}
ALGORITHMS = ("baseline", "refined")
THRESHOLD = 0.5
PLACE_BYTES = 16  # of a block: its level and three indices, int32
SPLIT_BYTES = 8  # of a rank: the Morton number of its first block
VALUE_BYTES = 8 * data.CELLS**3  # of a block: one field, float64
STRONG = (2, 4, 8)
PER_RANK = 64  # blocks, where the problem grows with the ranks
SEED = 5  # of the places of 16 balls
SAMPLE = 64  # ranks that are looked at
FEW = 4  # of these, that go through all blocks
SPEED_DEPTH = 4  # about 2,000 blocks
PEERS = ("AMRDualContour", "AMRConnectivity", "AMRFragmentIntegration")


class Sizes:
    def __init__(self, quick: bool):
        self.strong_depth = 4 if quick else 5
        self.weak_depths = (3, 4) if quick else (3, 4, 5, 6, 7)  # to 8,192 ranks


# ------------------------------------------------------------------------------------------------------------- exchange


@functools.cache
def tree_of(balls: int, depth: int) -> tuple[data.Octree, np.ndarray]:
    """Around three balls or more, with the Morton numbers of its blocks."""
    tree = data.octree(data.THREE if balls == 3 else data.many(balls, SEED), depth)
    return tree, tree.mortons()


def touching(
    tree: data.Octree, ends: np.ndarray, rank: int, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Rows of the blocks of these ranks, those of them that touch the rank's blocks, and the processor time, ms."""
    own = tree.rows(ends[rank], ends[rank + 1])
    rows = np.concatenate([np.arange(ends[other], ends[other + 1]) for other in others if other != rank])
    levels, indices = tree.levels[rows], tree.indices[rows]
    begun = time.thread_time()
    found = _core.amr_touching(own.levels, own.indices, levels, indices, tree.depth)
    return rows, rows[found], 1e3 * (time.thread_time() - begun)


def refined(tree: data.Octree, splits: np.ndarray, ends: np.ndarray, rank: int) -> tuple[dict[str, float], np.ndarray]:
    """What a rank reads beside the splits, and the blocks that touch its own."""
    own = tree.rows(ends[rank], ends[rank + 1])
    begun = time.thread_time()
    named = _core.amr_touching_domains(own.levels, own.indices, splits, tree.depth)
    naming_ms = 1e3 * (time.thread_time() - begun)
    rows, found, ms = touching(tree, ends, rank, named)
    return {
        "find_messages": len(named) - 1,
        "find_bytes": PLACE_BYTES * len(rows),
        "cpu_ms": naming_ms + ms,
        "value_messages": len(np.unique(np.searchsorted(ends, found, side="right"))),
        "value_bytes": VALUE_BYTES * len(found),
    }, found


def baseline(tree: data.Octree, ends: np.ndarray, rank: int, found: np.ndarray) -> float:
    """Goes through all blocks, which has to find the same; its processor time, ms."""
    _, same, ms = touching(tree, ends, rank, np.arange(len(ends) - 1))
    if not np.array_equal(same, found):
        raise RunFailed(f"rank {rank}: {len(found)} blocks touch its own by the splits, and {len(same)} of all blocks")
    return ms


def exchange(balls: int, depth: int, ranks: int, algorithm: str, run: Run) -> Figures:
    """ranks: 0 for one to every PER_RANK blocks."""
    tree, mortons = tree_of(balls, depth)
    ranks = ranks or max(len(tree) // PER_RANK, 2)
    ends = np.arange(ranks + 1) * len(tree) // ranks
    chosen = [int(rank) for rank in np.unique(np.linspace(0, ranks - 1, min(ranks, SAMPLE)).astype(int))]
    found = [refined(tree, mortons[ends[:-1]], ends, rank) for rank in chosen]
    if algorithm == "refined":
        counts = [figures for figures, _ in found]
    else:
        few = range(0, len(chosen), max(len(chosen) // FEW, 1))
        cpu_ms = float(np.mean([baseline(tree, ends, chosen[n], found[n][1]) for n in few]))
        others = [int(len(tree) - (ends[rank + 1] - ends[rank])) for rank in chosen]
        counts = [
            {"find_messages": ranks - 1, "find_bytes": PLACE_BYTES * blocks, "cpu_ms": cpu_ms} for blocks in others
        ]
    figures: Figures = {"blocks": len(tree), "ranks": ranks, "looked_at": len(chosen)}
    figures["splits_bytes"] = SPLIT_BYTES * ranks if algorithm == "refined" else 0
    for name in counts[0]:
        values = [one[name] for one in counts]
        figures |= {name: float(np.mean(values)), f"{name}_most": max(values)}
    return figures


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


def exchange_rows(sizes: Sizes) -> Iterator[Row]:
    for algorithm in ALGORITHMS:
        for ranks in STRONG:
            work = partial(exchange, 3, sizes.strong_depth, ranks, algorithm)
            yield Row(
                "exchange", "penstock", f"{algorithm}_strong_{ranks}", f"{algorithm}, one grid, {ranks} ranks", work
            )
    for depth in sizes.weak_depths:
        for algorithm in ALGORITHMS:
            work = partial(exchange, 16, depth, 0, algorithm)
            label = f"{algorithm}, {PER_RANK} blocks a rank, {depth + 1} levels"
            yield Row("exchange", "penstock", f"{algorithm}_weak_{depth}", label, work)


def speed_rows(sizes: Sizes) -> tuple[list[Row], list[str]]:
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


def sheets_of(sizes: Sizes) -> list[Sheet]:
    finding = (
        Column("blocks", "blocks"),
        Column("ranks", "ranks"),
        Column("find_messages", "messages"),
        Column("find_messages_most", "most"),
        Column("find_bytes", "KiB", 2**-10),
        Column("find_bytes_most", "most", 2**-10),
        Column("splits_bytes", "splits, KiB", 2**-10),
        Column("cpu_ms", "CPU ms"),
    )
    values = (
        Column("value_messages", "messages"),
        Column("value_messages_most", "most"),
        Column("value_bytes", "KiB", 2**-10),
        Column("value_bytes_most", "most", 2**-10),
    )
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
        Sheet("exchange", f"exchange: {STUDIES['exchange']}; mean and most of a rank", finding),
        Sheet(
            "exchange",
            "exchange: the values of the blocks that touch a rank's own, the same for both; one field, float64",
            values,
        ),
        Sheet("speed", f"speed: {STUDIES['speed']}; three balls, {data.CELLS}³ cells; {cores()} cores", speed),
        Sheet("speed", "speed: what is wrong with the surface", surface),
    ]


def claims_of(sizes: Sizes) -> list[Claim]:
    most = sizes.weak_depths[-1]
    weak = {algorithm: ("exchange", "penstock", f"{algorithm}_weak_{most}") for algorithm in ALGORITHMS}
    before = ("exchange", "penstock", f"refined_weak_{sizes.weak_depths[-2]}")
    return [
        Claim("refined: with 4× the ranks a rank finds its neighbours in at most 1.1× the bytes, without splits",
              weak["refined"], ("find_bytes",), 1.1, (before,), sense="at_most", theirs_lower=True),
        Claim("refined: and in at most 1.1× the messages", weak["refined"], ("find_messages",), 1.1, (before,),
              sense="at_most", theirs_lower=True),
        Claim("refined: and reads at most 1.1× the values", weak["refined"], ("value_bytes",), 1.1, (before,),
              sense="at_most", theirs_lower=True),
        Claim("baseline: the bytes are at least 10× those of refined", weak["baseline"], ("find_bytes",), 10,
              (weak["refined"],), theirs_lower=True),
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="penstock bench fragments", description=__doc__)
    add_options(parser, STUDIES)
    options: Any = parser.parse_args(arguments)
    options.repeat = options.repeat or (1 if options.quick else 5)
    check_options(parser, options, STUDIES)
    sizes = Sizes(options.quick)
    rows, left_out = speed_rows(sizes)
    claims = [] if options.quick else claims_of(sizes)
    benchmark = Benchmark([*exchange_rows(sizes), *rows], left_out, claims, sheets_of(sizes), ())
    return carry_out(benchmark, options)
