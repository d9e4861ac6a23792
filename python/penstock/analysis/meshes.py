"""Meshes as values: what one rank has of each, checked when made.

Arrays are NumPy's, never copied here. A field lies on nodes or elements; its values are one array, with interleaved
components as last dimension, or a tuple of one array for each component. Structured meshes index arrays as the
simulation does: `axes` names the spatial axis of each dimension ("zyx": the last index runs along x). A structured part
knows its `start` (in nodes) and the shape of the `whole`. ghosts and ids: {"node": array, "element": array}, of the
shape of a field; ghosts are uint8, 0 for what the part owns (else bits of vtkGhostType), ids int64. Everything here
raises InvalidArgument, which names what does not fit.

What a script does with the mesh that it has read (its arrays are read-only where they are the stream's own memory):

    mesh = describe(step)["grid"].read(step, part, ["U"], views=True)
    u = mesh.fields["U"].values                        # the array itself, indexed as in the simulation
    ghost = mesh.ghosts.get("node", np.zeros(u.shape, np.uint8))
    mean = u[ghost == 0].mean()                        # a node belongs to one rank
    x = mesh.coordinates["x"]                          # of a rectilinear mesh
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from .. import _core
from ..errors import InvalidArgument
from ..topologies import TOPOLOGIES

ASSOCIATIONS = ("node", "element")
MAX_DEPTH = _core.max_amr_depth  # of AMR meshes with splits


# In mixed blocks also polylines and polygons; all nodes in VTK's order.
MIXED = {each.vtk: each.nodes for each in TOPOLOGIES.values()} | {4: None, 7: None}
# By VTK's cell type: of several elements with one, the plain one, which comes first.
NAMES = {each.vtk: name for name, each in reversed(TOPOLOGIES.items())}


@dataclass(frozen=True, eq=False, slots=True)
class Field:
    """Values on the nodes or elements of a mesh."""

    association: str
    values: np.ndarray | tuple[np.ndarray, ...]
    units: str = ""

    def __post_init__(self) -> None:
        if self.association not in ASSOCIATIONS:
            raise InvalidArgument(f"a field's association is 'node' or 'element', not {self.association!r}")
        split = isinstance(self.values, tuple | list)
        arrays = tuple(np.asarray(each) for each in (self.values if split else (self.values,)))
        if not arrays:
            raise InvalidArgument("a field has at least one component")
        for each in arrays:
            if each.dtype.kind not in "biuf":
                raise InvalidArgument(f"a field holds real numbers, not {each.dtype}")
            if (each.dtype, each.shape) != (arrays[0].dtype, arrays[0].shape):
                raise InvalidArgument(
                    f"the components of a field are arrays of one type and shape, not {arrays[0].dtype} "
                    f"{arrays[0].shape} and {each.dtype} {each.shape}"
                )
        object.__setattr__(self, "values", arrays if split else arrays[0])

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """One array for each component, or one that holds them all."""
        return self.values if isinstance(self.values, tuple) else (self.values,)

    def __getitem__(self, index: Any) -> Field:
        """The field with each array indexed."""
        arrays = tuple(each[index] for each in self.arrays)
        return replace(self, values=arrays if isinstance(self.values, tuple) else arrays[0])


@dataclass(frozen=True, eq=False, kw_only=True)
class Mesh:
    """What all meshes have."""

    type: ClassVar[str] = ""
    associations: ClassVar[tuple[str, ...]] = ASSOCIATIONS
    rows: ClassVar[int] = 1  # dimensions of arrays that are none of space

    fields: Mapping[str, Field] = field(default_factory=dict)
    ghosts: Mapping[str, np.ndarray] = field(default_factory=dict)
    ids: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check()
        for name, each in self.fields.items():
            if not isinstance(name, str) or not name:
                raise InvalidArgument(f"the name of a field is a str that is not empty, not {name!r}")
            self._require(f"field '{name}'", each.association)
            self._fits(f"field '{name}'", each)
        for what, dtype in (("ghosts", np.uint8), ("ids", np.int64)):
            arrays = {key: np.asarray(array) for key, array in getattr(self, what).items()}
            object.__setattr__(self, what, arrays)
            for association, array in arrays.items():
                self._require(what, association)
                if array.dtype != dtype or array.shape != self.shape_of(association):
                    raise InvalidArgument(
                        f"{what} of each {association} are an array {np.dtype(dtype)} {self.shape_of(association)}, "
                        f"not {array.dtype} {array.shape}"
                    )

    def shape_of(self, association: str) -> tuple[int, ...]:
        """The shape of a field of one component."""
        raise NotImplementedError

    def size_of(self, association: str) -> int:
        """Nodes or elements of this part, ghosts included."""
        return math.prod(self.shape_of(association))

    def components(self, name: str) -> int:
        """Of a field."""
        each = self.fields[name]
        more = each.arrays[0].shape[len(self.shape_of(each.association)) :]
        return len(each.values) if isinstance(each.values, tuple) else math.prod(more)

    def upright(self, values: Any) -> tuple[np.ndarray, ...]:
        """Views of arrays of nodes or elements in VTK's order: rows, z, y, x, components; one array for each component
        where they lie so in memory."""
        axes = getattr(self, "axes", "")
        order = [d + self.rows for d in sorted(range(len(axes)), key=lambda d: axes[d], reverse=True)]
        order = [*range(self.rows), *order]
        arrays = values if isinstance(values, tuple) else (values,)
        arrays = tuple(each.transpose([*order, *range(len(order), each.ndim)]) for each in arrays)
        if arrays[0].ndim > len(order) and not arrays[0].flags.c_contiguous:
            parts = tuple(arrays[0][..., c] for c in range(arrays[0].shape[-1]))
            if all(each.flags.c_contiguous for each in parts):
                return parts
        return arrays

    def with_fields(self, fields: Mapping[str, Field]) -> Mesh:
        """The same mesh with other fields."""
        return replace(self, fields=fields)

    def _check(self) -> None:
        """Checks and converts what a kind of mesh has of its own."""

    def _set(self, **values: Any) -> None:
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def _require(self, what: str, association: str) -> None:
        if association not in self.associations:
            raise InvalidArgument(f"{what}: a mesh of type {self.type} has {self.associations}, not {association!r}")

    def _fits(self, what: str, each: Field) -> None:
        shape = self.shape_of(each.association)
        found = each.arrays[0].shape
        interleaved = not isinstance(each.values, tuple) and found[:-1] == shape and found[-1:] > (0,)
        if found != shape and not interleaved:
            raise InvalidArgument(f"{what}: each {each.association} has a value: expected shape {shape}, not {found}")


@dataclass(frozen=True, eq=False, kw_only=True)
class StructuredMesh(Mesh):
    """shape: nodes of this part by array dimension, 1 to 3 of them; start: its first node in the whole.

    Left out: axes is the end of "zyx", start 0, whole the part's own shape. There is one element fewer than nodes in
    each dimension; a dimension in which the whole has one node has one layer of elements, as in VTK.
    """

    rows: ClassVar[int] = 0
    shape: tuple[int, ...]
    axes: str = ""
    start: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()

    @property
    def cells(self) -> tuple[int, ...]:
        """Elements by array dimension."""
        return cells_of(self.shape, self.whole)

    def shape_of(self, association: str) -> tuple[int, ...]:
        return self.shape if association == "node" else self.cells

    def _check(self) -> None:
        shape = _integers("shape", self.shape)
        axes = self.axes or "zyx"[3 - len(shape) :]
        start = _integers("start", self.start) if len(self.start) else (0,) * len(shape)
        whole = _integers("whole", self.whole) if len(self.whole) else shape
        if not 1 <= len(shape) <= 3:
            raise InvalidArgument(f"a structured mesh has 1 to 3 dimensions, not {len(shape)}")
        check_axes(axes, len(shape))
        if len(start) != len(shape) or len(whole) != len(shape):
            raise InvalidArgument(f"shape {shape}, start {start} and whole {whole} have one number for each dimension")
        if any(first + n > all_ for first, n, all_ in zip(start, shape, whole, strict=True)):
            raise InvalidArgument(f"a part of shape {shape} that starts at {start} is not inside the whole, {whole}")
        self._set(shape=shape, axes=axes, start=start, whole=whole)


@dataclass(frozen=True, eq=False, kw_only=True)
class UniformMesh(StructuredMesh):
    """origin: of node 0 of the whole, in x, y, z; spacing: between nodes in x, y, z."""

    type: ClassVar[str] = "uniform"
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def _check(self) -> None:
        super()._check()
        self._set(origin=_point("origin", self.origin), spacing=check_spacing(self.spacing))


@dataclass(frozen=True, eq=False, kw_only=True)
class RectilinearMesh(StructuredMesh):
    """coordinates: {"x": array, ...} of the nodes of this part, for each letter of axes."""

    type: ClassVar[str] = "rectilinear"
    coordinates: Mapping[str, np.ndarray]

    def _check(self) -> None:
        super()._check()
        arrays = {axis: np.asarray(array) for axis, array in self.coordinates.items()}
        if sorted(arrays) != sorted(self.axes):
            raise InvalidArgument(f"coordinates are of the axes '{self.axes}', not of '{''.join(arrays)}'")
        for axis, n in zip(self.axes, self.shape, strict=True):
            if arrays[axis].shape != (n,) or arrays[axis].dtype.kind not in "iuf":
                raise InvalidArgument(
                    f"coordinates of {axis} are {n} numbers, not {arrays[axis].dtype} {arrays[axis].shape}"
                )
        self._set(coordinates=arrays)


@dataclass(frozen=True, eq=False, kw_only=True)
class CurvilinearMesh(StructuredMesh):
    """coordinates: of the nodes of this part: x, y, z as a tuple of arrays, or one array with a last dimension of 3."""

    type: ClassVar[str] = "curvilinear"
    coordinates: np.ndarray | tuple[np.ndarray, ...]

    def _check(self) -> None:
        super()._check()
        self._set(coordinates=_coordinates(self.coordinates, self.shape))


@dataclass(frozen=True, eq=False, slots=True)
class ElementBlock:
    """Elements of one topology: connectivity of shape (n, nodes of the topology), numbers of nodes of this part.

    Or topology "mixed": connectivity of one dimension, offsets (n + 1 integers) into it, topologies (n, uint8; VTK's
    numbers of cell types, with nodes in VTK's order).
    """

    name: str
    topology: str
    connectivity: np.ndarray
    id: int = 0
    offsets: np.ndarray | None = None
    topologies: np.ndarray | None = None

    def __post_init__(self) -> None:
        what = f"element block '{self.name}'"
        array = np.asarray(self.connectivity)
        object.__setattr__(self, "connectivity", array)
        if array.dtype.kind not in "iu":
            raise InvalidArgument(f"{what}: connectivity holds integers, not {array.dtype}")
        if self.topology == "mixed":
            self._check_mixed(what)
            return
        if self.topology not in TOPOLOGIES:
            raise InvalidArgument(f"{what}: no topology '{self.topology}'; there are {', '.join(TOPOLOGIES)} and mixed")
        if self.offsets is not None or self.topologies is not None:
            raise InvalidArgument(f"{what}: offsets and topologies are for the topology 'mixed'")
        if array.ndim != 2 or array.shape[1] != TOPOLOGIES[self.topology].nodes:
            raise InvalidArgument(
                f"{what}: connectivity of {self.topology} has the shape (n, {TOPOLOGIES[self.topology].nodes}), "
                f"not {array.shape}"
            )

    def cells(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As VTK has them: the number of each element's topology; offsets; connectivity of one dimension."""
        if self.topology == "mixed":
            assert self.topologies is not None and self.offsets is not None  # as checked
            return self.topologies, self.offsets, self.connectivity
        topology, n = TOPOLOGIES[self.topology], len(self)
        offsets = np.arange(n + 1, dtype=np.int64) * topology.nodes
        return np.full(n, topology.vtk, np.uint8), offsets, topology.in_order_of_vtk(self.connectivity).reshape(-1)

    def __len__(self) -> int:
        return len(self.connectivity if self.topologies is None else self.topologies)

    def _check_mixed(self, what: str) -> None:
        if self.offsets is None or self.topologies is None:
            raise InvalidArgument(f"{what}: mixed elements need offsets and topologies")
        offsets, kinds = np.asarray(self.offsets), np.asarray(self.topologies)
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "topologies", kinds)
        if offsets.dtype.kind not in "iu" or kinds.dtype != np.uint8 or kinds.ndim != 1 or self.connectivity.ndim != 1:
            raise InvalidArgument(f"{what}: connectivity, offsets (integers) and topologies (uint8) have one dimension")
        if offsets.shape != (len(kinds) + 1,):
            raise InvalidArgument(f"{what}: {len(kinds)} elements have {len(kinds) + 1} offsets, not {offsets.shape}")
        rising = (offsets[1:] > offsets[:-1]).all()  # differences may overflow; VTK crashes on cells without nodes
        if offsets[0] != 0 or offsets[-1] != len(self.connectivity) or not rising:
            raise InvalidArgument(f"{what}: offsets rise from 0 to the length of connectivity, by 1 at least")
        sizes = np.diff(offsets.astype(np.int64))
        for kind in np.unique(kinds).tolist():
            if kind not in MIXED:
                raise InvalidArgument(f"{what}: no topology has the number {kind}; there are {sorted(MIXED)}")
            if MIXED[kind] is not None and (sizes[kinds == kind] != MIXED[kind]).any():
                raise InvalidArgument(f"{what}: elements of topology {kind} have {MIXED[kind]} nodes")


