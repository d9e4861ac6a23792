"""Regions as the meshes of analyses: elements in VTK's order, fields of all roles, shares."""

import numpy as np
import penstock
import pytest
from penstock import _core, mesh
from penstock.analysis.meshes import MIXED, NAMES, TOPOLOGIES
from penstock.analysis.region_meshes import fields_of, values_of

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
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    path = one_element(tmp_path / "one.e", topology)
    with mesh.open(path) as region:
        ours = region.to_vtk()
        assert region.to_mesh().blocks[0].topology == topology
    (theirs,) = [leaf for leaf in leaves(vtk_reader("ioss", path)) if leaf.GetNumberOfCells() == 1]
    assert ours.GetCellType(0) == theirs.GetCellType(0) == TOPOLOGIES[topology].vtk
    np.testing.assert_array_equal(corners(ours), corners(theirs))


def test_quadratic_elements_come_back_from_vtk(tmp_path):
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
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


def two_blocks(path):
    """A square of a quadrilateral and two triangles, and a pentagon: fields of all roles, two of them of one name."""
    nodes = mesh.Entity("node_block", "nodeblock_1", 1, 6)
    nodes.fields = [
        mesh.Field("coordinates", storage="vector_2d", role="mesh"),
        mesh.Field("pressure"),
        mesh.Field("velocity", storage="vector_2d"),
        mesh.Field("order", "int64", role="map"),
    ]
    quads = mesh.Entity("element_block", "quads", 10, 1, "QUAD4")
    quads.fields = [
        mesh.Field("connectivity", "int32", "[4]", role="mesh"),
        mesh.Field("thickness", role="attribute"),
        mesh.Field("pressure", "float32"),
        mesh.Field("material", "int32"),
        mesh.Field("energy", role="reduction"),
    ]
    polygons = mesh.Entity("element_block", "polygons", 20, 2, "nsided")
    polygons.fields = [
        mesh.Field("connectivity", "int32", role="mesh", count=8),
        mesh.Field("entity_counts", "int32", role="mesh"),
        mesh.Field("pressure"),
        mesh.Field("strain", storage="[2]"),
    ]
    region = mesh.Entity("region", "region", 0, 1)
    region.fields = [mesh.Field("momentum", storage="vector_3d", role="reduction")]
    with mesh.create(path, mesh.Model("", 2, [region, nodes, quads, polygons])) as out:
        out["nodeblock_1", "coordinates"] = [[0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 1]]
        out["nodeblock_1", "order"] = np.arange(6)[::-1]
        out["quads", "connectivity"] = np.array([[0, 1, 2, 3]], np.int32)
        out["quads", "thickness"] = [0.5]
        out["polygons", "connectivity"] = np.array([1, 4, 5, 1, 5, 2, 3, 0], np.int32)
        out["polygons", "entity_counts"] = np.array([3, 5], np.int32)
        with out.state(2.5) as state:
            state["nodeblock_1", "pressure"] = np.arange(6.0)
            state["nodeblock_1", "velocity"] = np.arange(12.0).reshape(6, 2)
            state["quads", "pressure"] = np.array([7], np.float32)
            state["quads", "material"] = np.array([3], np.int32)
            state["quads", "energy"] = [11.0]
            state["polygons", "pressure"] = [8.0, 9.0]
            state["polygons", "strain"] = [[1.0, 2.0], [3.0, 4.0]]
            state["region", "momentum"] = [[1.0, 2.0, 3.0]]
    return path


def test_fields_of_all_roles_by_name(tmp_path):
    with mesh.open(two_blocks(tmp_path / "a.e")) as region:
        region.next_state()
        found = region.to_mesh()
        assert list(found.fields) == list(fields_of(region.model)) and set(found.fields) == {
            "pressure", "velocity", "pressure_element", "material", "strain", "thickness", "order"}  # fmt: skip
        values = {name: each.values.tolist() for name, each in found.fields.items()}
        assert values["pressure"] == [0, 1, 2, 3, 4, 5] and values["pressure_element"] == [7, 8, 9]
        assert values["material"] == [3, 0, 0] and values["order"] == [5, 4, 3, 2, 1, 0]
        assert np.isnan(values["strain"][0]).all() and values["strain"][1:] == [[1, 2], [3, 4]]
        assert values["thickness"][0] == 0.5 and np.isnan(values["thickness"][1:]).all()
        assert found.components("velocity") == 2 and found.coordinates.shape == (6, 3)
        assert {name: each.tolist() for name, each in values_of(region).items()} == {
            "momentum": [[1, 2, 3]], "quads/energy": [11]}  # fmt: skip
        assert list(region.to_mesh(["strain"]).fields) == ["strain"]
        with pytest.raises(penstock.NotFound, match="did you mean 'pressure'"):
            region.to_mesh(["presure"])


def test_polygons_become_cells_of_vtk(tmp_path):
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    with mesh.open(two_blocks(tmp_path / "a.e")) as region:
        region.next_state()
        grid = region.to_vtk()
    assert [grid.GetCellType(i) for i in range(3)] == [9, 7, 7]
    assert [grid.GetCell(2).GetPointId(i) for i in range(5)] == [1, 5, 2, 3, 0]


def test_nodes_of_a_part_before_are_ghosts(tmp_path):
    path = written(tmp_path / "a.e")
    owned = []
    for share in range(3):
        with mesh.open(path, share=(share, 3)) as region:
            found = region.to_mesh([])
            marks = found.ghosts.get("node", np.zeros(found.size_of("node"), np.uint8))
            assert marks.any() == (share > 0)
            owned.extend(found.ids["node"][marks == 0])
    assert sorted(owned) == list(range(1, 141))


def test_elements_that_no_analysis_knows_are_named(tmp_path):
    nodes = mesh.Entity("node_block", "nodeblock_1", 1, 9)
    nodes.fields = [mesh.Field("coordinates", storage="vector_3d", role="mesh")]
    block = mesh.Entity("element_block", "odd", 10, 1, "hex9")
    block.fields = [mesh.Field("connectivity", "int32", "[9]", role="mesh")]
    with mesh.create(tmp_path / "a.e", mesh.Model("", 3, [nodes, block])) as out:
        out["nodeblock_1", "coordinates"] = np.zeros((9, 3))
        out["odd", "connectivity"] = np.arange(9, dtype=np.int32)[None]
    with mesh.open(tmp_path / "a.e") as region, pytest.raises(penstock.Unsupported, match="'odd': elements 'hex9'"):
        region.to_mesh()
