"""Regions as the meshes of analyses: elements in VTK's order, fields of all roles, shares."""

import numpy as np
import pytest
from penstock import _core, mesh
from penstock.analysis.meshes import MIXED, NAMES, TOPOLOGIES

from .test_mesh import leaves, pytestmark, vtk_reader, written  # noqa: F401

SOLID = {"hex20": 20, "hex27": 27, "wedge15": 15, "wedge18": 18, "pyramid13": 13, "tet10": 10, "hex8": 8, "wedge6": 6}


def one_element(path, topology):
    """Its nodes have coordinates that tell them apart."""
    count = TOPOLOGIES[topology].nodes
    nodes = mesh.Entity("node_block", "nodeblock_1", 1, count)
    nodes.fields = [mesh.Field("coordinates", storage="vector_3d", role="mesh")]
    block = mesh.Entity("element_block", "block", 10, 1, topology)
    block.fields = [mesh.Field("connectivity", "int32", f"[{count}]", role="mesh")]
    coordinates = np.arange(3.0 * count).reshape(count, 3) ** 1.5
    with mesh.create(path, mesh.Model("", 3, [nodes, block])) as out:
        out["nodeblock_1", "coordinates"] = coordinates
        out["block", "connectivity"] = np.random.default_rng(5).permutation(count).astype(np.int32)[None]
    return path


def corners(grid):
    cell = grid.GetCell(0)
    return np.array([cell.GetPoints().GetPoint(i) for i in range(cell.GetNumberOfPoints())])


@pytest.mark.parametrize("topology", SOLID)
def test_nodes_are_in_the_order_of_vtk(tmp_path, topology):
    pytest.importorskip("vtkmodules")
    path = one_element(tmp_path / "one.e", topology)
    with mesh.open(path) as region:
        ours = region.to_vtk()
        assert region.to_mesh().blocks[0].topology == topology
    (theirs,) = [leaf for leaf in leaves(vtk_reader("ioss", path)) if leaf.GetNumberOfCells() == 1]
    assert ours.GetCellType(0) == theirs.GetCellType(0) == TOPOLOGIES[topology].vtk
    np.testing.assert_array_equal(corners(ours), corners(theirs))


def test_quadratic_elements_come_back_from_vtk(tmp_path):
    pytest.importorskip("vtkmodules")
    from penstock.analysis.vtk import from_vtk

    for topology in ("hex20", "hex27", "wedge15", "wedge18"):
        with mesh.open(one_element(tmp_path / f"{topology}.e", topology)) as region:
            (block,) = from_vtk(region.to_vtk()).blocks
            assert block.topology == topology
            np.testing.assert_array_equal(block.connectivity, region["block", "connectivity"])


def test_one_table_of_topologies():
    assert {"hex8", "tet4", "quad4", "shell4", "hex27", "sphere"} <= TOPOLOGIES.keys()
    assert NAMES[3] == "bar2" and NAMES[9] == "quad4" and NAMES[5] == "tri3"
    assert MIXED[7] is None and MIXED[25] == 20 and 42 not in MIXED
    assert _core.mesh_topology("HEX20") == "hex20" and _core.mesh_topology("none") == ""
