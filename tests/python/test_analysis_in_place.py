"""Arrays that a simulation lends, read in its process and given to VTK where they lie."""

import threading

import numpy as np
import pytest
from penstock.analysis import (
    AmrMesh,
    CurvilinearMesh,
    ElementBlock,
    Field,
    RectilinearMesh,
    UniformMesh,
    UnstructuredMesh,
    describe,
    publish,
)

TIMEOUT_S = 20.0


@pytest.fixture
def insitu(context):
    """insitu(fill, look): fill(step) puts, and look(step) is called with the step in the same thread."""
    opened = []

    def run(fill, look):
        opened.append(context.create("s", engine="insitu", timeout=TIMEOUT_S))
        opened.append(context.open("s", engine="insitu", timeout=TIMEOUT_S))
        threads = []

        def on_step(step):
            threads.append(threading.get_ident())
            look(step)

        opened[1].on_step(on_step, on_error="raise")
        with opened[0].step() as step:
            fill(step)
        assert threads == [threading.get_ident()]

    yield run
    for stream in reversed(opened):
        stream.close()


def test_lent_arrays_are_read_and_given_to_vtk_in_place(insitu):
    """From the simulation's arrays to VTK's: the same addresses."""
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from penstock.analysis import to_vtk
    from penstock.analysis.vtk import numpy_of

    rng = np.random.default_rng(1)
    field, vector, halo = rng.random((5, 6, 7)), rng.random((5, 6, 7, 3)), rng.random((7, 8, 9))
    parts = tuple(rng.random((5, 6, 7)) for _ in range(2))
    fields = {
        "a": Field("node", field),
        "v": Field("node", vector),
        "s": Field("node", parts),
        "h": Field("node", halo[1:-1, 1:-1, 1:-1]),
    }
    nodes, cells, mass = rng.random((8, 3)), np.array([[0, 1, 2, 3], [4, 5, 6, 7]]), rng.random((2, 4))
    meshes = {
        "grid": UniformMesh(shape=(5, 6, 7), fields=fields),
        "turned": UniformMesh(shape=(5, 6, 7), axes="xyz", fields={"b": Field("node", field)}),
        "solid": UnstructuredMesh(
            coordinates=nodes,
            blocks=[ElementBlock("t", "tet4", cells)],
            fields={"m": Field("element", mass)},
        ),
        "tree": AmrMesh(
            cells=(2, 2, 2),
            levels=np.zeros(3, int),
            indices=np.zeros((3, 3), int),
            fields={
                "q": Field(
                    "element", field[:3, :2, :2].copy()[:, :, :2].repeat(1, 0).reshape(3, 2, 2)[..., None].repeat(2, 3)
                )
            },
        ),
    }
    tree = meshes["tree"].fields["q"].values

    def same(array, other):
        return array.ctypes.data == other.ctypes.data

    def look(step):
        read = {name: mesh.read(step, mesh.parts(1)[0], views=True) for name, mesh in describe(step).items()}
        grid = to_vtk(read["grid"]).GetPointData()
        assert same(read["grid"].fields["a"].values, field) and same(numpy_of(grid.GetArray("a")), field)
        assert same(numpy_of(grid.GetArray("v")), vector)
        assert [np.asarray(grid.GetArray("s").GetComponentBuffer(c)).ctypes.data for c in range(2)] == [
            each.ctypes.data for each in parts
        ]
        assert not same(read["grid"].fields["h"].values, halo[1:-1, 1:-1, 1:-1])  # strides: copied once
        assert np.array_equal(read["grid"].fields["h"].values, halo[1:-1, 1:-1, 1:-1])
        assert same(numpy_of(grid.GetArray("h")), read["grid"].fields["h"].values)
        assert same(read["turned"].fields["b"].values, field)
        assert not same(numpy_of(to_vtk(read["turned"]).GetPointData().GetArray("b")), field)  # x is slowest: copied
        solid = to_vtk(read["solid"])
        assert same(numpy_of(solid.GetPoints().GetData()), nodes)
        assert same(numpy_of(solid.GetCells().GetConnectivityArray()), cells)
        assert same(numpy_of(solid.GetCellData().GetArray("m")), mass)
        assert same(numpy_of(to_vtk(read["tree"]).GetBlock(1).GetCellData().GetArray("q")), tree[1])
        part = describe(step)["grid"].parts(3, "planar")[1]  # whole planes: in one piece
        assert same(
            describe(step)["grid"].read(step, part, ["a"], 0, views=True).fields["a"].values, field[part.low[0] :]
        )
        copied = describe(step)["grid"].read(step, part, ["a"], 0)
        assert not same(copied.fields["a"].values, field[part.low[0] :])

    insitu(lambda step: publish(step, meshes, lend=True), look)