@dataclass(frozen=True, eq=False, kw_only=True)
class UnstructuredMesh(Mesh):
    """coordinates: (n, 3), or a tuple of x, y, z. Element fields have the blocks' elements one block after another."""

    type: ClassVar[str] = "unstructured"
    coordinates: np.ndarray | tuple[np.ndarray, ...]
    blocks: Sequence[ElementBlock] = ()

    def shape_of(self, association: str) -> tuple[int, ...]:
        if association == "node":
            return (_length(self.coordinates),)
        return (sum(len(block) for block in self.blocks),)

    def _check(self) -> None:
        self._set(coordinates=_coordinates(self.coordinates), blocks=tuple(self.blocks))
        nodes = _length(self.coordinates)
        if len({block.name for block in self.blocks}) != len(self.blocks):
            raise InvalidArgument("each element block has a name of its own")
        for block in self.blocks:
            used = block.connectivity
            if used.size and (used.min() < 0 or used.max() >= nodes):
                raise InvalidArgument(
                    f"element block '{block.name}': connectivity has the node numbers {used.min()} to {used.max()}, "
                    f"the part has {nodes} nodes"
                )


@dataclass(frozen=True, eq=False, kw_only=True)
class ParticleMesh(Mesh):
    """coordinates: (n, 3), or a tuple of x, y, z. Particles are elements."""

    type: ClassVar[str] = "particles"
    associations: ClassVar[tuple[str, ...]] = ("element",)
    coordinates: np.ndarray | tuple[np.ndarray, ...]

    def shape_of(self, association: str) -> tuple[int, ...]:
        return (_length(self.coordinates),)

    def _check(self) -> None:
        self._set(coordinates=_coordinates(self.coordinates))


