"""What a step says of a mesh, and reading parts of it. channel.describe() makes these."""

from __future__ import annotations

import builtins
import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numpy as np

from .. import _core
from ..errors import InvalidArgument, NotFound
from ..topologies import TOPOLOGIES
from . import partition
from .amr_domains import AmrDomains
from .meshes import MESH_TYPES, ElementBlock, Field, Mesh, UnstructuredMesh, cells_of
from .partition import BoxPart, DomainsPart, MultiPart, Part, RowsPart

if TYPE_CHECKING:
    from ..reader import ReadStep

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field of a mesh on a channel. variables: one, or one for each component."""

    association: str
    variables: tuple[str, ...]
    components: int = 1
    units: str = ""

    @property
    def interleaved(self) -> tuple[int, ...]:
        """The last dimension of the variable, where it holds all components."""
        return (self.components,) if len(self.variables) == 1 and self.components > 1 else ()

    def field(self, arrays: tuple[np.ndarray, ...]) -> Field:
        """arrays: of the variables."""
        return Field(self.association, arrays if len(arrays) > 1 else arrays[0], self.units)


@dataclass(frozen=True, eq=False, kw_only=True)
class MeshDescription:
    """A mesh of a step. fields: those that the step holds; absent: the names of those that it could hold."""

    name: str
    type: str
    fields: Mapping[str, FieldInfo] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    ghosts: FieldInfo | None = None
    ids: Mapping[str, str] = field(default_factory=dict)

    def parts(self, size: int, method: str = "block") -> list[Part]:
        """The part of each of `size` ranks: the same list on all of them. method: one of partition.METHODS."""
        raise NotImplementedError

    def read(
        self,
        step: ReadStep,
        part: Part,
        fields: Sequence[str] | None = None,
        ghost_layers: int = 1,
        views: bool = False,
    ) -> Mesh:
        """The part with these fields (None: all), in one wait.

        ghost_layers: more layers of elements at each side of a structured part, marked in ghosts. Nodes that a
        neighbour owns are marked in any case. views: arrays of the stream's own memory, read-only, where the part is
        within one block and contiguous there; they stay valid as Variable.view() says. Arrays that are copied come in
        the order that VTK needs. Raises NotFound for a field that the step does not hold, InvalidArgument for arrays
        that make no mesh, and what step.wait() raises.
        """
        if isinstance(fields, str) or ghost_layers < 0:
            raise InvalidArgument(f"fields are a list of names, ghost_layers from 0; not {fields!r}, {ghost_layers}")
        try:
            build = self._enqueue(_Fetch(step, views), part, self._chosen(fields), ghost_layers)
            step.wait()
            return build()
        except MemoryError as error:
            raise InvalidArgument(f"mesh '{self.name}': {error}; use more ranks, or fewer fields") from None

    def _chosen(self, fields: Sequence[str] | None) -> list[str]:
        for name in fields or ():
            if name not in self.fields:
                why = "is not in this step" if name in self.absent else f"does not exist; there are {list(self.fields)}"
                raise NotFound(f"mesh '{self.name}': the field '{name}' {why}")
        return list(self.fields if fields is None else dict.fromkeys(fields))

    def _enqueue(self, fetch: _Fetch, part: Part, names: list[str], ghost_layers: int) -> Callable[[], Mesh]:
        raise NotImplementedError

    @contextlib.contextmanager
    def _named(self, domain: int | None = None) -> Iterator[None]:
        try:
            yield
        except InvalidArgument as error:
            place = "" if domain is None else f", domain {domain}"
            raise InvalidArgument(f"mesh '{self.name}'{place}: {error}") from None

    def _require(self, part: Part, kind: builtins.type[P]) -> P:
        if not isinstance(part, kind):
            raise InvalidArgument(f"mesh '{self.name}' has parts of type {kind.__name__}, not {type(part).__name__}")
        return part


_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _Fetch:
    """Enqueues gets of one step, or views."""

    def __init__(self, step: ReadStep, views: bool):
        self.step = step
        self._views = views
        self._bytes = 0

    def reserve(self, what: str, shape: Sequence[int], dtype: Any) -> None:
        """Before an array is made: raises MemoryError when all of them are larger than this machine."""
        self._bytes += math.prod(shape) * np.dtype(dtype).itemsize
        if self._bytes > _MEMORY:
            raise MemoryError(f"the part needs over {self._bytes} bytes, {what} {tuple(shape)} among them")

    def box(self, name: str, low: Sequence[int], count: Sequence[int], order: str = "row") -> np.ndarray:
        """Of a global array; components, the last dimension, whole."""
        variable = self.step[name]
        count = (*count, *variable.shape[len(count) :])
        if 0 in count:
            return np.empty(count, variable.dtype)
        index = tuple(slice(a, a + n) for a, n in zip(low, count, strict=False))
        if self._views:
            found = variable.view(index)
            if isinstance(found, np.ndarray) and (found.flags.c_contiguous or found.flags.f_contiguous):
                return found
        self.reserve(f"'{name}'", count, variable.dtype)
        return variable.get(index, order=order)

    def block(self, name: str, number: int) -> np.ndarray:
        """Of a local array."""
        variable = self.step[name]
        if self._views:
            pieces = variable._core.view(variable._id, _core.Selection.block(number))
            if len(pieces) == 1:
                return variable._array_of(pieces[0])
        return variable.get_block(number)


@dataclass(frozen=True, eq=False, kw_only=True)
class StructuredDescription(MeshDescription):
    """A uniform, rectilinear or curvilinear mesh; see StructuredMesh. coordinates: variables (rectilinear: by axis)."""

    shape: tuple[int, ...]
    axes: str
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)
    coordinates: tuple[str, ...] | Mapping[str, str] = ()

    @property
    def cells(self) -> tuple[int, ...]:
        return cells_of(self.shape)

    def parts(self, size: int, method: str = "block") -> list[Part]:
        return list(partition.boxes(self.cells, size, method))

    def box_of(self, part: BoxPart) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Corners of a part of a uniform mesh in x, y, z, for visibility_order(); a missing axis has the length 1."""
        if self.type != "uniform":
            raise InvalidArgument(f"mesh '{self.name}' is {self.type}: where its parts lie is in its coordinates")
        low, high = [*self.origin], [each + 1.0 for each in self.origin]
        for d, axis in enumerate(self.axes):
            a = "xyz".index(axis)
            low[a] = self.origin[a] + self.spacing[a] * part.low[d]
            high[a] = self.origin[a] + self.spacing[a] * part.high[d]
        return tuple(low), tuple(high)

    def _enqueue(self, fetch: _Fetch, part: Part, names: list[str], ghost_layers: int) -> Callable[[], Mesh]:
        owned: BoxPart = self._require(part, BoxPart)
        if any(not 0 <= a <= b <= n for a, b, n in zip(owned.low, owned.high, self.cells, strict=True)):
            raise InvalidArgument(f"mesh '{self.name}' of {self.cells} cells has no part {owned.low} to {owned.high}")
        box = owned.grown(ghost_layers, self.cells)
        nodes = tuple(n + (all_ > 1) for n, all_ in zip(box.shape, self.shape, strict=True))
        start = box.low
        if box.empty:
            nodes = start = (0,) * len(nodes)
        counts = {"node": nodes, "element": cells_of(nodes, self.shape)}
        order = "column" if len(nodes) > 1 and list(self.axes) == sorted(self.axes) else "row"

        def get(info: FieldInfo) -> Field:
            arrays = tuple(fetch.box(name, start, counts[info.association], order) for name in info.variables)
            return info.field(arrays)

        keys: dict[str, Any] = {"shape": nodes, "axes": self.axes, "start": start, "whole": self.shape}
        if self.type == "uniform":
            keys |= {"origin": self.origin, "spacing": self.spacing}
        elif isinstance(self.coordinates, Mapping):
            places = zip(self.axes, start, nodes, strict=True)
            keys["coordinates"] = {axis: fetch.box(self.coordinates[axis], (a,), (n,)) for axis, a, n in places}
        with self._named():
            if self.type == "curvilinear":
                keys["coordinates"] = get(FieldInfo("node", tuple(self.coordinates))).values
            fields = {name: get(self.fields[name]) for name in names}
            ids = {key: get(FieldInfo(key, (name,))).arrays[0] for key, name in self.ids.items()}
            marked = get(self.ghosts) if self.ghosts else None
        fetch.reserve("marks of ghosts", nodes, np.uint16)  # of nodes, and as many of elements

        def build() -> Mesh:
            ghosts = _ghosts(self, owned, box, counts, "F" if order == "column" else "C")
            if marked is not None:
                ours = ghosts.get(marked.association)
                ghosts[marked.association] = marked.arrays[0] | (0 if ours is None else ours)
            with self._named():
                mesh: Mesh = MESH_TYPES[self.type](**keys, fields=fields, ids=ids, ghosts=ghosts)
                return mesh

        return build


