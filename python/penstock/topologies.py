"""The elements that meshes are made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import _core


class Topology(NamedTuple):
    """An element: VTK's cell type, how many nodes it has, and for each node of VTK's cell which node it is here."""

    vtk: int
    nodes: int
    dimension: int
    order: np.ndarray | None  # None: the same

    def in_order_of_vtk(self, connectivity: np.ndarray) -> np.ndarray:
        return connectivity if self.order is None else connectivity[:, self.order]

    def from_order_of_vtk(self, connectivity: np.ndarray) -> np.ndarray:
        return connectivity if self.order is None else connectivity[:, np.argsort(self.order)]


# Those of a fixed number of nodes that VTK has too. Names and order of nodes are IOSS's (src/mesh/topology.cpp).
TOPOLOGIES = {
    name: Topology(vtk, nodes, dimension, np.array(order) if order else None)
    for name, nodes, dimension, vtk, order in _core.mesh_topologies()
    if vtk and nodes
}