@dataclass(frozen=True, eq=False, kw_only=True)
class AmrMesh(Mesh):
    """Blocks of one size at several levels. A field is an array (blocks, *cells), of elements.

    cells: of a block by array dimension, ghost layers included; levels: (blocks,); indices: (blocks, 3), x, y, z of the
    block among those of its level, counted in blocks. origin: the lower corner of the block 0, 0, 0 without its ghost
    layers; spacing: of the cells of level 0. A level's cells are `refinement` times smaller than those one below.
    splits: where the ranks of a simulation have consecutive parts of a Z curve, the Morton number of each rank's first
    block (uint64, docs/internals/coprocessing.md); depth: with it, the highest level, at most 20. For publish() alone:
    a part that is read has none.
    """

    type: ClassVar[str] = "amr"
    associations: ClassVar[tuple[str, ...]] = ("element",)
    cells: tuple[int, ...]
    levels: np.ndarray
    indices: np.ndarray
    axes: str = ""
    ghost_layers: int = 0
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0)
    refinement: int = 2
    splits: np.ndarray | None = None
    depth: int = 0

    def shape_of(self, association: str) -> tuple[int, ...]:
        return (len(self.levels), *self.cells)

    def block(self, row: int) -> UniformMesh:
        """Where one block is, ghost layers included, without fields."""
        finer = float(self.refinement) ** int(self.levels[row])
        origin, spacing = list(self.origin), tuple(each / finer for each in self.spacing)
        for n, axis in zip(self.cells, self.axes, strict=True):
            a = "xyz".index(axis)
            inner = n - 2 * self.ghost_layers
            origin[a] += spacing[a] * (int(self.indices[row, a]) * inner - self.ghost_layers)
        shape = tuple(n + 1 for n in self.cells)
        return UniformMesh(
            shape=shape,
            axes=self.axes,
            origin=(origin[0], origin[1], origin[2]),
            spacing=(spacing[0], spacing[1], spacing[2]),
        )

    def layers(self) -> np.ndarray:
        """Marks of a block's ghost layers: 1 there."""
        marks = np.ones(self.cells, np.uint8)
        marks[tuple(slice(self.ghost_layers, n - self.ghost_layers) for n in self.cells)] = 0
        return marks

    def _check(self) -> None:
        cells = _integers("cells", self.cells)
        axes = self.axes or "zyx"[3 - len(cells) :]
        check_amr(cells, axes, self.ghost_layers, self.refinement)
        levels, indices = np.asarray(self.levels), np.asarray(self.indices)
        if levels.dtype.kind not in "iu" or indices.dtype.kind not in "iu" or levels.ndim != 1:
            raise InvalidArgument("levels and indices are arrays of integers, levels of one dimension")
        if indices.shape != (len(levels), 3):
            raise InvalidArgument(
                f"indices of {len(levels)} blocks have the shape {(len(levels), 3)}, not {indices.shape}"
            )
        if len(levels) and not (levels.min() >= 0 and levels.max() <= 50):
            raise InvalidArgument(f"levels are 0 to 50, not {levels.min()} to {levels.max()}")
        self._set(cells=cells, axes=axes, levels=levels, indices=indices)
        if self.splits is not None:
            self._set(splits=np.asarray(self.splits))
            check_splits(self.splits, self.depth, self.refinement)
        elif self.depth:
            raise InvalidArgument("depth is given with splits, and only then")
        self._set(origin=_point("origin", self.origin), spacing=check_spacing(self.spacing))


