"""Finding the fragments of a frame: what each rank finds in its blocks, joined over all ranks.

docs/internals/fragments.md says how they are found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import _core
from ..cohort import Cohort, rank_of
from ..errors import InvalidArgument
from .agreement import exchange
from .amr import Arrays, Batch, Runs
from .chain import Source
from .description import AmrDescription
from .fragments_table import columns_of
from .tracking import Bricks


@dataclass(frozen=True)
class Search:
    """What decides which fragments are found: equal searches of one frame are made once."""

    field: str
    threshold: float
    mass: str | None
    velocity: str | None
    means: tuple[str, ...]
    algorithm: str | None
    batch: int | None

    @property
    def fields(self) -> list[str]:
        names = (self.field, self.mass, self.velocity, *self.means)
        return list(dict.fromkeys(name for name in names if name is not None))


@dataclass(frozen=True)
class Piece:
    """The surface that this rank found in one batch: points (n, 3), triangles (m, 3), the fragment of each triangle,
    and the number of each point, which is the same on all ranks that have it."""

    points: np.ndarray
    triangles: np.ndarray
    fragment: np.ndarray
    ids: np.ndarray


@dataclass(frozen=True)
class Found:
    """The fragments of one frame. It refers to no block of the frame.

    columns: a row for each fragment, by volume, the largest first; the same on all ranks. bricks: what the fragments
    have of the cells of level 0, and pieces, of this rank. maps: of each batch, the fragment of each component.
    """

    columns: dict[str, np.ndarray]
    bricks: list[Bricks]
    pieces: list[Piece]
    maps: list[np.ndarray]


def find(source: Source, search: Search, cohort: Cohort | None) -> Found:
    """Collective. InvalidArgument: neighbouring blocks differ by more than one level, or a field has another shape."""
    parts: list[Any] = []
    bricks: list[Bricks] = []

    def mine() -> list[bytes]:
        encoded = []
        for batch in source.blocks(search.fields, search.algorithm, search.batch):
            part = _part(batch, search)
            parts.append(part)
            encoded.append(part.encode())
            bricks.append(Bricks(*part.bricks()))
            part.release()  # no blocks but those of a batch are in memory
        return encoded

    def joined(by_rank: list[list[bytes]]) -> tuple[dict[str, np.ndarray], list[list[np.ndarray]]]:
        merged = _core.merge_fragments([part for found in by_rank for part in found])
        maps = iter(merged["maps"])
        return columns_of(merged, search.means, search.velocity is not None), [
            [next(maps) for _ in found] for found in by_rank
        ]

    columns, by_rank = exchange(cohort, mine, joined)
    maps = by_rank[rank_of(cohort)]
    pieces = []
    for part, numbers in zip(parts, maps, strict=True):
        points, ids, triangles, components = part.surface()
        pieces.append(Piece(points, triangles, numbers[components], ids))
    followed = [replace(each, row=numbers[each.row]) for each, numbers in zip(bricks, maps, strict=True)]
    return Found(columns, followed, pieces, maps)


def labels_of(source: Source, search: Search, found: Found) -> np.ndarray:
    """The fragment of each cell of this rank's own blocks, x fastest, without ghost layers; -1 for none."""
    plain = replace(search, mass=None, velocity=None, means=())
    batches = source.blocks(plain.fields, plain.algorithm, plain.batch)
    labels = [_part(batch, plain, False).labels(numbers) for batch, numbers in zip(batches, found.maps, strict=True)]
    return np.concatenate([np.empty(0, np.int32), *labels])


def _check_fields(mesh: AmrDescription, search: Search) -> None:
    """InvalidArgument for a field of another type, or number of components, than its option needs."""
    options = [("field", search.field), ("mass", search.mass), *(("average", name) for name in search.means)]
    for option, name in [*options, ("velocity", search.velocity)]:
        if name is None:
            continue
        info, components = mesh.fields[name], 3 if option == "velocity" else 1
        if info.components != components:
            raise InvalidArgument(
                f"{option}: mesh '{mesh.name}', field '{name}' has {info.components} components, expected {components}"
            )
        for dtype in (mesh.step[variable].dtype for variable in info.variables):
            if dtype not in (np.float64, np.float32, np.uint8):
                meaning = " (0 to 255 for 0 to 1)" if option == "field" else ""
                raise InvalidArgument(
                    f"{option}: mesh '{mesh.name}', field '{name}' is {dtype}, expected float64, float32 or "
                    f"uint8{meaning}"
                )


def _part(batch: Batch, search: Search, surface: bool = True) -> Any:
    _check_fields(batch.mesh, search)
    fields = {"fraction": batch.fields[search.field], "means": [batch.fields[name] for name in search.means]}
    if search.mass is not None:
        fields["mass"] = batch.fields[search.mass]
    if search.velocity is not None:
        fields["velocity"] = _interleaved(batch.fields[search.velocity])
    mesh = batch.mesh
    with mesh._named():
        return _core.find_fragments(
            batch.levels, batch.indices, batch.own, batch.cells, mesh.origin, mesh.spacing, batch.depth, fields,
            search.threshold, surface,
        )  # fmt: skip


def _interleaved(arrays: Arrays) -> Runs:
    if isinstance(arrays, list):
        return arrays
    return [(np.stack([each for each, _ in runs], axis=-1), runs[0][1]) for runs in zip(*arrays, strict=True)]
