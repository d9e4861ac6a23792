"""Meshes on a stream: putting them with the attribute `meshes`, and describing what a step holds.

docs/internals/coprocessing.md has the format. Variables: a field's is named like the field, or "MESH/FIELD" where
several meshes of the channel have a field of that name; one for each component adds "_x", "_y", "_z" (or "_0", ...).
What else a mesh needs is named "MESH/coordinates", "MESH/connectivity", ...
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidArgument, NotFound
from .attribute import default_mesh, parse
from .description import MeshDescription
from .meshes import (
    AmrMesh,
    CurvilinearMesh,
    ElementBlock,
    Field,
    Mesh,
    Multiblock,
    ParticleMesh,
    RectilinearMesh,
    StructuredMesh,
    UniformMesh,
    UnstructuredMesh,
)

if TYPE_CHECKING:
    from ..reader import ReadStep
    from ..writer import WriteStep

ATTRIBUTE = "meshes"
VERSION = 1


def publish(
    step: WriteStep,
    meshes: Mapping[str, Mesh],
    wanted: AbstractSet[str] | None = None,
    lend: bool = False,
    order: str = "row",
) -> None:
    """Puts this rank's part of each mesh into the step, and the attribute `meshes` if it is another than before.

    All ranks give the same meshes with the same fields, each its own part (also an empty one). wanted: names of the
    fields to put, None for all; the attribute names all of them in any case. lend: the arrays stay unchanged until the
    step ends, as with put(). order: how arrays lie in memory, the same on all ranks: "column" for those of Fortran;
    arrays of the other order are turned as they are put. The blocks of a Multiblock are published as meshes of their
    own names. Structured parts are put without the layers of ghosts around them. Raises InvalidArgument (names or parts
    that do not fit), and what put() raises.
    """
    channel = _Publication(step, _flattened(meshes), wanted, lend, order)
    described = {name: channel.put_mesh(name, mesh) for name, mesh in channel.meshes.items()}
    text = json.dumps({"version": VERSION, "meshes": described}, separators=(",", ":"))
    if step.attributes.get(ATTRIBUTE) != text:
        step.attributes[ATTRIBUTE] = text


def describe(step: ReadStep) -> dict[str, MeshDescription]:
    """The meshes of a step, by name; valid while the step is open. Nothing but metadata is read.

    A step without the attribute `meshes` has one uniform mesh, "mesh", of its global arrays of numbers that have the
    shape of the first one (1 to 3 dimensions, the last index along x; attributes "spacing", "origin" of the first array
    or of the step), or no mesh. Raises InvalidArgument, with the mesh and the key, for what is not in the format or not
    in the step; a field of which the step has no variable is in MeshDescription.absent instead.
    """
    text = step.attributes.get(ATTRIBUTE)
    return default_mesh(step) if text is None else parse(step, text)


def time_and_cycle(step: ReadStep) -> tuple[float, int]:
    """The global values, or else attributes, "time" and "cycle"; the number of the step for what there is none of."""
    return float(_number(step, "time")), int(_number(step, "cycle"))


def _number(step: ReadStep, name: str) -> float:
    try:
        found = step[name].value if name in step and step[name].kind == "global_value" else step.attributes[name]
    except NotFound:
        return step.number
    usable = isinstance(found, int | float) and math.isfinite(found)
    return found if usable else step.number


def _flattened(meshes: Mapping[str, Mesh]) -> dict[str, Mesh]:
    """With the blocks of multiblocks beside them."""
    out = dict(meshes)
    for name, mesh in meshes.items():
        if not name or not isinstance(name, str):
            raise InvalidArgument(f"the name of a mesh is a str that is not empty, not {name!r}")
        for block, inner in mesh.blocks.items() if isinstance(mesh, Multiblock) else ():
            if out.setdefault(block, inner) is not inner:
                raise InvalidArgument(f"block '{block}' of '{name}' is not the mesh '{block}' of the channel")
    return out


class _Publication:
    """One call of publish(): puts variables, and gives the JSON of each mesh."""

    def __init__(
        self, step: WriteStep, meshes: dict[str, Mesh], wanted: AbstractSet[str] | None, lend: bool, order: str
    ):
        self.meshes = meshes
        self._step = step
        self._wanted = wanted
        self._lend = lend
        self._order = order
        self._taken: set[str] = set()
        names = [name for mesh in meshes.values() for name in mesh.fields]
        self._shared = {name for name in names if names.count(name) > 1}
        if wanted is not None and not set(wanted) <= set(names):
            raise InvalidArgument(f"no mesh has the field '{min(set(wanted) - set(names))}'; there are {sorted(names)}")

    def put_mesh(self, name: str, mesh: Mesh) -> dict[str, Any]:
        if isinstance(mesh, Multiblock):
            return {"type": mesh.type, "blocks": list(mesh.blocks)}
        if isinstance(mesh, StructuredMesh):
            mesh = owned(mesh)
            put = _GlobalPut(self, mesh)
        else:
            put = _LocalPut(self)
        out = {"type": mesh.type, **_GEOMETRY[type(mesh)](name, mesh, put)}
        out["fields"] = {key: self._put_field(name, key, each, mesh, put) for key, each in mesh.fields.items()}
        if mesh.ghosts:
            if len(mesh.ghosts) > 1:
                raise InvalidArgument(f"mesh '{name}': a channel carries ghosts of nodes or of elements, not both")
            ((association, array),) = mesh.ghosts.items()
            variable = put(f"{name}/ghosts", array, association)
            out["ghosts"] = {"association": association, "variables": [variable]}
        if mesh.ids:
            out["ids"] = {key: put(f"{name}/ids_{key}", array, key) for key, array in mesh.ids.items()}
        return out

    def _put_field(self, mesh_name: str, name: str, field: Field, mesh: Mesh, put: Any) -> dict[str, Any]:
        variable = f"{mesh_name}/{name}" if name in self._shared else name
        put_it = self._wanted is None or name in self._wanted
        out: dict[str, Any] = {"association": field.association}
        components = mesh.components(name)
        if isinstance(field.values, tuple) and components > 1:
            suffixes = "xyz"[:components] if components <= 3 else range(components)
            names = [f"{variable}_{suffix}" for suffix in suffixes]
        else:
            names = [variable]
            if components > 1:
                out["components"] = components
        arrays = field.arrays
        if len(names) == 1 and components == 1 and arrays[0].ndim > len(mesh.shape_of(field.association)):
            arrays = (arrays[0][..., 0],)
        for each, array in zip(names, arrays, strict=True):
            self.take(each)
            if put_it:
                put.array(each, array, field.association)
        out["variables"] = names
        if field.units:
            out["units"] = field.units
        return out

    def take(self, variable: str) -> None:
        if variable in self._taken:
            raise InvalidArgument(f"two arrays of the channel would be the variable '{variable}'; rename a field")
        self._taken.add(variable)

    def put_global(self, name: str, array: np.ndarray, start: tuple[int, ...], shape: tuple[int, ...]) -> None:
        # Defined here: put() would take the order of each rank's own array.
        self._step._defined(name, array.dtype, "global_array", shape, self._order)
        self._step.put(name, array, start=start, shape=shape, lend=self._lend)

    def put_local(self, name: str, array: np.ndarray) -> None:
        variable = self._step._defined(name, array.dtype, "local_array", order=self._order)
        if self._lend and array.size > 0:
            self._step._core.lend(variable.id, (), array)
        else:
            self._step.put_local(name, array)


class _GlobalPut:
    """Puts arrays of a structured part where it lies in the whole. Gives the variable's name."""

    def __init__(self, channel: _Publication, mesh: StructuredMesh):
        self._channel = channel
        self._mesh = mesh

    def __call__(self, name: str, array: np.ndarray, association: str = "node") -> str:
        self._channel.take(name)
        self.array(name, array, association)
        return name

    def array(self, name: str, array: np.ndarray, association: str) -> None:
        mesh = self._mesh
        whole = mesh.whole if association == "node" else StructuredMesh(shape=mesh.whole).cells
        more = array.shape[len(whole) :]
        # An empty part may start behind the last element.
        start = mesh.start if array.size else (0,) * len(whole)
        self._channel.put_global(name, array, (*start, *(0 for _ in more)), (*whole, *more))

    def axis(self, name: str, array: np.ndarray, dimension: int) -> str:
        """The coordinates along one dimension."""
        self._channel.take(name)
        start = self._mesh.start[dimension] if array.size else 0
        self._channel.put_global(name, array, (start,), (self._mesh.whole[dimension],))
        return name