@dataclass(frozen=True, eq=False, kw_only=True)
class Multiblock(Mesh):
    """Meshes by name, as one. It has no fields of its own."""

    type: ClassVar[str] = "multiblock"
    associations: ClassVar[tuple[str, ...]] = ()
    blocks: Mapping[str, Mesh]

    def _check(self) -> None:
        for name, mesh in self.blocks.items():
            if not isinstance(mesh, Mesh) or isinstance(mesh, Multiblock):
                raise InvalidArgument(f"block '{name}' of a multiblock is a mesh and no multiblock")


MESH_TYPES: dict[str, Any] = {
    each.type: each
    for each in (UniformMesh, RectilinearMesh, CurvilinearMesh, UnstructuredMesh, ParticleMesh, AmrMesh, Multiblock)
}


def cells_of(shape: Sequence[int], whole: Sequence[int] | None = None) -> tuple[int, ...]:
    """Elements by dimension of a part that has `shape` nodes of a mesh of `whole` nodes."""
    whole = shape if whole is None else whole
    return tuple(min(n, 1) if all_ == 1 else max(n - 1, 0) for n, all_ in zip(shape, whole, strict=True))


def check_axes(axes: str, ndim: int) -> str:
    if len(axes) != ndim or len(set(axes)) != ndim or not set(axes) <= set("xyz"):
        raise InvalidArgument(f"axes are {ndim} different letters of 'xyz', not {axes!r}")
    return axes


