"""A rank's blocks of an AMR mesh and those that touch them, across faces, edges and corners.

    near = Neighbourhood(description, part)     # of this step, and this rank's rows
    for batch in near.batches(["vof"], 1000):
        vof = batch.fields["vof"]               # one array for each row of the batch, own rows first

A stream gives any block to any reader, so that no rank sends values to another. Two algorithms find the blocks that
touch: "baseline" reads the levels and indices of all blocks; "refined" needs the mesh's `splits`, finds with these who
has the Morton numbers next to its own blocks, and reads levels and indices from there alone, so that its cost does not
grow with the mesh. Both find the same blocks (docs/internals/fragments.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidArgument
from .amr_domains import AmrDomains, Domains
from .description import AmrDescription, FieldInfo, _Fetch
from .partition import RowsPart, check_places

# Arrays of blocks with the rows that count, which together are the rows of a batch in their order; of a field of
# several variables, such a list for each variable.
Runs = list[tuple[np.ndarray, np.ndarray]]
Arrays = Runs | tuple[Runs, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """Own blocks, and all others that touch these.

    levels: (n,), indices: (n, 3), int64; the first `own` rows are own. fields: by name, arrays of cells without ghost
    layers, indexed row, z, y, x and, with interleaved components, these. Arrays may be views of the stream's memory,
    read-only and of any strides. mesh: of which cells, origin and spacing hold for all ranks, as depth does.
    """

    levels: np.ndarray
    indices: np.ndarray
    own: int
    fields: Mapping[str, Arrays]
    mesh: AmrDescription
    depth: int

    @property
    def cells(self) -> list[int]:
        """Of a block along x, y, z, without ghost layers."""
        mesh = self.mesh
        return [mesh.cells[mesh.axes.index(a)] - 2 * mesh.ghost_layers if a in mesh.axes else 1 for a in "xyz"]


class Neighbourhood:
    """A part's own rows and those of all ranks that touch them.

    rows: (n, 2), domain and row, the first `own` rows are the part's; levels: (n,), indices: (n, 3), int64. depth: no
    block is of a higher level. algorithm: None is "refined" where the mesh has splits. messages, bytes: the stream's
    blocks read so far from domains in which the part has no rows, and the bytes that these have (views of shared memory
    move fewer). Valid while the step is open. Raises InvalidArgument for blocks that are not where splits say, and what
    step.wait() raises.
    """

    def __init__(self, description: AmrDescription, part: RowsPart, algorithm: str | None = None):
        self.algorithm = algorithm or ("refined" if description.splits else "baseline")
        _check_algorithm(description, self.algorithm)
        self.messages = self.bytes = 0
        self.depth = description.depth
        self._mesh = description
        self._domains = AmrDomains(description, _Fetch(description.step, views=True))
        own = part.rows
        self._own_domains = np.unique(own[:, 0]).tolist()
        self._splits = self._read_splits() if description.splits else None
        found = self._read_places(self._own_domains if self.algorithm == "refined" else self._all_domains())
        levels, indices = self._places(found, own)
        if self.algorithm == "refined" and self._splits is not None:
            domains = _core.amr_touching_domains(levels, indices, self._splits, self.depth).tolist()
            found |= self._read_places(sorted(set(domains) - set(self._own_domains)))
        elif self._splits is None:
            self.depth = max((int(each[description.levels].max(initial=0)) for each in found.values()), default=0)
        others = self._beside(own)
        other_levels, other_indices = self._places(found, others)
        touching = _touching(levels, indices, other_levels, other_indices, self.depth)
        self.own = len(own)
        self.rows = np.concatenate([own, others[touching]])
        self.levels = np.concatenate([levels, other_levels[touching]])
        self.indices = np.concatenate([indices, other_indices[touching]])

    def batches(self, fields: Sequence[str], batch: int | None = None) -> Iterator[Batch]:
        """All own rows, at most `batch` of them at a time (None: all at once), with these fields.

        Domains that the next batch needs, too, are kept for it, and no others. Looks at the ghost layers of some
        blocks, and raises InvalidArgument where they are not what the neighbours hold; nothing else uses them.
        """
        infos = {name: self._mesh.fields[name] for name in self._mesh._chosen(fields)}
        if batch is not None and batch < 1:
            raise InvalidArgument(f"a batch has at least one block, not {batch}")
        size = batch or max(self.own, 1)
        held: Domains = {}
        for first in range(0, self.own, size):
            chosen = self._with_touching(first, min(first + size, self.own))
            rows, levels, indices = self.rows[chosen], self.levels[chosen], self.indices[chosen]
            own = min(size, self.own - first)
            domains = np.unique(rows[:, 0]).tolist()
            new = self._read_domains([each for each in domains if each not in held], self._mesh.shapes(infos.values()))
            held = {domain: (new if domain in new else held)[domain] for domain in domains}
            if first == 0 and self._mesh.ghost_layers and infos:
                name, info = next(iter(infos.items()))
                blocks = [held[domain][info.variables[0]][row] for domain, row in rows.tolist()]
                _check_ghosts(self._mesh, name, blocks, np.column_stack([levels, indices]), own)
            arrays = {name: self._arrays(info, rows, held) for name, info in infos.items()}
            yield Batch(levels, indices, own, arrays, self._mesh, self.depth)

    def _all_domains(self) -> list[int]:
        return list(range(self._mesh.step[self._mesh.levels]._info.blocks))

    def _with_touching(self, first: int, last: int) -> np.ndarray:
        """Of own rows: their numbers, and those of all rows that touch them."""
        own = np.arange(first, last)
        others = np.concatenate([np.arange(first), np.arange(last, len(self.rows))])
        levels, indices = self.levels, self.indices
        touching = _touching(levels[own], indices[own], levels[others], indices[others], self.depth)
        return np.concatenate([own, others[touching]])

    def _read_splits(self) -> np.ndarray:
        variable = self._mesh.step[self._mesh.splits]
        splits = np.asarray(variable[...])
        if (splits[1:] < splits[:-1]).any():
            raise InvalidArgument(f"mesh '{self._mesh.name}': splits fall; ranks have consecutive parts of a Z curve")
        if self.algorithm == "refined":
            self.messages += len(variable.blocks)
            self.bytes += splits.nbytes
        return splits

    def _read_places(self, domains: Sequence[int]) -> Domains:
        """Levels and indices, where splits put them."""
        mesh, splits, found = self._mesh, self._splits, self._read_domains(domains, {})
        if splits is not None:
            for domain, arrays in found.items():
                with mesh._named(domain):
                    check_places(arrays[mesh.levels], arrays[mesh.indices], splits, domain, mesh.depth)
        return found

    def _read_domains(self, domains: Sequence[int], variables: Mapping[str, tuple[int, ...]]) -> Domains:
        """In one wait."""
        enqueued = self._domains.enqueue(domains, variables)
        self._mesh.step.wait()
        found = enqueued()
        for domain, arrays in found.items():
            if domain not in self._own_domains:
                self.messages += len(arrays)
                self.bytes += sum(each.nbytes for each in arrays.values())
        return found

    def _places(self, found: Domains, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Levels and indices of rows, sorted by domain."""
        pair = [self._domains.rows(found, name, shape, rows) for name, shape in self._mesh.places.items()]
        return np.ascontiguousarray(pair[0], np.int64), np.ascontiguousarray(pair[1], np.int64)

    def _beside(self, rows: np.ndarray) -> np.ndarray:
        """All rows of the domains read so far but these, sorted."""
        found = [rows[:0]]
        for domain, count in sorted(self._domains.counts.items()):
            free = np.ones(count, bool)
            first, last = np.searchsorted(rows[:, 0], [domain, domain + 1])
            free[rows[first:last, 1]] = False
            others = np.nonzero(free)[0]
            found.append(np.stack([np.full(len(others), domain), others], axis=1))
        return np.concatenate(found)

    def _arrays(self, info: FieldInfo, rows: np.ndarray, held: Mapping[int, Mapping[str, np.ndarray]]) -> Arrays:
        starts = np.concatenate([[0], np.nonzero(np.diff(rows[:, 0]))[0] + 1]) if len(rows) else np.empty(0, np.int64)

        def of(variable: str) -> Runs:
            upright = {domain: _upright(self._mesh, arrays[variable]) for domain, arrays in held.items()}
            return [(upright[int(run[0, 0])], np.ascontiguousarray(run[:, 1])) for run in np.split(rows, starts[1:])]

        lists = tuple(of(name) for name in info.variables)
        return lists if len(lists) > 1 else lists[0]