def _ghosts(
    mesh: StructuredDescription,
    owned: BoxPart,
    box: BoxPart,
    counts: Mapping[str, tuple[int, ...]],
    order: Literal["C", "F"],
) -> dict[str, np.ndarray]:
    """Marks of elements outside the owned box, and of nodes that another part owns: those at its upper faces."""
    out: dict[str, np.ndarray] = {}
    last = (c + (c == n and all_ > 1) for c, n, all_ in zip(owned.high, mesh.cells, mesh.shape, strict=True))
    for association, high in (("element", owned.high), ("node", tuple(last))):
        inside = tuple(slice(a - b, c - b) for a, b, c in zip(owned.low, box.low, high, strict=True))
        if not box.empty and any(s.stop - s.start < n for s, n in zip(inside, counts[association], strict=True)):
            out[association] = np.ones(counts[association], np.uint8, order)
            out[association][inside] = 0
    return out


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """Element blocks of one name, one in each domain."""

    name: str
    id: int
    topology: str
    variables: Mapping[str, str]  # of connectivity, offsets, topologies


@dataclass(frozen=True, eq=False, kw_only=True)
class DomainsDescription(MeshDescription):
    """An unstructured mesh, or particles: one domain for each block of its local arrays."""

    coordinates: tuple[str, ...]
    blocks: tuple[BlockInfo, ...] = ()
    step: ReadStep = field(repr=False)

    def parts(self, size: int, method: str = "block") -> list[Part]:
        """By the nodes, or particles, of each domain."""
        weights = [block.count[0] for block in self.step[self.coordinates[0]].blocks]
        return list(partition.domains(weights, size, method))

    def _enqueue(self, fetch: _Fetch, part: Part, names: list[str], ghost_layers: int) -> Callable[[], Mesh]:
        chosen: DomainsPart = self._require(part, DomainsPart)
        many = len(fetch.step[self.coordinates[0]].blocks)
        if any(not 0 <= number < many for number in chosen.domains):
            raise InvalidArgument(f"mesh '{self.name}' has {many} domains; the part has {chosen.domains}")
        domains = chosen.domains or (None,)
        pending = [self._enqueue_domain(fetch, number, names) for number in domains]
        return lambda: merge([build() for build in pending])

    def _enqueue_domain(self, fetch: _Fetch, number: int | None, names: list[str]) -> Callable[[], Mesh]:
        """number: None for a domain without anything, where arrays have these dimensions behind the first."""

        def get(variables: Sequence[str], *more: int) -> Any:
            if number is None:
                arrays = tuple(np.empty((0, *more), fetch.step[name].dtype) for name in variables)
            else:
                arrays = tuple(fetch.block(name, number) for name in variables)
            return arrays if len(arrays) > 1 else arrays[0]

        coordinates = get(self.coordinates, *((3,) if len(self.coordinates) == 1 else ()))
        blocks = []
        for info in self.blocks:
            nodes = () if info.topology == "mixed" else (TOPOLOGIES[info.topology].nodes,)
            keys = info.variables.items()
            arrays = {key: get([name], *(nodes if key == "connectivity" else ())) for key, name in keys}
            if number is None and "offsets" in arrays:
                arrays["offsets"] = np.zeros(1, arrays["offsets"].dtype)
            blocks.append({"name": info.name, "id": info.id, "topology": info.topology, **arrays})
        values = {name: get(self.fields[name].variables, *self.fields[name].interleaved) for name in names}
        marks = {"ids": {key: get([name]) for key, name in self.ids.items()}}
        marks["ghosts"] = {self.ghosts.association: get(self.ghosts.variables)} if self.ghosts else {}

        def build() -> Mesh:
            with self._named(number):
                infos = {name: self.fields[name] for name in names}
                fields = {name: Field(info.association, values[name], info.units) for name, info in infos.items()}
                more = {} if self.type == "particles" else {"blocks": [ElementBlock(**each) for each in blocks]}
                mesh: Mesh = MESH_TYPES[self.type](coordinates=coordinates, fields=fields, **marks, **more)
                for name, info in infos.items():
                    found = mesh.components(name)
                    if found != info.components:
                        raise InvalidArgument(f"field '{name}' has {found} components, not {info.components}")
                return mesh

        return build


