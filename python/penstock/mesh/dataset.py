"""A state of a region as an xarray.Dataset, with connectivity as the UGRID conventions (1.0) have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from ..errors import NotFound
from ..names import nearest
from ..topologies import TOPOLOGIES
from .model import Entity, Field, suffixes
from .region import Region

_PLACES = ("node", "edge", "face", "volume")  # UGRID's, by dimension


def to_xarray(region: Region, fields: Sequence[str] | None) -> Any:
    import xarray

    known = {its.name for each in region.model.entities for its in each.fields if its.in_state}
    for name in fields or ():
        if name not in known:
            raise NotFound(f"no entity has a field '{name}' of states{nearest(name, known)}")
    made = _Dataset(region)
    for entity in region.model.entities:
        mesh = made.add_mesh(entity)
        for its in entity.fields:
            if its.in_state and (region.state is None or (fields is not None and its.name not in fields)):
                continue
            made.add(entity, its, mesh)
    attributes: dict[str, Any] = {"Conventions": "UGRID-1.0", "title": region.model.title}
    if region.state is not None:
        made.coordinates["time"] = ((), region.state.time)
        attributes["state"] = region.state.number
    return xarray.Dataset(made.variables, made.coordinates, attributes)


class _Dataset:
    def __init__(self, region: Region):
        self.variables: dict[str, Any] = {}
        self.coordinates: dict[str, Any] = {}
        self._region = region
        self._names = Counter(each.name for each in region.model.entities)
        self._taken = {"time", "x", "y", "z", *map(self._name, region.model.entities)}
        blocks = region.model.of("element_block")
        self._node_mesh = next((f"{self._name(each)}_mesh" for each in blocks if _topology(each)), None)

    def _name(self, entity: Entity) -> str:
        if entity.type == "node_block" and sum(1 for _ in self._region.model.of("node_block")) == 1:
            return "node"
        return entity.name if self._names[entity.name] == 1 else f"{entity.type}_{entity.name}"

    def add_mesh(self, entity: Entity) -> dict[str, Any]:
        """Makes an element block a mesh of UGRID. What fields of the entity have as attributes."""
        if entity.type == "node_block" and self._node_mesh:
            return {"mesh": self._node_mesh, "location": "node"}
        topology = _topology(entity)
        if topology is None:
            return {}
        name = self._name(entity)
        where = _PLACES[topology.dimension]
        self.variables[f"{name}_mesh"] = (
            (),
            np.int32(0),
            {
                "cf_role": "mesh_topology",
                "topology_dimension": topology.dimension,
                "node_coordinates": " ".join("xyz"[: self._region.model.dimensions]),
                f"{where}_node_connectivity": f"{name}_connectivity",
                "topology": _core.mesh_topology(entity.topology),
            },
        )
        return {"mesh": f"{name}_mesh", "location": where}

    def add(self, entity: Entity, its: Field, mesh: dict[str, Any]) -> None:
        name = self._name(entity)
        values = self._region.read((entity.type, entity.name), its.name, role=its.role)
        if its.role == "mesh" and its.name == "ids":
            self.coordinates[name] = ((name,), values)
            return
        if its.role == "mesh" and its.name == "coordinates":
            for axis, array in zip("xyz", (values if values.ndim == 2 else values[:, None]).T, strict=False):
                self.coordinates[axis if name == "node" else f"{name}_{axis}"] = ((name,), array)
            return
        of_one = entity.type == "region" or its.role == "reduction"
        rows = () if of_one else (f"{name}_{its.name}_entries" if its.count else name,)
        attributes = dict(mesh) if rows == (name,) else {}
        key = its.name if name == "node" or entity.type == "region" else f"{name}_{its.name}"
        if key in self._taken:  # a region has the field `time`, say
            key = f"{name}_{its.name}"
        if key in self.variables:
            key = f"{name}_{its.name}_{its.role}"
        if its.role == "mesh" and its.name == "connectivity" and mesh:
            rows = (*rows, f"{name}_corner")
            attributes = {"cf_role": f"{mesh['location']}_node_connectivity", "start_index": 0}
        elif its.width > 1:
            rows = (*rows, self._components(its))
        self.variables[key] = (rows, values[0] if of_one else values, attributes)

    def _components(self, its: Field) -> str:
        if its.storage.startswith("["):
            return f"component_{its.width}"
        self.coordinates[its.storage] = ((its.storage,), list(suffixes(its.storage)))
        return its.storage


def _topology(entity: Entity) -> Any:
    """Of an element block whose connectivity is an array, as UGRID has it; else None."""
    found = TOPOLOGIES.get(_core.mesh_topology(entity.topology)) if entity.type == "element_block" else None
    return found if found and found.dimension and entity.find("connectivity", "mesh") else None
