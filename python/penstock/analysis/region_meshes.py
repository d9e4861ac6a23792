"""Mesh regions as the meshes that analyses know (penstock.analysis.meshes), and so as VTK data sets.

The fields of an analysis are those of nodes and elements, of the roles transient, attribute and map. Reduction fields
are values: a field has one for its region, block or set. Cells of structured blocks are elements, after the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from .. import _core
from ..errors import InvalidArgument, NotFound, Unsupported
from ..mesh import Entity, Model, Region, Structured
from ..mesh.model import numpy_dtype
from ..names import nearest
from ..topologies import TOPOLOGIES
from .meshes import ElementBlock, Field, UnstructuredMesh

_BLOCKS = {"node": ("node_block",), "element": ("element_block", "structured_block")}
_POLYGON = 7  # VTK's cell type


class FieldPlace(NamedTuple):
    """A field of an analysis: that of this name and role in the blocks of nodes or elements that have it."""

    association: str
    name: str
    role: str
    components: int


def fields_of(model: Model) -> dict[str, FieldPlace]:
    """By their names in the analysis.

    Where several have a name, that of nodes goes before that of elements, and roles as listed above; the others are
    called NAME_element or NAME_attribute. Left out: complex numbers, and rows of different lengths.
    """
    out: dict[str, FieldPlace] = {}
    for role in ("transient", "attribute", "map"):
        for association in _BLOCKS:
            for each in _blocks(model, association):
                for its in each.fields:
                    if its.role != role or its.count or numpy_dtype(its).kind not in "biuf":
                        continue
                    place = FieldPlace(association, its.name, role, its.width)
                    name = its.name
                    for suffix in (association, role):
                        if out.get(name, place)[:3] != place[:3]:
                            name = f"{name}_{suffix}"
                    out.setdefault(name, place)
    return out


def _blocks(model: Model, association: str) -> list[Entity]:
    return [each for kind in _BLOCKS[association] for each in model.of(kind)]


def values_of(region: Region) -> dict[str, np.ndarray]:
    """Reduction fields of the present state: NAME of the region's, ENTITY/NAME of others; arrays of one row."""
    return {
        its.name if each.type == "region" else f"{each.name}/{its.name}": region.read(
            (each.type, each.name), its.name, role=its.role
        )
        for each in region.model.entities
        for its in each.fields
        if its.role == "reduction" and numpy_dtype(its).kind in "biuf"
    }


def to_mesh(region: Region, fields: Sequence[str] | None = None) -> UnstructuredMesh:
    """The nodes, the element blocks and the fields on them (all, or those named), of the present state.

    A field that is not on all blocks is NaN on the others (0 for whole numbers). Nodes that a part of a lower number
    has too are ghosts. Raises NotFound for a field that is not there, Unsupported for elements that VTK has not.
    """
    return with_fields(region, to_skeleton(region), fields)


def with_fields(region: Region, skeleton: UnstructuredMesh, fields: Sequence[str] | None = None) -> UnstructuredMesh:
    """The mesh of to_skeleton() with fields of the present state."""
    known = fields_of(region.model)
    chosen = list(known if fields is None else dict.fromkeys(fields))
    for name in chosen:
        if name not in known:
            raise NotFound(f"no nodes or elements have a field '{name}'{nearest(name, known)}")
    found = {name: Field(known[name].association, _read(region, known[name])) for name in chosen}
    return replace(skeleton, fields=found)


def to_skeleton(region: Region) -> UnstructuredMesh:
    """The mesh without fields."""
    nodes = list(region.model.of("node_block"))
    if not nodes or any(each.find("coordinates", "mesh") is None for each in nodes):
        raise Unsupported("the region has no coordinates of nodes")
    elements = _blocks(region.model, "element")
    ids = {}
    for association, blocks in (("node", nodes), ("element", elements)):
        if blocks and all(each.find("ids", "mesh") for each in blocks):
            parts = [region.read((each.type, each.name), "ids", role="mesh") for each in blocks]
            ids[association] = np.concatenate(parts).astype(np.int64)
    coordinates = [_in_space(region.read((each.type, each.name), "coordinates", role="mesh")) for each in nodes]
    return UnstructuredMesh(
        coordinates=np.concatenate(coordinates),
        blocks=[_block(region, each) for each in elements],
        ids=ids,
        ghosts=_ghosts(region),
    )


