"""Regions as the meshes that analyses know (penstock.analysis.meshes), and so as VTK data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from ..analysis.meshes import TOPOLOGIES, ElementBlock, Field, UnstructuredMesh
from ..errors import Unsupported
from .model import Entity
from .region import Region

_NAMES = {each.vtk: name for name, each in TOPOLOGIES.items()}


def to_mesh(region: Region, fields: Sequence[str] | None = None) -> UnstructuredMesh:
    """The nodes, the element blocks and the fields on them (all, or those named), of the present state.

    A field that is not on all blocks is NaN on the others (0 for whole numbers). Raises Unsupported for elements that
    VTK has not, or numbers otherwise: hex20, polyhedra and the like.
    """
    model = region.model
    nodes = next(model.of("node_block"), None)
    if nodes is None or nodes.find("coordinates") is None:
        raise Unsupported("the region has no coordinates of nodes")
    blocks = [each for each in model.of("element_block") if each.count]
    found: dict[str, Field] = {}
    for its in nodes.fields:
        if its.role == "transient" and (fields is None or its.name in fields):
            found[its.name] = Field("node", region.read(nodes.name, its.name, role="transient"))
    names = dict.fromkeys(its.name for each in blocks for its in each.fields if its.role == "transient")
    for name in names:
        if name not in found and (fields is None or name in fields):
            found[name] = Field("element", _of_elements(region, blocks, name))
    ids = {"node": nodes.find("ids"), "element": all(each.find("ids", "mesh") for each in blocks) or None}
    kept = {}
    if ids["node"] is not None:
        kept["node"] = region.read(nodes.name, "ids").astype(np.int64)
    if ids["element"] is not None and blocks:
        kept["element"] = np.concatenate([region.read(each.name, "ids") for each in blocks]).astype(np.int64)
    return UnstructuredMesh(
        coordinates=_in_space(region.read(nodes.name, "coordinates")),
        blocks=[_block(region, each) for each in blocks],
        fields=found,
        ids=kept,
    )


def _in_space(coordinates: np.ndarray) -> np.ndarray:
    out = np.zeros((len(coordinates), 3), coordinates.dtype)
    flat = coordinates.reshape(len(coordinates), -1)
    out[:, : flat.shape[1]] = flat
    return out


def _block(region: Region, block: Entity) -> ElementBlock:
    known = _core.mesh_topology(block.topology)
    name = None if known is None else _NAMES.get(known[3])
    if name is None:
        raise Unsupported(f"element block {block.name!r}: elements {block.topology!r} are none that an analysis knows")
    return ElementBlock(block.name, name, region.read((block.type, block.name), "connectivity"), block.id)


def _of_elements(region: Region, blocks: Sequence[Entity], name: str) -> np.ndarray:
    parts: list[Any] = [
        region.read((each.type, each.name), name, role="transient") if each.find(name, "transient") else None
        for each in blocks
    ]
    first = next(each for each in parts if each is not None)
    missing = np.nan if first.dtype.kind in "fc" else 0
    filled = [
        np.full((block.count, *first.shape[1:]), missing, first.dtype) if part is None else part
        for block, part in zip(blocks, parts, strict=True)
    ]
    return np.concatenate(filled)