def check_spacing(spacing: Sequence[float]) -> tuple[float, float, float]:
    spacing = _point("spacing", spacing)
    if min(spacing) <= 0:
        raise InvalidArgument(f"spacing is positive, not {spacing}")
    return spacing


def check_amr(cells: tuple[int, ...], axes: str, ghost_layers: int, refinement: int) -> None:
    if not 1 <= len(cells) <= 3:
        raise InvalidArgument(f"blocks have 1 to 3 dimensions, not {len(cells)}")
    check_axes(axes, len(cells))
    if ghost_layers < 0 or min(cells) <= 2 * ghost_layers:
        raise InvalidArgument(f"blocks of {cells} cells cannot have {ghost_layers} ghost layers at each side")
    if not 2 <= refinement <= 16:
        raise InvalidArgument(f"refinement is 2 to 16, not {refinement}")


def check_splits(splits: Any, depth: int, refinement: int) -> None:
    if splits.dtype != np.uint64 or splits.ndim != 1 or (splits[1:] < splits[:-1]).any():
        raise InvalidArgument("splits are uint64, one for each rank, and never fall")
    if not 0 <= depth <= MAX_DEPTH or refinement != 2:
        raise InvalidArgument(f"splits need a depth of 0 to {MAX_DEPTH} and refinement 2, not {depth} and {refinement}")