class _LocalPut:
    """Puts arrays as blocks of local arrays. Gives the variable's name."""

    def __init__(self, channel: _Publication):
        self._channel = channel

    def __call__(self, name: str, array: np.ndarray, association: str = "") -> str:
        self._channel.take(name)
        self._channel.put_local(name, array)
        return name

    def array(self, name: str, array: np.ndarray, association: str) -> None:
        self._channel.put_local(name, array)


def owned(mesh: StructuredMesh) -> StructuredMesh:
    """The part without its layers of ghosts, as views of its arrays; the mesh itself if it has none.

    Raises InvalidArgument when ghosts (of elements) lie between elements that are owned.
    """
    ghosts = mesh.ghosts.get("element")
    if ghosts is None or not ghosts.any():
        return replace(mesh, ghosts={}) if mesh.ghosts else mesh
    inside = ghosts == 0
    box = []
    for d in range(inside.ndim):
        found = np.nonzero(inside.any(axis=tuple(k for k in range(inside.ndim) if k != d)))[0]
        box.append((int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0))
    if not inside[tuple(slice(*each) for each in box)].all():
        raise InvalidArgument("a structured part has ghosts in layers around it, not between what it owns")
    empty = any(first == last for first, last in box)
    flat = [n == 1 for n in mesh.whole]
    nodes = [slice(a, 0 if empty else b + (not f)) for (a, b), f in zip(box, flat, strict=True)]
    return _cut(mesh, nodes, [slice(*each) for each in box])


