"""What ranks of an analysis of fragments read: computed, for grids of up to half a million blocks, and counted.

`baseline`: every rank reads where all blocks are. `refined`: it reads the splits, and where the blocks of those ranks
are that the splits name. Both then read the values of the blocks that touch the rank's own.
"""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from . import fragments_data as data
from .runner import RunFailed
from .studies import Claim, Column, Figures, Row, Run, Sheet

ALGORITHMS = ("baseline", "refined")
PLACE_BYTES = 16  # of a block: its level and three indices, int32
SPLIT_BYTES = 8  # of a rank: the Morton number of its first block
VALUE_BYTES = 8 * data.CELLS**3  # of a block: one field, float64
STRONG = (2, 4, 8)
PER_RANK = 64  # blocks, where the problem grows with the ranks
SEED = 5  # of the places of 16 balls
SAMPLE = 64  # ranks that are looked at
FEW = 4  # of these, that go through all blocks
STREAM_DEPTH = 4  # 3,522 blocks
STUDIES = {
    "exchange": "what a rank reads to find the blocks that touch its own, by computing who touches whom",
    "streams": "the same as a stream counts it, beside what is computed",
}


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
    return figures | mean_and_most(counts)


def mean_and_most(ranks: Sequence[Mapping[str, float]]) -> Figures:
    figures: Figures = {}
    for name in ranks[0]:
        values = [one[name] for one in ranks]
        figures |= {name: float(np.mean(values)), f"{name}_most": max(values)}
    return figures


# -------------------------------------------------------------------------------------------------------------- streams


def write_blocks(folder: Path, tree: data.Octree, values: np.ndarray, ranks: int) -> None:
    """A step of a stream in files, as a simulation of so many ranks writes it."""
    import penstock

    ends = np.arange(ranks + 1) * len(tree) // ranks
    mesh: dict[str, Any] = {"type": "amr", "cells": [data.CELLS] * 3, "axes": "zyx", "depth": tree.depth}
    mesh |= {"levels": "levels", "indices": "indices", "splits": "splits", "spacing": [1 / data.CELLS] * 3}
    mesh["fields"] = {"fraction": {"association": "element", "variables": ["fraction"]}}
    with penstock.create("blocks", engine="file", folder=str(folder)) as stream, stream.step() as step:
        for first, last in itertools.pairwise(ends.tolist()):
            step.put_local("levels", tree.levels[first:last].astype(np.int32))
            step.put_local("indices", tree.indices[first:last].astype(np.int32))
            step.put_local("fraction", values[first:last])
        step["splits"] = tree.mortons()[ends[:-1]]
        step.attributes["meshes"] = json.dumps({"version": 1, "meshes": {"grid": mesh}})


def streams(ranks: int, algorithm: Any, run: Run) -> Figures:
    """The ranks' parts are read one after the other."""
    import penstock

    from ..analysis import describe
    from ..analysis.amr import Neighbourhood

    tree, mortons = tree_of(3, STREAM_DEPTH)
    ends = np.arange(ranks + 1) * len(tree) // ranks
    write_blocks(run.disk, tree, data.volume_fractions(data.THREE, tree), ranks)
    counts = []
    with penstock.open("blocks", engine="file", folder=str(run.disk)) as stream, stream.step() as step:
        grid: Any = describe(step)["grid"]
        for rank, part in enumerate(grid.parts(ranks)):
            near = Neighbourhood(grid, part, algorithm)
            messages, size = near.messages, near.bytes
            for _ in near.batches(["fraction"]):
                pass
            expected, touching = refined(tree, mortons[ends[:-1]], ends, rank)
            computed: tuple[float, float] = (2 * (ranks - 1), PLACE_BYTES * (len(tree) - near.own))
            if algorithm == "refined":  # and the splits, one message
                computed = (2 * expected["find_messages"] + 1, expected["find_bytes"] + SPLIT_BYTES * ranks)
            found = (messages, size, len(near.rows) - near.own)
            apart = sum(abs(one - other) for one, other in zip(found, (*computed, len(touching)), strict=True))
            counts.append(
                {
                    "find_messages": messages,
                    "find_bytes": size,
                    "apart": apart,
                    "value_messages": near.messages - messages,
                    "value_bytes": near.bytes - size,
                    "touching_bytes": VALUE_BYTES * len(touching),
                }
            )
    return {"ranks": ranks} | mean_and_most(counts)