def _check_algorithm(mesh: AmrDescription, algorithm: str) -> None:
    if algorithm not in ("refined", "baseline"):
        raise InvalidArgument(f"no algorithm '{algorithm}'; there are refined and baseline")
    if algorithm == "refined" and not mesh.splits:
        raise InvalidArgument(
            f"mesh '{mesh.name}' has no splits, which the algorithm 'refined' needs: use 'baseline', or let the "
            "simulation name them in the mesh's description"
        )
    if mesh.refinement != 2:
        raise InvalidArgument(f"mesh '{mesh.name}' has the refinement {mesh.refinement}, expected 2")


def _touching(
    levels: np.ndarray, indices: np.ndarray, other_levels: np.ndarray, other_indices: np.ndarray, depth: int
) -> np.ndarray:
    """The numbers of those others that touch one of the blocks. Only those at the box around these are looked at."""
    if not len(levels):
        return np.empty(0, np.int64)
    widths, other_widths = (1 << depth - each[:, None] for each in (levels, other_levels))
    low, high = (indices * widths).min(axis=0), ((indices + 1) * widths).max(axis=0)
    corners = other_indices * other_widths
    near = np.nonzero(((corners <= high) & (corners + other_widths >= low)).all(axis=1))[0]
    found: np.ndarray = near[_core.amr_touching(levels, indices, other_levels[near], other_indices[near], depth)]
    return found