def merge(meshes: Sequence[Mesh]) -> Mesh:
    """Unstructured meshes, or particles, with the same fields and blocks, as one: node numbers go on."""
    if len(meshes) == 1:
        return meshes[0]
    first = meshes[0]
    common: dict[str, Any] = {}
    order = None  # of elements, block by block
    if isinstance(first, UnstructuredMesh):
        shifts = np.cumsum([0, *[mesh.size_of("node") for mesh in meshes[:-1]]])
        numbers = range(len(first.blocks))
        of_elements: Sequence[Any] = meshes
        common["blocks"] = [_joined_block([mesh.blocks[n] for mesh in of_elements], shifts) for n in numbers]
        if len(numbers) > 1:
            counts = [len(block) for mesh in of_elements for block in mesh.blocks]
            order = np.argsort(np.repeat([*numbers] * len(meshes), counts), kind="stable")

    def joined(values: Sequence[Any], association: str = "node") -> Any:
        if isinstance(values[0], tuple):
            return tuple(joined(each, association) for each in zip(*values, strict=True))
        whole = np.concatenate(values)
        return whole if association == "node" or order is None else whole[order]

    for what in ("ids", "ghosts"):
        common[what] = {key: joined([getattr(mesh, what)[key] for mesh in meshes], key) for key in getattr(first, what)}
    fields = {}
    for name, each in first.fields.items():
        values = joined([mesh.fields[name].values for mesh in meshes], each.association)
        fields[name] = Field(each.association, values, each.units)
    kind: Any = type(first)
    all_coordinates = [cast(Any, mesh).coordinates for mesh in meshes]
    joined_mesh: Mesh = kind(coordinates=joined(all_coordinates), fields=fields, **common)
    return joined_mesh