def _in_space(coordinates: np.ndarray) -> np.ndarray:
    out = np.zeros((len(coordinates), 3), coordinates.dtype)
    flat = coordinates if coordinates.ndim == 2 else coordinates[:, None]
    out[:, : flat.shape[1]] = flat
    return out


def _block(region: Region, block: Entity) -> ElementBlock:
    def read(field: str) -> np.ndarray:
        return region.read((block.type, block.name), field, role="mesh")

    if block.structured is not None:
        return _cells(region, block, block.structured)
    name = _core.mesh_topology(block.topology)
    if name in TOPOLOGIES:
        return ElementBlock(block.name, name, read("connectivity").reshape(-1, TOPOLOGIES[name].nodes), block.id)
    if name == "nsided":
        offsets = np.concatenate([[0], np.cumsum(read("entity_counts"), dtype=np.int64)])
        kinds = np.full(block.count, _POLYGON, np.uint8)
        return ElementBlock(block.name, "mixed", read("connectivity"), block.id, offsets, kinds)
    raise Unsupported(f"element block {block.name!r}: elements {block.topology!r} are none that an analysis knows")


def _cells(region: Region, block: Entity, its: Structured) -> ElementBlock:
    """The cells of a structured block as lines, quadrilaterals or hexahedra."""
    axes = sum(each > 0 for each in its.whole)
    first = 0  # of its nodes among all
    for each in region.model.of("node_block"):
        if each.name == block.name:
            break
        first += each.count
    ni, nj, nk = its.nodes
    number = first + np.arange(ni * nj * nk).reshape(nk, nj, ni)
    low, high = slice(None, -1), slice(1, None)
    corners: list[tuple[slice, ...]] = [(low,), (high,)]
    if axes > 1:
        corners = [(low, low), (low, high), (high, high), (high, low)]  # of j, i
    if axes > 2:
        corners = [(side, *each) for side in (low, high) for each in corners]
    alone = (0,) * (3 - axes)  # axes that are not there
    columns = [number[cast(Any, (*alone, *each))].ravel() for each in corners] if block.count else []
    connectivity = np.column_stack(columns) if columns else np.empty((0, 2**axes), np.int64)
    return ElementBlock(block.name, ("bar2", "quad4", "hex8")[axes - 1], connectivity, block.id)


def _ghosts(region: Region) -> dict[str, np.ndarray]:
    shared = [each for each in region.model.of("comm_set") if each.name == "commset_node" and each.count]
    if not shared or region.parts == 1:
        return {}
    marks = np.zeros(region.model.count("node_block"), np.uint8)
    pairs = region.read((shared[0].type, shared[0].name), "entity_processor", role="communication")
    marks[pairs[pairs[:, 1] < region.part, 0]] = 1
    return {"node": marks}


def _read(region: Region, place: FieldPlace) -> np.ndarray:
    blocks = _blocks(region.model, place.association)
    found = [each.find(place.name, place.role) for each in blocks]
    widths = {its.width for its in found if its is not None}
    if len(widths) > 1:
        raise InvalidArgument(f"field '{place.name}' has {' and '.join(map(str, sorted(widths)))} components: no array")
    present = [numpy_dtype(its) for its in found if its is not None]
    dtype = np.result_type(*present)
    missing = np.nan if dtype.kind == "f" else 0
    parts = [
        region.read((each.type, each.name), place.name, role=place.role)
        if its is not None
        else np.full((each.count,) if place.components == 1 else (each.count, place.components), missing, dtype)
        for each, its in zip(blocks, found, strict=True)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