def _integers(what: str, values: Sequence[int]) -> tuple[int, ...]:
    if any(isinstance(each, bool) or not hasattr(each, "__index__") or each < 0 for each in values):
        raise InvalidArgument(f"{what} holds integers of at least 0, not {values!r}")
    return tuple(int(each) for each in values)


def _point(what: str, values: Sequence[float]) -> tuple[float, float, float]:
    values = tuple(float(each) for each in values)
    if len(values) != 3 or not all(math.isfinite(each) for each in values):
        raise InvalidArgument(f"{what} is three finite numbers, for x, y, z, not {values}")
    return values


def _coordinates(values: Any, shape: tuple[int, ...] | None = None) -> np.ndarray | tuple[np.ndarray, ...]:
    given = Field("node", values if isinstance(values, tuple) else np.asarray(values))
    split = isinstance(given.values, tuple)
    found = given.arrays[0].shape if split else given.arrays[0].shape[:-1]
    three = (len(given.arrays) if split else given.arrays[0].shape[-1:]) in (3, (3,))
    if given.arrays[0].dtype.kind == "b":
        raise InvalidArgument("coordinates are numbers, not bool")
    if not three or (found != shape if shape is not None else len(found) != 1):
        wanted = (*shape, 3) if shape is not None else "(n, 3)"
        raise InvalidArgument(f"coordinates are one array of shape {wanted}, or a tuple of x, y and z")
    return given.values


def _length(coordinates: np.ndarray | tuple[np.ndarray, ...]) -> int:
    return len(coordinates[0] if isinstance(coordinates, tuple) else coordinates)