# ----------------------------------------------------------------------------------------------------------------- rows


def rows_of(strong_depth: int, weak_depths: Sequence[int]) -> Iterator[Row]:
    for algorithm, ranks in itertools.product(ALGORITHMS, STRONG):
        work = partial(exchange, 3, strong_depth, ranks, algorithm)
        label = f"{algorithm}, one grid, {ranks} ranks"
        yield Row("exchange", "penstock", f"{algorithm}_strong_{ranks}", label, work)
    for depth, algorithm in itertools.product(weak_depths, ALGORITHMS):
        work = partial(exchange, 16, depth, 0, algorithm)
        label = f"{algorithm}, {PER_RANK} blocks a rank, {depth + 1} levels"
        yield Row("exchange", "penstock", f"{algorithm}_weak_{depth}", label, work)
    for ranks, algorithm in itertools.product(STRONG, ALGORITHMS):
        label = f"{algorithm}, {ranks} ranks"
        yield Row("streams", "penstock", f"{algorithm}_{ranks}", label, partial(streams, ranks, algorithm))


def spread(name: str, heading: str, scale: float = 1.0) -> tuple[Column, Column]:
    return Column(name, heading, scale), Column(f"{name}_most", "most", scale)


def sheets() -> list[Sheet]:
    finding = (
        Column("blocks", "blocks"),
        Column("ranks", "ranks"),
        *spread("find_messages", "messages"),
        *spread("find_bytes", "KiB", 2**-10),
        Column("splits_bytes", "splits, KiB", 2**-10),
        Column("cpu_ms", "CPU ms"),
    )
    values = (*spread("value_messages", "messages"), *spread("value_bytes", "KiB", 2**-10))
    counted = (
        *spread("find_messages", "to find:\nmessages"),
        *spread("find_bytes", "KiB", 2**-10),
        Column("apart_most", "apart from\ncomputed"),
        *spread("value_messages", "values:\nmessages"),
        *spread("value_bytes", "KiB", 2**-10),
        Column("touching_bytes", "of blocks\nthat touch", 2**-10),
    )
    text = "exchange: the values of the blocks that touch a rank's own, the same for both; one field, float64"
    return [
        Sheet("exchange", f"exchange: {STUDIES['exchange']}; mean and most of a rank", finding),
        Sheet("exchange", text, values),
        Sheet("streams", f"streams: {STUDIES['streams']}; engine file", counted),
    ]


def claims(weak_depths: Sequence[int]) -> list[Claim]:
    before, refined, baseline = (
        ("exchange", "penstock", f"{algorithm}_weak_{weak_depths[place]}")
        for algorithm, place in (("refined", -2), ("refined", -1), ("baseline", -1))
    )
    found = [
        Claim(f"refined: with 4× the ranks a rank {text}", refined, (figure,), 1.1, (before,), sense="at_most",
              theirs_lower=True)
        for text, figure in (
            ("finds its neighbours in at most 1.1× the bytes, without splits", "find_bytes"),
            ("finds its neighbours in at most 1.1× the messages", "find_messages"),
            ("reads at most 1.1× the values", "value_bytes"),
        )
    ]  # fmt: skip
    text = "baseline: at the most ranks at least 10× the bytes of refined"
    found.append(Claim(text, baseline, ("find_bytes",), 10, (refined,), theirs_lower=True))
    for algorithm in ALGORITHMS:
        text = f"{algorithm}: 8 ranks read from a stream the messages and bytes that are computed"
        key = ("streams", "penstock", f"{algorithm}_8")
        found.append(Claim(text, key, ("apart_most",), 0, sense="at_most", unit=" apart"))
    return found