def _upright(mesh: AmrDescription, array: np.ndarray) -> np.ndarray:
    """Rows of blocks without their ghost layers, as rows, z, y, x, components. A missing axis has one cell."""
    layers, n = mesh.ghost_layers, len(mesh.axes)
    inner = array[(slice(None), *(slice(layers, cells - layers) for cells in mesh.cells))]
    order = [1 + mesh.axes.index(axis) for axis in "zyx" if axis in mesh.axes]
    turned = inner.transpose(0, *order, *range(1 + n, array.ndim))
    return turned[(slice(None), *(slice(None) if axis in mesh.axes else None for axis in "zyx"))]


_SAMPLE = 16  # pairs of neighbours
_LOOKED_AT = 1000  # own blocks


def _check_ghosts(mesh: AmrDescription, field: str, arrays: Sequence[np.ndarray], keys: np.ndarray, own: int) -> None:
    """Raises unless the ghost layer of some block equals the cells of its neighbour.

    Pairs whose cells are equal on both sides of their face show nothing. arrays: with ghost layers; keys: (n, 4), level
    and index.
    """
    layers, differ = mesh.ghost_layers, 0
    for one, other, d in _neighbours(keys, own, mesh.axes):

        def layer(row: int, at: int, d: int = d) -> np.ndarray:
            box: list[Any] = [slice(layers, n - layers) for n in mesh.cells]
            box[d] = at
            array: np.ndarray = arrays[row][tuple(box)]
            return array

        end = mesh.cells[d] - layers
        cells = layer(other, layers)
        if np.array_equal(layer(one, end - 1), cells):
            continue
        if np.array_equal(layer(one, end), cells):
            return
        differ += 1
        if differ == _SAMPLE:
            break
    if differ:
        raise InvalidArgument(
            f"mesh '{mesh.name}', field '{field}': in none of {differ} pairs of neighbours of one level ghost cells "
            f"of a block are the cells of its neighbour. Expected: cells, {mesh.cells}, count {layers} ghost layers at "
            f"both sides; indices count blocks of the level, without ghost layers; array dimensions run along "
            f"'{mesh.axes}'; ghost cells are filled when the step is written"
        )


def _neighbours(keys: np.ndarray, own: int, axes: str) -> Iterator[tuple[int, int, int]]:
    """Own blocks, the neighbour of the same level that follows along an axis, and the axis's array dimension."""
    rows = {tuple(key): row for row, key in enumerate(keys.tolist())}
    for row in range(0, own, -(-own // _LOOKED_AT)):
        for d, axis in enumerate(axes):
            key = keys[row].tolist()
            key[1 + "xyz".index(axis)] += 1
            other = rows.get(tuple(key))
            if other is not None:
                yield row, other, d