def _cut(mesh: StructuredMesh, nodes: list[slice], cells: list[slice]) -> StructuredMesh:
    index = {"node": tuple(nodes), "element": tuple(cells)}
    more: dict[str, Any] = {}
    if isinstance(mesh, RectilinearMesh):
        more["coordinates"] = {axis: mesh.coordinates[axis][each] for axis, each in zip(mesh.axes, nodes, strict=True)}
    elif isinstance(mesh, CurvilinearMesh):
        more["coordinates"] = Field("node", mesh.coordinates)[index["node"]].values
    return replace(
        mesh,
        shape=tuple(each.stop - each.start for each in nodes),
        start=tuple(first + each.start for first, each in zip(mesh.start, nodes, strict=True)),
        fields={name: each[index[each.association]] for name, each in mesh.fields.items()},
        ids={key: array[index[key]] for key, array in mesh.ids.items()},
        ghosts={},
        **more,
    )


def _structured(mesh: StructuredMesh) -> dict[str, Any]:
    return {"shape": list(mesh.whole), "axes": mesh.axes}


def _uniform(name: str, mesh: UniformMesh, put: _GlobalPut) -> dict[str, Any]:
    return {**_structured(mesh), "origin": list(mesh.origin), "spacing": list(mesh.spacing)}


def _rectilinear(name: str, mesh: RectilinearMesh, put: _GlobalPut) -> dict[str, Any]:
    axes = [(d, axis, np.asarray(mesh.coordinates[axis], np.float64)) for d, axis in enumerate(mesh.axes)]
    return {**_structured(mesh), "coordinates": {axis: put.axis(f"{name}/{axis}", array, d) for d, axis, array in axes}}


def _curvilinear(name: str, mesh: CurvilinearMesh, put: _GlobalPut) -> dict[str, Any]:
    return {**_structured(mesh), **_coordinates(name, mesh.coordinates, put)}


def _coordinates(name: str, coordinates: Any, put: Any) -> dict[str, Any]:
    if not isinstance(coordinates, tuple):
        return {"coordinates": [put(f"{name}/coordinates", coordinates, "node")]}
    return {"coordinates": [put(f"{name}/{axis}", each, "node") for axis, each in zip("xyz", coordinates, strict=True)]}


def _particles(name: str, mesh: ParticleMesh, put: _LocalPut) -> dict[str, Any]:
    return _coordinates(name, mesh.coordinates, put)


def _unstructured(name: str, mesh: UnstructuredMesh, put: _LocalPut) -> dict[str, Any]:
    blocks = [_block(f"{name}/{block.name}", block, put) for block in mesh.blocks]
    return {**_coordinates(name, mesh.coordinates, put), "blocks": blocks}


def _block(prefix: str, block: ElementBlock, put: _LocalPut) -> dict[str, Any]:
    out = {"name": block.name, "id": block.id, "topology": block.topology}
    keys = ("connectivity", "offsets", "topologies") if block.topology == "mixed" else ("connectivity",)
    return out | {key: put(f"{prefix}/{key}", getattr(block, key)) for key in keys}


def _amr(name: str, mesh: AmrMesh, put: _LocalPut) -> dict[str, Any]:
    out = {key: getattr(mesh, key) for key in ("axes", "ghost_layers", "refinement")}
    out |= {key: list(getattr(mesh, key)) for key in ("cells", "origin", "spacing")}
    return out | {key: put(f"{name}/{key}", getattr(mesh, key)) for key in ("levels", "indices")}


_GEOMETRY: dict[type, Any] = {
    UniformMesh: _uniform,
    RectilinearMesh: _rectilinear,
    CurvilinearMesh: _curvilinear,
    UnstructuredMesh: _unstructured,
    ParticleMesh: _particles,
    AmrMesh: _amr,
}
