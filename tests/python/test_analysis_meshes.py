"""Meshes as values, and VTK's data sets of elements, particles and AMR blocks."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

from penstock import InvalidArgument
from penstock.analysis import (
    AmrMesh,
    CurvilinearMesh,
    ElementBlock,
    Field,
    Multiblock,
    ParticleMesh,
    RectilinearMesh,
    UniformMesh,
    UnstructuredMesh,
    from_vtk,
    to_vtk,
)
from penstock.analysis.vtk import numpy_of
from vtk_checks import ORIGIN, SPACING, WEIGHTS, cell_volumes, output, probe_error


def test_importing_the_package_imports_no_vtk():
    program = "import sys, penstock.analysis as a; a.publish; a.UniformMesh; print('vtkmodules' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    import penstock.analysis

    assert set(penstock.analysis.__all__) <= set(dir(penstock.analysis))
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        penstock.analysis.absent  # noqa: B018


# ---------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Field("cell", np.zeros(3)), "'node' or 'element', not 'cell'"),
        (lambda: Field("node", np.zeros(3, complex)), "real numbers"),
        (lambda: Field("node", (np.zeros(3), np.zeros(4))), "one type and shape"),
        (lambda: Field("node", ()), "at least one component"),
        (lambda: UniformMesh(shape=(2, 2, 2, 2)), "1 to 3 dimensions"),
        (lambda: UniformMesh(shape=(2, -1)), "at least 0"),
        (lambda: UniformMesh(shape=(2, 2.0)), "at least 0"),
        (lambda: UniformMesh(shape=(2, 3), axes="xx"), "axes are 2 different letters"),
        (lambda: UniformMesh(shape=(2, 3), start=(3, 0), whole=(4, 3)), "not inside the whole"),
        (lambda: UniformMesh(shape=(2, 3), spacing=(1, 0, 1)), "spacing is positive"),
        (lambda: UniformMesh(shape=(2, 3), origin=(1, np.nan, 1)), "three finite numbers"),
        (
            lambda: UniformMesh(shape=(2, 3), fields={"U": Field("element", np.zeros((2, 3)))}),
            r"'U'.*expected shape \(1, 2\), not \(2, 3\)",
        ),
        (lambda: UniformMesh(shape=(2, 3), ghosts={"element": np.zeros((1, 2))}), "ghosts of each element.*uint8"),
        (lambda: UniformMesh(shape=(2, 3), ids={"node": np.zeros((2, 3), np.int32)}), "ids of each node.*int64"),
        (lambda: RectilinearMesh(shape=(3,), coordinates={"y": np.zeros(3)}), "axes 'x', not of 'y'"),
        (lambda: RectilinearMesh(shape=(3,), coordinates={"x": np.zeros(2)}), "x are 3 numbers"),
        (lambda: CurvilinearMesh(shape=(3, 2), coordinates=np.zeros((3, 2, 2))), r"shape \(3, 2, 3\)"),
        (lambda: ElementBlock("a", "hex9", np.zeros((1, 9), int)), "no topology 'hex9'"),
        (lambda: ElementBlock("a", "hex8", np.zeros((1, 4), int)), r"\(n, 8\), not \(1, 4\)"),
        (lambda: ElementBlock("a", "hex8", np.zeros((1, 8))), "integers, not float64"),
        (lambda: mixed([0, 1], [0, 2], [5]), "topology 5 have 3 nodes"),
        (lambda: mixed([0, 1, 2], [0, 3], [99]), "no topology has the number 99"),
        (lambda: mixed([0, 1, 2], [0, 3, 2], [5, 3]), "offsets rise"),
        (lambda: mixed([0, 1, 2], [0, 3, 3], [5]), "1 elements have 2 offsets"),
        (lambda: mixed([0, 1, 2], [0, 3, 3], [5, 7]), "offsets rise .* by 1 at least"),
        (lambda: mixed([0] * 10, [0, 5, -(2**63), -1, 10], [7] * 4), "offsets rise"),
        (lambda: ParticleMesh(coordinates=np.zeros((3, 3), bool)), "not bool"),
        (lambda: unstructured(nodes=3, connectivity=[[0, 1, 3]]), "node numbers 0 to 3, the part has 3"),
        (lambda: unstructured(nodes=3, connectivity=[[0, 1, -1]]), "node numbers -1 to 1"),
        (lambda: ParticleMesh(coordinates=np.zeros((3, 2))), r"shape \(n, 3\)"),
        (
            lambda: ParticleMesh(coordinates=np.zeros((3, 3)), fields={"m": Field("node", np.zeros(3))}),
            "particles has .*'element'",
        ),
        (lambda: amr([0, 1], cells=(2, 2), ghost_layers=1), "cannot have 1 ghost layers"),
        (lambda: amr([0, -1], cells=(2, 2)), "levels are 0 to 50"),
        (lambda: amr([0], cells=(2, 2), splits=np.array([1, 0], np.uint64)), "never fall"),
        (
            lambda: amr([0], cells=(2, 2), splits=np.zeros(1, np.uint64), refinement=3),
            "depth of 0 to 20 and refinement 2",
        ),
        (lambda: amr([0], cells=(2, 2), depth=1), "depth is given with splits"),
        (lambda: amr([0, 1], cells=(2, 2), indices=np.zeros((1, 3), int)), r"shape \(2, 3\)"),
        (lambda: Multiblock(blocks={"a": Multiblock(blocks={})}), "no multiblock"),
    ],
)
def test_what_is_no_mesh_is_refused(make, message):
    with pytest.raises(InvalidArgument, match=message):
        make()


def mixed(nodes, offsets, topologies):
    return ElementBlock(
        "m", "mixed", np.array(nodes), offsets=np.array(offsets), topologies=np.array(topologies, np.uint8)
    )


def unstructured(nodes, connectivity, **more):
    block = ElementBlock("shell", "tri3", np.array(connectivity, np.int64).reshape(-1, 3))
    return UnstructuredMesh(coordinates=np.zeros((nodes, 3)), blocks=[block], **more)


def amr(levels, cells, **more):
    more.setdefault("indices", np.zeros((len(levels), 3), np.int64))
    return AmrMesh(levels=np.array(levels, int), cells=cells, **more)


# -------------------------------------------------------------------------------------------------------------- VTK


def corners(topology):
    x = {
        "tet4": [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)],
        "hex8": [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)],
        "wedge6": [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)],
        "pyramid5": [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0.5, 0.5, 1)],
        "tri3": [(0, 0, 0), (1, 0, 0), (0, 1, 0)],
        "quad4": [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)],
        "bar2": [(0, 0, 0), (1, 0, 0)],
    }
    base = {"tet10": "tet4", "tri6": "tri3", "quad8": "quad4"}.get(topology, topology)
    x = [np.array(each, float) for each in x[base]]
    middles = {
        "tet10": [(0, 1), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3)],
        "tri6": [(0, 1), (1, 2), (2, 0)],
        "quad8": [(0, 1), (1, 2), (2, 3), (3, 0)],
    }
    return np.array(x + [(x[a] + x[b]) / 2 for a, b in middles.get(topology, ())])


SOLIDS = {"tet4": 1 / 6, "hex8": 1.0, "wedge6": 0.5, "pyramid5": 1 / 3, "tet10": 1 / 6}


@pytest.mark.parametrize("topology", [*SOLIDS, "tri3", "quad4", "bar2", "tri6", "quad8"])
@pytest.mark.parametrize("mixed_block", [False, True])
def test_node_orders(topology, mixed_block):
    """IOSS's order of nodes is VTK's: interpolation, positive volumes, and contours with the same winding as others."""
    from penstock.analysis.meshes import TOPOLOGIES
    from vtkmodules.vtkFiltersCore import vtkContourFilter

    x = corners(topology) @ np.array([[1, 0.1, 0], [0, 1, 0.2], [0, 0, 1]]) + [3, 1, 2]
    nodes = np.arange(len(x))
    if mixed_block:
        block = mixed(nodes, [0, len(x)], [TOPOLOGIES[topology].vtk])
    else:
        block = ElementBlock("b", topology, nodes[None])
    fields = {
        "p": Field("node", x @ WEIGHTS + 1),
        "q": Field("node", x),
        "s": Field("node", tuple(np.ascontiguousarray(x[:, c]) for c in range(3))),
    }
    grid = to_vtk(UnstructuredMesh(coordinates=x, blocks=[block], fields=fields))
    assert probe_error(grid, n=10) < (1e-3 if topology == "tet10" else 1e-9)  # VTK looks for a place iteratively
    if topology in SOLIDS:
        assert cell_volumes(grid)[0] == pytest.approx(SOLIDS[topology])
        filter_ = vtkContourFilter()
        filter_.SetInputArrayToProcess(0, 0, 0, 0, "p")
        filter_.SetValue(0, (x @ WEIGHTS).mean() + 1)
        surface = output(filter_, grid)
        p = numpy_of(surface.GetPoints().GetData())[numpy_of(surface.GetPolys().GetConnectivityArray()).reshape(-1, 3)]
        assert (np.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0]) @ WEIGHTS < 0).all()  # towards smaller values


def two_cells():
    """A hexahedron, and beside it a wedge; on a block of each topology, or mixed."""
    x = np.array([(i, j, k) for k in range(2) for j in range(2) for i in range(2)] + [(2, 0, 0), (2, 0, 1)], float)
    hexa, wedge = [0, 1, 3, 2, 4, 5, 7, 6], [1, 8, 3, 5, 9, 7]
    separate = [
        ElementBlock("h", "hex8", np.array([hexa])),
        ElementBlock("w", "wedge6", np.array([wedge], np.int32), id=7),
    ]
    return x, separate, [mixed(hexa + wedge, [0, 8, 14], [12, 13])]


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_unstructured(which, dtype):
    x, *ways = two_cells()
    ghosts, ids = np.array([0, 1], np.uint8), np.array([40, 50])
    fields = {"e": Field("element", np.array([1.0, 2.0])), "n": Field("node", np.arange(10.0))}
    blocks = ways[which - 1]
    if which == 2:
        blocks = [
            ElementBlock(
                "m",
                "mixed",
                blocks[0].connectivity.astype(dtype),
                offsets=blocks[0].offsets.astype(dtype),
                topologies=blocks[0].topologies,
            )
        ]
    mesh = UnstructuredMesh(
        coordinates=x, blocks=blocks, fields=fields, ghosts={"element": ghosts}, ids={"element": ids}
    )
    grid = to_vtk(mesh)
    assert [grid.GetCellType(n) for n in range(2)] == [12, 13]
    assert np.abs(cell_volumes(grid)).tolist() == pytest.approx([1, 0.5])
    assert numpy_of(grid.GetPoints().GetData()).ctypes.data == x.ctypes.data
    assert numpy_of(grid.GetCellData().GetGlobalIds()).tolist() == [40, 50]
    assert numpy_of(grid.GetCellData().GetArray("vtkGhostType")).tolist() == [0, 1]
    if which == 2:
        shared = numpy_of(grid.GetCells().GetConnectivityArray())
        assert shared.ctypes.data == blocks[0].connectivity.ctypes.data and shared.dtype == dtype

    back = from_vtk(grid)
    assert back.blocks[0].topology == "mixed" and back.blocks[0].topologies.tolist() == [12, 13]
    assert back.fields["e"].values.ctypes.data == fields["e"].values.ctypes.data
    assert back.ids["element"].tolist() == [40, 50] and back.ghosts["element"].tolist() == [0, 1]
    np.testing.assert_array_equal(back.coordinates, x)


def test_split_coordinates_and_one_topology():
    x, separate, _ = two_cells()
    columns = tuple(np.ascontiguousarray(x[:, c]) for c in range(3))
    grid = to_vtk(UnstructuredMesh(coordinates=columns, blocks=separate[:1]))
    assert cell_volumes(grid).tolist() == pytest.approx([1])
    connectivity = numpy_of(grid.GetCells().GetConnectivityArray())
    assert connectivity.ctypes.data == separate[0].connectivity.ctypes.data
    fortran = np.asfortranarray(x)
    points = to_vtk(UnstructuredMesh(coordinates=fortran, blocks=separate[:1])).GetPoints().GetData()
    for data, column in ((grid.GetPoints().GetData(), columns), (points, fortran.T)):
        for c in range(3):
            assert np.asarray(data.GetComponentBuffer(c)).ctypes.data == column[c].ctypes.data
    (block,) = from_vtk(grid).blocks
    assert block.topology == "hex8" and block.connectivity.tolist() == separate[0].connectivity.tolist()


def test_empty_meshes():
    for mesh in (
        UniformMesh(shape=(0, 0, 0), whole=(3, 3, 3), fields={"a": Field("node", np.zeros((0, 0, 0)))}),
        UniformMesh(shape=(0, 0), whole=(3, 3), axes="xy"),
        RectilinearMesh(shape=(0,), whole=(3,), coordinates={"x": np.zeros(0)}),
        CurvilinearMesh(shape=(0, 0), whole=(3, 3), coordinates=np.zeros((0, 0, 3))),
        UnstructuredMesh(coordinates=np.zeros((0, 3))),
        unstructured(0, []),
        ParticleMesh(coordinates=np.zeros((0, 3)), fields={"m": Field("element", np.zeros((0, 2)))}),
    ):
        data = to_vtk(mesh)
        assert data.GetNumberOfPoints() == 0 and data.GetNumberOfCells() == 0, mesh
    assert to_vtk(amr([], cells=(2, 2))).GetNumberOfBlocks() == 0


def test_particles():
    x = np.random.default_rng(0).random((5, 3), np.float32)
    mesh = ParticleMesh(
        coordinates=x, fields={"m": Field("element", np.arange(5.0))}, ids={"element": np.arange(5) + 100}
    )
    data = to_vtk(mesh)
    assert data.GetNumberOfVerts() == 5 and data.GetVerts().IsHomogeneous() == 1
    assert numpy_of(data.GetPoints().GetData()).ctypes.data == x.ctypes.data
    back = from_vtk(data)
    assert isinstance(back, ParticleMesh) and back.ids["element"].tolist() == [100, 101, 102, 103, 104]
    np.testing.assert_array_equal(back.coordinates, x)
    np.testing.assert_array_equal(back.fields["m"].values, np.arange(5.0))


@pytest.mark.parametrize("axes", ["xyz", "zyx", "yx", "z"])
def test_amr(axes):
    """A block of level 0, and the eight that refine the one beside it, with a ghost layer."""
    from vtkmodules.vtkFiltersCore import vtkThreshold

    blocks = [(0, (1, 0, 0)), *((1, (i, j, k)) for i in range(2) for j in range(2) for k in range(2))]
    cells = tuple(4 + d for d in range(len(axes)))
    levels, indices = np.array([b[0] for b in blocks]), np.array([b[1] for b in blocks])
    values = np.random.default_rng(5).random((9, *cells))
    mesh = amr(
        levels,
        cells,
        indices=indices,
        axes=axes,
        ghost_layers=1,
        origin=ORIGIN,
        spacing=SPACING,
        fields={"f": Field("element", values), "v": Field("element", np.stack([values, -values], axis=-1))},
    )
    data = to_vtk(mesh)
    assert data.GetNumberOfBlocks() == 9
    for row, (level, index) in enumerate(blocks):
        image = data.GetBlock(row)
        for cell in np.ndindex(cells):
            centre = ORIGIN.copy()
            for d, axis in enumerate(axes):
                a = "xyz".index(axis)
                centre[a] += SPACING[a] / 2**level * (index[a] * (cells[d] - 2) + cell[d] - 1 + 0.5)
            place = [0, 0, 0]
            assert image.ComputeStructuredCoordinates(centre, place, [0.0] * 3)
            number = image.ComputeCellId(place)
            assert image.GetCellData().GetArray("f").GetTuple1(number) == values[(row, *cell)]
            assert image.GetCellData().GetArray("v").GetTuple2(number) == (values[(row, *cell)], -values[(row, *cell)])
            outer = any(c in (0, n - 1) for c, n in zip(cell, cells, strict=True))
            assert image.GetCellData().GetArray("vtkGhostType").GetTuple1(number) == outer
    if axes == "zyx":
        first = numpy_of(data.GetBlock(3).GetCellData().GetArray("f"))
        assert first.ctypes.data == values[3].ctypes.data
    threshold = vtkThreshold()
    threshold.SetInputArrayToProcess(0, 0, 0, 1, "f")
    threshold.SetThresholdFunction(vtkThreshold.THRESHOLD_UPPER)
    threshold.SetUpperThreshold(0.5)
    threshold.SetInputData(data)
    threshold.Update()
    found = threshold.GetOutputDataObject(0)
    assert sum(found.GetBlock(n).GetNumberOfCells() for n in range(9)) == (values >= 0.5).sum()


@pytest.mark.parametrize("axes", ["zyx", "xyz"])
def test_marks_and_ids_of_amr(axes):
    """Cells that finer blocks hide are marked beside ghost layers, and both are in no result."""
    from penstock.analysis import parts

    hidden = np.zeros((2, 4, 5, 6), np.uint8)
    hidden[0, 2, 2, 1:3] = 8  # vtkDataSetAttributes::REFINEDCELL
    ids = np.arange(hidden.size).reshape(hidden.shape)
    where = {"levels": [0, 0], "indices": np.array([[0, 0, 0], [1, 0, 0]]), "cells": (4, 5, 6), "axes": axes}
    for ghosts, count in (({}, 24), ({"element": hidden}, 22)):
        data = to_vtk(amr(**where, ghost_layers=1, ghosts=ghosts, ids={"element": ids}))
        order = [axes.index(axis) for axis in "zyx"]
        for row in range(2):
            cells = data.GetBlock(row).GetCellData()
            assert numpy_of(cells.GetGlobalIds()).tolist() == ids[row].transpose(order).ravel().tolist()
            layers = np.pad(np.zeros((2, 3, 4), np.uint8), 1, constant_values=1)
            marks = (layers | (hidden[row] if ghosts else 0)).transpose(order).ravel()
            assert numpy_of(cells.GetArray("vtkGhostType")).tolist() == marks.tolist()
        assert parts.owned(data.GetBlock(0)).GetNumberOfCells() == count
        assert parts.owned(data.GetBlock(1)).GetNumberOfCells() == 24


def test_lines_polygons_and_parts_of_images_come_back():
    from vtkmodules.vtkFiltersSources import vtkRegularPolygonSource, vtkSphereSource

    polygon = vtkRegularPolygonSource()
    polygon.SetNumberOfSides(7)
    polygon.Update()
    mesh = from_vtk(polygon.GetOutput())
    assert mesh.blocks[0].topology == "mixed" and sorted(mesh.blocks[0].topologies.tolist()) == [4, 7]
    assert to_vtk(mesh).GetNumberOfCells() == polygon.GetOutput().GetNumberOfCells()
    ball = vtkSphereSource()
    ball.Update()
    mesh = from_vtk(ball.GetOutput())
    assert mesh.blocks[0].topology == "tri3" and len(mesh.blocks[0]) == ball.GetOutput().GetNumberOfPolys()

    part = UniformMesh(shape=(2, 1, 3), start=(1, 0, 2), whole=(4, 1, 6), origin=ORIGIN, spacing=SPACING)
    back = from_vtk(to_vtk(part.with_fields({"a": Field("node", np.arange(6.0).reshape(2, 1, 3))})))
    assert back.shape == (2, 1, 3) and back.axes == "zyx"
    np.testing.assert_allclose(back.origin, ORIGIN + SPACING * [2, 0, 1])
    assert back.fields["a"].values.tolist() == [[[0, 1, 2]], [[3, 4, 5]]]