def _joined_block(blocks: Sequence[ElementBlock], shifts: np.ndarray) -> ElementBlock:
    first = blocks[0]
    pairs = zip(blocks, shifts, strict=True)
    arrays = {"connectivity": np.concatenate([b.connectivity.astype(np.int64) + int(shift) for b, shift in pairs])}
    if first.topology == "mixed":
        ends = np.cumsum([0, *[len(block.connectivity) for block in blocks]])
        cells = [block.cells() for block in blocks]
        pieces = [offsets[:-1].astype(np.int64) + end for (_, offsets, _), end in zip(cells, ends[:-1], strict=True)]
        arrays["offsets"] = np.concatenate([*pieces, ends[-1:]])
        arrays["topologies"] = np.concatenate([topologies for topologies, _, _ in cells])
    return ElementBlock(name=first.name, id=first.id, topology=first.topology, **arrays)


@dataclass(frozen=True, eq=False, kw_only=True)
class AmrDescription(MeshDescription):
    """An AMR mesh; see AmrMesh. levels, indices, splits: variables ("": no splits, and depth says nothing)."""

    cells: tuple[int, ...]
    axes: str
    ghost_layers: int
    origin: tuple[float, float, float]
    spacing: tuple[float, float, float]
    refinement: int
    levels: str
    indices: str
    splits: str = ""
    depth: int = 0
    step: ReadStep = field(repr=False)

    def parts(self, size: int, method: str = "block") -> list[Part]:
        """Method "morton" reads the levels and indices of all blocks, and so waits; others need only metadata."""
        if method != "morton":
            return list(partition.rows([block.count[0] for block in self.step[self.levels].blocks], size, method))
        domains = range(len(self.step[self.levels].blocks))
        enqueued = AmrDomains(self, _Fetch(self.step, views=False)).enqueue(domains, {})
        self.step.wait()
        found = enqueued()
        levels, indices = ([found[domain][name] for domain in domains] for name in self.places)
        return list(partition.rows_by_morton(levels, indices, self.refinement, size))

    @property
    def places(self) -> dict[str, tuple[int, ...]]:
        """The variables that say where blocks are, levels and indices, with their dimensions behind the rows."""
        return {self.levels: (), self.indices: (3,)}

    def shapes(self, infos: Iterable[FieldInfo]) -> dict[str, tuple[int, ...]]:
        """The variables of fields, with their dimensions behind the rows."""
        return {name: (*self.cells, *info.interleaved) for info in infos for name in info.variables}

    def _enqueue(self, fetch: _Fetch, part: Part, names: list[str], ghost_layers: int) -> Callable[[], Mesh]:
        chosen: RowsPart = self._require(part, RowsPart)
        rows = chosen.rows
        infos = {name: self.fields[name] for name in names}
        shapes = dict.fromkeys(self.ids.values(), self.cells)
        shapes |= self.shapes([*infos.values(), *((self.ghosts,) if self.ghosts else ())])
        domains = AmrDomains(self, fetch)
        enqueued = domains.enqueue(np.unique(rows[:, 0]).tolist(), shapes)

        def build() -> Mesh:
            arrays = enqueued()
            found = {name: domains.rows(arrays, name, shape, rows) for name, shape in (self.places | shapes).items()}
            ids = {key: found[name] for key, name in self.ids.items()}
            ghosts = {self.ghosts.association: found[self.ghosts.variables[0]]} if self.ghosts else {}
            with self._named():
                fields = {name: info.field(tuple(found[v] for v in info.variables)) for name, info in infos.items()}
                return self._mesh(found[self.levels], found[self.indices], fields=fields, ids=ids, ghosts=ghosts)

        return build

    def _mesh(self, levels: np.ndarray, indices: np.ndarray, **more: Any) -> Mesh:
        keys = ("cells", "axes", "ghost_layers", "origin", "spacing", "refinement")
        chosen = {key: getattr(self, key) for key in keys}
        mesh: Mesh = MESH_TYPES["amr"](**chosen, levels=levels, indices=indices, **more)
        return mesh


@dataclass(frozen=True, eq=False, kw_only=True)
class MultiblockDescription(MeshDescription):
    """Other meshes of the channel as one. fields: those of all its blocks."""

    blocks: Mapping[str, MeshDescription]

    def parts(self, size: int, method: str = "block") -> list[Part]:
        of_blocks = {name: block.parts(size, method) for name, block in self.blocks.items()}
        return [MultiPart({name: parts[rank] for name, parts in of_blocks.items()}) for rank in range(size)]

    def _enqueue(self, fetch: _Fetch, part: Part, names: list[str], ghost_layers: int) -> Callable[[], Mesh]:
        chosen: MultiPart = self._require(part, MultiPart)
        pending = {
            name: block._enqueue(fetch, chosen.parts[name], [f for f in names if f in block.fields], ghost_layers)
            for name, block in self.blocks.items()
        }
        return lambda: MESH_TYPES["multiblock"](blocks={name: build() for name, build in pending.items()})