@pytest.mark.parametrize("kind", ["uniform", "rectilinear", "curvilinear"])
def test_lent_arrays_of_fortran_are_given_to_vtk_in_place(insitu, kind):
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from penstock.analysis import to_vtk
    from penstock.analysis.vtk import numpy_of

    rng = np.random.default_rng(2)
    shape = (5, 6, 7)
    a, v, x = (np.asfortranarray(rng.random(counts)) for counts in (shape, (*shape, 3), (*shape, 3)))
    e = np.asfortranarray(rng.random((4, 5, 6)))
    lines = {axis: np.arange(float(n)) for axis, n in zip("xyz", shape, strict=True)}
    fields = {"a": Field("node", a), "v": Field("node", v), "e": Field("element", e)}
    mesh = {
        "uniform": UniformMesh(shape=shape, axes="xyz", fields=fields),
        "rectilinear": RectilinearMesh(shape=shape, axes="xyz", coordinates=lines, fields=fields),
        "curvilinear": CurvilinearMesh(shape=shape, axes="xyz", coordinates=x, fields=fields),
    }[kind]

    def look(step):
        found = describe(step)["grid"]
        data = to_vtk(found.read(step, found.parts(1)[0], views=True))
        points = data.GetPointData()
        assert numpy_of(points.GetArray("a")).ctypes.data == a.ctypes.data
        assert numpy_of(data.GetCellData().GetArray("e")).ctypes.data == e.ctypes.data
        for c in range(3):
            assert np.asarray(points.GetArray("v").GetComponentBuffer(c)).ctypes.data == v[..., c].ctypes.data
        if kind == "curvilinear":
            assert np.asarray(data.GetPoints().GetData().GetComponentBuffer(1)).ctypes.data == x[..., 1].ctypes.data
        if kind == "rectilinear":
            assert numpy_of(data.GetYCoordinates()).ctypes.data == lines["y"].ctypes.data

    insitu(lambda step: publish(step, {"grid": mesh}, lend=True, order="column"), look)


def test_an_extract_goes_on_as_a_stream(hand_over):
    """A contour is published as a mesh, and read as one."""
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from penstock.analysis import from_vtk, to_vtk
    from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D

    r = np.linalg.norm(np.stack(np.meshgrid(*[np.linspace(-1, 1, 12)] * 3), axis=-1), axis=-1)
    contour = vtkFlyingEdges3D()
    contour.SetInputData(to_vtk(UniformMesh(shape=r.shape, fields={"r": Field("node", r)})))
    contour.SetInputArrayToProcess(0, 0, 0, 0, "r")
    contour.SetValue(0, 0.7)
    contour.Update()
    surface = from_vtk(contour.GetOutput())
    step = hand_over(lambda step: publish(step, {"surface": surface}))
    mesh = describe(step)["surface"]
    found = mesh.read(step, mesh.parts(1)[0])
    assert np.array_equal(found.coordinates, surface.coordinates) and len(found.coordinates) > 100
    assert np.array_equal(found.blocks[0].connectivity, surface.blocks[0].connectivity)
    assert to_vtk(found).GetNumberOfCells() == contour.GetOutput().GetNumberOfPolys()
