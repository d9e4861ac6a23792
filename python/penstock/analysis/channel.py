"""Meshes on a stream: putting them with the attribute `meshes`, and describing what a step holds.

docs/internals/coprocessing.md has the format. Variables: a field's is named like the field, or "MESH/FIELD" where
several meshes of the channel have a field of that name; one for each component adds "_x", "_y", "_z" (or "_0", ...).
What else a mesh needs is named "MESH/coordinates", "MESH/connectivity", ...
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidArgument, NotFound
from .attribute import LackingMesh, default_mesh, parse
from .description import MeshDescription
from .meshes import ElementBlock, Field, Mesh, StructuredMesh, cells_of
from .partition import check_places

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
    shape of the largest (1 to 3 dimensions, the last index along x; attributes "spacing", "origin" of the first of them
    or of the step), or no mesh. Raises InvalidArgument, with the mesh and the key, for what is not in the format or not
    in the step; a field of which the step has no variable is in MeshDescription.absent instead.
    """
    meshes, lacking = meshes_of(step)
    for mesh in lacking.values():
        raise InvalidArgument(mesh.why)
    return meshes


def meshes_of(step: ReadStep) -> tuple[dict[str, MeshDescription], dict[str, LackingMesh]]:
    """The meshes of a step as describe() gives them, and those of which the step lacks a variable; by name."""
    text = step.attributes.get(ATTRIBUTE)
    return (default_mesh(step), {}) if text is None else parse(step, text)


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
    mesh: Any
    for name, mesh in meshes.items():
        if not isinstance(name, str) or not 0 < len(name) <= 200:
            raise InvalidArgument(f"the name of a mesh is a str of 1 to 200 characters, not {name!r}")
        for block, inner in mesh.blocks.items() if mesh.type == "multiblock" else ():
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
        names = Counter(name for mesh in meshes.values() for name in mesh.fields)
        self._shared = {name for name, n in names.items() if n > 1}
        if wanted is not None and not set(wanted) <= set(names):
            raise InvalidArgument(f"no mesh has the field '{min(set(wanted) - set(names))}'; there are {sorted(names)}")

    def put_mesh(self, name: str, mesh: Any) -> dict[str, Any]:
        if mesh.type == "multiblock":
            return {"type": mesh.type, "blocks": list(mesh.blocks)}
        if isinstance(mesh, StructuredMesh):
            mesh = owned(mesh)
        out = {"type": mesh.type, **self._put_geometry(name, mesh)}
        out["fields"] = {key: self._put_field(name, key, mesh) for key in mesh.fields}
        if len(mesh.ghosts) > 1:
            raise InvalidArgument(f"mesh '{name}': a channel carries ghosts of nodes or of elements, not both")
        for association, array in mesh.ghosts.items():
            variable = self._put(f"{name}/ghosts", array, *_place(mesh, association))
            out["ghosts"] = {"association": association, "variables": [variable]}
        if mesh.ids:
            puts = {key: self._put(f"{name}/ids_{key}", array, *_place(mesh, key)) for key, array in mesh.ids.items()}
            out["ids"] = puts
        return out

    def _put_geometry(self, name: str, mesh: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if isinstance(mesh, StructuredMesh):
            out |= {"shape": list(mesh.whole), "axes": mesh.axes}
        if mesh.type == "uniform":
            out |= {"origin": list(mesh.origin), "spacing": list(mesh.spacing)}
        elif mesh.type == "rectilinear":
            lines = {axis: np.asarray(mesh.coordinates[axis], np.float64) for axis in mesh.axes}
            out["coordinates"] = {
                axis: self._put(f"{name}/{axis}", lines[axis], (mesh.start[d],), (mesh.whole[d],))
                for d, axis in enumerate(mesh.axes)
            }
        elif mesh.type == "amr":
            out |= {key: getattr(mesh, key) for key in ("axes", "ghost_layers", "refinement")}
            out |= {key: list(getattr(mesh, key)) for key in ("cells", "origin", "spacing")}
            out |= {key: self._put(f"{name}/{key}", getattr(mesh, key)) for key in ("levels", "indices")}
            out |= self._put_splits(name, mesh) if mesh.splits is not None else {}
        elif isinstance(mesh.coordinates, tuple):
            arrays = zip("xyz", mesh.coordinates, strict=True)
            out["coordinates"] = [self._put(f"{name}/{axis}", each, *_place(mesh, "node")) for axis, each in arrays]
        else:
            out["coordinates"] = [self._put(f"{name}/coordinates", mesh.coordinates, *_place(mesh, "node"))]
        if mesh.type == "unstructured":
            out["blocks"] = [self._put_block(f"{name}/{block.name}", block) for block in mesh.blocks]
        return out

    def _put_splits(self, name: str, mesh: Any) -> dict[str, Any]:
        """Rank 0 puts all numbers, so that readers ask one rank."""
        rank, size = self._step._stream.rank, self._step._stream.size
        if len(mesh.splits) != size:
            raise InvalidArgument(f"mesh '{name}': splits of {size} ranks are {size} numbers, not {len(mesh.splits)}")
        try:
            check_places(mesh.levels, mesh.indices, mesh.splits, rank, mesh.depth)
        except InvalidArgument as error:
            raise InvalidArgument(f"mesh '{name}', rank {rank}: {error}") from None
        numbers = mesh.splits if rank == 0 else mesh.splits[:0]
        return {"splits": self._put(f"{name}/splits", numbers, (0,), (size,)), "depth": mesh.depth}

    def _put_block(self, prefix: str, block: ElementBlock) -> dict[str, Any]:
        keys = ("connectivity", "offsets", "topologies") if block.topology == "mixed" else ("connectivity",)
        out = {"name": block.name, "id": block.id, "topology": block.topology}
        return out | {key: self._put(f"{prefix}/{key}", getattr(block, key)) for key in keys}

    def _put_field(self, mesh_name: str, name: str, mesh: Any) -> dict[str, Any]:
        field, components = mesh.fields[name], mesh.components(name)
        variable = f"{mesh_name}/{name}" if name in self._shared else name
        names, arrays = [variable], field.arrays
        out: dict[str, Any] = {"association": field.association}
        if components == 1:
            arrays = (arrays[0] if arrays[0].shape == mesh.shape_of(field.association) else arrays[0][..., 0],)
        elif isinstance(field.values, tuple):
            suffixes = "xyz"[:components] if components <= 3 else range(components)
            names = [f"{variable}_{suffix}" for suffix in suffixes]
        else:
            out["components"] = components
        put_it = self._wanted is None or name in self._wanted
        for each, array in zip(names, arrays, strict=True):
            start, whole = _place(mesh, field.association)
            self._put(each, array, start, whole, put_it=put_it)
        out["variables"] = names
        return out | ({"units": field.units} if field.units else {})

    def _put(
        self,
        name: str,
        array: np.ndarray,
        start: tuple[int, ...] = (),
        whole: tuple[int, ...] | None = None,
        put_it: bool = True,
    ) -> str:
        """Puts one block, of a local array if there is no whole; gives the variable's name."""
        if name in self._taken:
            raise InvalidArgument(f"two arrays of the channel would be the variable '{name}'; rename a field")
        self._taken.add(name)
        if not put_it:
            return name
        step = self._step
        if whole is not None:
            more = array.shape[len(whole) :]
            start = start if array.size else (0,) * len(start)  # an empty part may start behind the last element
            # Defined here: put() would take the order of each rank's own array.
            step._defined(name, array.dtype, "global_array", (*whole, *more), self._order)
            step.put(name, array, start=(*start, *(0 for _ in more)), shape=(*whole, *more), lend=self._lend)
            return name
        variable = step._defined(name, array.dtype, "local_array", order=self._order)
        if self._lend and array.size > 0:
            step._core.lend(variable.id, (), array)
        else:
            step.put_local(name, array)
        return name


def _place(mesh: Any, association: str) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Where a structured part's arrays start, and the shape of the whole; (), None for others."""
    if not isinstance(mesh, StructuredMesh):
        return (), None
    return mesh.start, mesh.whole if association == "node" else cells_of(mesh.whole)


def owned(mesh: Any) -> StructuredMesh:
    """The part without its layers of ghosts, as views of its arrays; the mesh itself if it has none.

    Raises InvalidArgument when ghosts (of elements) lie between elements that are owned.
    """
    ghosts = mesh.ghosts.get("element")
    if ghosts is None or not ghosts.any():
        unmarked: StructuredMesh = replace(mesh, ghosts={}) if mesh.ghosts else mesh
        return unmarked
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
    index = {"node": tuple(nodes), "element": tuple(slice(*each) for each in box)}
    more: dict[str, Any] = {}
    if mesh.type == "rectilinear":
        more["coordinates"] = {axis: mesh.coordinates[axis][each] for axis, each in zip(mesh.axes, nodes, strict=True)}
    elif mesh.type == "curvilinear":
        more["coordinates"] = Field("node", mesh.coordinates)[index["node"]].values
    share: StructuredMesh = replace(
        mesh,
        shape=tuple(each.stop - each.start for each in nodes),
        start=tuple(first + each.start for first, each in zip(mesh.start, nodes, strict=True)),
        fields={name: each[index[each.association]] for name, each in mesh.fields.items()},
        ids={key: array[index[key]] for key, array in mesh.ids.items()},
        ghosts={},
        **more,
    )
    return share
