"""Structured meshes as VTK's data sets: layouts of values, shared arrays, filters over them, and the way back."""

import gc
import itertools
import weakref

import numpy as np
import pytest

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

from hypothesis import given, settings
from hypothesis import strategies as st
from penstock import InvalidArgument
from penstock.analysis import (
    CurvilinearMesh,
    Field,
    Multiblock,
    ParticleMesh,
    RectilinearMesh,
    UniformMesh,
    from_vtk,
    partition,
    to_vtk,
)
from penstock.analysis.vtk import numpy_of
from vtk_checks import ORIGIN, SPACING, WEIGHTS, cell_volumes, output, probe_error

AXES = ["".join(each) for n in (1, 2, 3) for each in itertools.permutations("xyz", n)]
AXES_3D = [axes for axes in AXES if len(axes) == 3]
SHAPE = (17, 21, 25)
CENTRE = ORIGIN + SPACING * (np.array(SHAPE) - 1) / 2
NODES = np.stack(np.meshgrid(*(ORIGIN[d] + SPACING[d] * np.arange(SHAPE[d]) for d in range(3)), indexing="ij"), axis=-1)
DISTANCE = np.linalg.norm(NODES - CENTRE, axis=-1)
RADIUS = 0.45


def by_axes(array, axes):
    """An array indexed [x, y, z], as a C array indexed by axes."""
    return np.ascontiguousarray(array.transpose([*("xyz".index(axis) for axis in axes), *range(3, array.ndim)]))


def sphere(axes):
    """A uniform mesh with the distance from the centre and the coordinates as fields."""
    field = by_axes(DISTANCE, axes)
    fields = {"r": Field("node", field), "p": Field("node", by_axes(NODES, axes))}
    return UniformMesh(shape=field.shape, axes=axes, origin=ORIGIN, spacing=SPACING, fields=fields)


def contour(data, name="vtkFlyingEdges3D"):
    import vtkmodules.vtkFiltersCore as core

    filter_ = getattr(core, name)()
    filter_.SetInputArrayToProcess(0, 0, 0, 0, "r")
    filter_.SetValue(0, RADIUS)
    filter_.ComputeNormalsOn()
    if name == "vtkFlyingEdges3D":
        filter_.InterpolateAttributesOn()
    return output(filter_, data)


def check_sphere(surface, points=True):
    """The geometry, the winding of triangles, and normals: towards smaller values, as VTK has them."""
    p = numpy_of(surface.GetPoints().GetData()).astype(float) - CENTRE
    assert np.abs(np.linalg.norm(p, axis=1) - RADIUS).max() < 0.003
    a, b, c = p[numpy_of(surface.GetPolys().GetConnectivityArray()).reshape(-1, 3)].transpose(1, 0, 2)
    volume = np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6
    assert volume == pytest.approx(-4 / 3 * np.pi * RADIUS**3, rel=0.03)
    normals = numpy_of(surface.GetPointData().GetNormals())
    assert (np.einsum("ij,ij->i", normals, p) / RADIUS < -0.97).all()
    if points:
        np.testing.assert_allclose(numpy_of(surface.GetPointData().GetArray("p")), p + CENTRE, atol=1e-6)


@pytest.mark.parametrize("axes", AXES_3D)
def test_filters_of_every_order_of_dimensions(axes):
    from vtkmodules.vtkCommonDataModel import vtkPlane
    from vtkmodules.vtkFiltersCore import vtkCutter, vtkProbeFilter, vtkThreshold
    from vtkmodules.vtkFiltersGeneral import vtkClipDataSet

    mesh = sphere(axes)
    image = to_vtk(mesh)
    same = numpy_of(image.GetPointData().GetArray("r")).ctypes.data == mesh.fields["r"].values.ctypes.data
    assert same == (axes == "zyx")
    assert np.allclose(image.GetBounds(), np.stack([ORIGIN, NODES[-1, -1, -1]], axis=1).ravel())
    check_sphere(contour(image))
    check_sphere(contour(image, "vtkContourFilter"))

    plane = vtkPlane()
    plane.SetOrigin(*CENTRE)
    plane.SetNormal(0.3, 0.5, 0.7)
    cutter = vtkCutter()
    cutter.SetCutFunction(plane)
    cut = output(cutter, image)
    p = numpy_of(cut.GetPoints().GetData()).astype(float) - CENTRE
    assert cut.GetNumberOfPoints() > 800 and np.abs(p @ [0.3, 0.5, 0.7]).max() < 1e-6
    np.testing.assert_allclose(numpy_of(cut.GetPointData().GetArray("p")), p + CENTRE, atol=1e-6)

    threshold = vtkThreshold()
    threshold.SetInputArrayToProcess(0, 0, 0, 0, "r")
    threshold.SetThresholdFunction(vtkThreshold.THRESHOLD_LOWER)
    threshold.SetLowerThreshold(RADIUS)
    inside = output(threshold, image)
    grid = numpy_of(inside.GetPoints().GetData())
    np.testing.assert_allclose(numpy_of(inside.GetPointData().GetArray("p")), grid, atol=1e-6)
    assert np.allclose(cell_volumes(inside), np.prod(SPACING), rtol=1e-4)

    clip = vtkClipDataSet()
    clip.SetClipFunction(plane)
    clipped = output(clip, image)
    half = np.prod(SPACING * (np.array(SHAPE) - 1)) / 2
    assert cell_volumes(clipped).sum() == pytest.approx(half, rel=1e-5)

    probe = vtkProbeFilter()
    probe.SetSourceData(image)
    found = output(probe, to_vtk(ParticleMesh(coordinates=NODES[1:-1:3, 2, 1:-1:4].reshape(-1, 3) + 0.01)))
    where = numpy_of(found.GetPoints().GetData())
    np.testing.assert_allclose(numpy_of(found.GetPointData().GetArray("p")), where, atol=1e-6)


def linear(kind, axes, rng, order="C", pitch=0):
    """A part in the middle of a whole, with p = 2x - 3y + 5z + 1 on nodes; q the position, interleaved or split.

    pitch: more elements in each row than the array has: strides.
    """
    start = tuple(int(n) for n in rng.integers(0, 3, len(axes)))
    shape = tuple(int(n) for n in rng.integers(2, 6, len(axes)))
    whole = tuple(a + n + 1 for a, n in zip(start, shape, strict=True))
    lines = {axis: np.sort(rng.uniform(0, 2, n)) + np.arange(n) for axis, n in zip(axes, whole, strict=True)}
    if kind == "uniform":
        lines = {
            axis: ORIGIN["xyz".index(axis)] + SPACING["xyz".index(axis)] * np.arange(len(lines[axis])) for axis in axes
        }
    lines = {axis: each[a : a + n] for (axis, each), a, n in zip(lines.items(), start, shape, strict=True)}
    grids = dict(zip(axes, np.meshgrid(*(lines[axis] for axis in axes), indexing="ij"), strict=True))
    other = ORIGIN if kind == "uniform" else np.zeros(3)
    nodes = np.stack([grids.get(axis, np.full(shape, other[d])) for d, axis in enumerate("xyz")], axis=-1)
    if kind == "curvilinear":  # sheared
        nodes = nodes @ np.array([[1, 0.2, 0.1], [0, 1, 0.3], [0, 0, 1]])

    def arranged(array):
        big = np.zeros([n + pitch for n in array.shape[: len(axes)]] + list(array.shape[len(axes) :]), order=order)
        inner = big[tuple(slice(pitch, None) for _ in axes)]
        inner[...] = array
        return inner

    fields = {
        "p": Field("node", arranged(nodes @ WEIGHTS + 1)),
        "q": Field("node", arranged(nodes)),
        "s": Field("node", tuple(arranged(nodes[..., c]) for c in range(3))),
    }
    common = {"shape": shape, "axes": axes, "start": start, "whole": whole, "fields": fields}
    if kind == "uniform":
        return UniformMesh(**common, origin=ORIGIN, spacing=SPACING)
    if kind == "rectilinear":
        return RectilinearMesh(**common, coordinates=lines)
    return CurvilinearMesh(**common, coordinates=arranged(nodes))


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", ["uniform", "rectilinear", "curvilinear"])
@pytest.mark.parametrize(("order", "pitch"), [("C", 0), ("F", 0), ("C", 2), ("F", 1)])
def test_vtk_interpolates_linear_fields(kind, axes, order, pitch):
    mesh = linear(kind, axes, np.random.default_rng(len(axes)), order, pitch)
    assert probe_error(to_vtk(mesh)) < 1e-9


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", ["uniform", "rectilinear", "curvilinear"])
@pytest.mark.parametrize(("order", "pitch"), [("C", 0), ("F", 0), ("C", 2)])
def test_arrays_are_shared_where_x_is_fastest(kind, axes, order, pitch):
    """By address: nothing is copied that lies as VTK wants it, and only what does not is."""
    mesh = linear(kind, axes, np.random.default_rng(7), order, pitch)
    grid = to_vtk(mesh)
    in_order = len(axes) == 1 or (pitch == 0 and axes == "".join(sorted(axes, reverse=order == "C")))

    def address(array):
        return array.__array_interface__["data"][0]

    data = grid.GetPointData()
    shared = address(numpy_of(data.GetArray("p"))) == address(mesh.fields["p"].values)
    assert shared == in_order
    for c in range(3):
        part = np.asarray(data.GetArray("s").GetComponentBuffer(c))
        assert (address(part) == address(mesh.fields["s"].values[c])) == in_order
    vectors = data.GetArray("q")
    split = hasattr(vectors, "GetComponentBuffer")  # Fortran's (i, j, k, component) is one array for each component
    first = address(np.asarray(vectors.GetComponentBuffer(0)) if split else numpy_of(vectors))
    assert (first == address(mesh.fields["q"].values)) == in_order
    if kind == "curvilinear":
        points = grid.GetPoints().GetData()
        first = np.asarray(points.GetComponentBuffer(0)) if hasattr(points, "GetComponentBuffer") else numpy_of(points)
        assert (address(first) == address(mesh.coordinates)) == in_order
    if kind == "rectilinear":
        assert address(numpy_of(grid.GetXCoordinates())) == address(mesh.coordinates["x"]) if "x" in axes else True


@pytest.mark.parametrize("axes", AXES_3D)
@pytest.mark.parametrize("split", [False, True])
def test_curvilinear_and_rectilinear(axes, split):
    from vtkmodules.vtkFiltersCore import vtkContourFilter

    field, nodes = by_axes(DISTANCE, axes), by_axes(NODES, axes)
    parts = tuple(np.ascontiguousarray(nodes[..., c]) for c in range(3))
    fields = {"r": Field("node", field), "p": Field("node", parts if split else nodes)}
    lines = {axis: ORIGIN[d] + SPACING[d] * np.arange(SHAPE[d]) for d, axis in enumerate("xyz")}
    common = {"shape": field.shape, "axes": axes, "fields": fields}
    for mesh in (
        CurvilinearMesh(**common, coordinates=parts if split else nodes),
        RectilinearMesh(**common, coordinates=lines),
    ):
        grid = to_vtk(mesh)
        filter_ = vtkContourFilter()
        filter_.SetInputArrayToProcess(0, 0, 0, 0, "r")
        filter_.SetValue(0, RADIUS)
        check_sphere(output(filter_, grid))
        volumes = cell_volumes(grid)
        assert np.allclose(volumes, np.prod(SPACING)) and len(volumes) == np.prod(np.array(SHAPE) - 1)


@given(st.sampled_from(AXES), st.lists(st.integers(1, 5), min_size=3, max_size=3), st.integers(0, 2))
@settings(deadline=None)
def test_values_of_any_layout_are_where_they_belong(axes, sizes, layout):
    """1 to 3 dimensions, C and Fortran order, within halos, of nodes and elements, in parts and interleaved."""
    shape = tuple(sizes[: len(axes)])
    rng = np.random.default_rng(sum(sizes))
    start = tuple(rng.integers(0, 3, len(shape)).tolist())
    whole = tuple(a + n + 1 for a, n in zip(start, shape, strict=True))

    def array(counts):
        values = rng.random(counts)
        if layout == 0:
            return values
        if layout == 1:
            return np.asfortranarray(values)
        inner = np.zeros([n + 2 for n in counts])[tuple(slice(1, -1) for _ in counts)]
        inner[...] = values
        return inner

    mesh = UniformMesh(shape=shape, axes=axes, start=start, whole=whole, spacing=SPACING, origin=ORIGIN)
    cells = mesh.cells
    fields = {
        "a": Field("node", array(shape)),
        "v": Field("node", array((*shape, 3))),
        "s": Field("node", (array(shape), array(shape))),
        "c": Field("element", array(cells)),
    }
    mesh = mesh.with_fields(fields)
    image = to_vtk(mesh)
    assert image.GetNumberOfPoints() == np.prod(shape)
    for index in np.ndindex(shape):
        place = ORIGIN.copy()
        for d, axis in enumerate(axes):
            place["xyz".index(axis)] += SPACING["xyz".index(axis)] * (start[d] + index[d])
        point = image.FindPoint(*place)
        np.testing.assert_allclose(image.GetPoint(point), place, atol=1e-12)
        data = image.GetPointData()
        assert data.GetArray("a").GetTuple1(point) == fields["a"].values[index]
        assert data.GetArray("v").GetTuple3(point) == tuple(fields["v"].values[index])
        assert data.GetArray("s").GetTuple2(point) == tuple(each[index] for each in fields["s"].values)
    if 0 not in cells:
        assert sorted(numpy_of(image.GetCellData().GetArray("c"))) == sorted(fields["c"].values.ravel())


def test_arrays_are_shared_and_live_as_long_as_the_data_set():
    rng = np.random.default_rng(1)
    arrays = [rng.random((3, 4, 5)), rng.random((3, 4, 5, 3)), *(rng.random((3, 4, 5)) for _ in range(3))]
    arrays += [rng.random((5, 4, 3)).T]
    addresses = [each.ctypes.data for each in arrays]
    references = [weakref.ref(each) for each in arrays]
    fields = {
        "a": Field("node", arrays[0]),
        "v": Field("node", arrays[1]),
        "s": Field("node", tuple(arrays[2:5])),
    }
    image = to_vtk(UniformMesh(shape=(3, 4, 5), fields=fields))
    fortran = to_vtk(UniformMesh(shape=(3, 4, 5), axes="xyz", fields={"a": Field("node", arrays[5])}))
    fields = arrays = None
    copy = image.NewInstance()
    copy.ShallowCopy(image)
    image = None
    gc.collect()
    data = copy.GetPointData()
    assert numpy_of(data.GetArray("a")).ctypes.data == addresses[0]
    assert numpy_of(data.GetArray("v")).ctypes.data == addresses[1]
    parts = [np.asarray(data.GetArray("s").GetComponentBuffer(c)) for c in range(3)]
    assert [each.ctypes.data for each in parts] == addresses[2:5]
    assert numpy_of(fortran.GetPointData().GetArray("a")).ctypes.data == addresses[5]
    copy = data = parts = fortran = None
    gc.collect()
    assert [each() for each in references] == [None] * len(references)


def test_types_that_vtk_does_not_have():
    fields = {
        "b": Field("node", np.array([True, False])),
        "h": Field("node", np.array([0.5, 2], np.float16)),
        **{f"n{t}": Field("node", np.array([1, 2], t)) for t in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4")},
    }
    data = to_vtk(UniformMesh(shape=(2,), fields=fields)).GetPointData()
    assert numpy_of(data.GetArray("b")).tolist() == [1, 0]
    assert numpy_of(data.GetArray("h")).tolist() == [0.5, 2]
    for t in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4"):
        assert numpy_of(data.GetArray(f"n{t}")).dtype == np.dtype(t)


def test_values_of_filters_over_arrays_of_components():
    """vtk_to_numpy fails for these: filters leave them longer than they are."""
    from penstock.analysis import parts

    mesh = sphere("zyx")
    split = tuple(np.ascontiguousarray(mesh.fields["p"].values[..., c]) for c in range(3))
    surface = contour(to_vtk(mesh.with_fields({**mesh.fields, "s": Field("node", split)})), "vtkContourFilter")
    points = numpy_of(surface.GetPoints().GetData())
    np.testing.assert_allclose(parts.values(surface, "s"), points, atol=1e-6)
    np.testing.assert_allclose(parts.owned_fields(surface)["s"], points, atol=1e-6)


def test_multiblock():
    mesh = Multiblock(blocks={"volume": sphere("zyx"), "spray": ParticleMesh(coordinates=np.zeros((2, 3)))})
    data = to_vtk(mesh)
    from vtkmodules.vtkCommonDataModel import vtkCompositeDataSet

    names = [data.GetMetaData(n).Get(vtkCompositeDataSet.NAME()) for n in range(2)]
    assert names == ["volume", "spray"] and data.GetBlock(1).IsA("vtkPolyData")


def test_shared_nodes_of_parts_have_the_same_contour_points():
    """The contours of parts fit together to the last bit."""
    mesh = sphere("zyx")
    whole = contour(to_vtk(mesh.with_fields({"r": mesh.fields["r"]})))
    expected = {tuple(p) for p in numpy_of(whole.GetPoints().GetData()).tolist()}
    found, triangles = set(), 0
    for part in partition.boxes(mesh.cells, 6):
        box = tuple(slice(a, b + 1) for a, b in zip(part.low, part.high, strict=True))
        field = np.ascontiguousarray(mesh.fields["r"].values[box])
        piece = UniformMesh(
            shape=field.shape,
            start=part.low,
            whole=mesh.shape,
            origin=ORIGIN,
            spacing=SPACING,
            fields={"r": Field("node", field)},
        )
        surface = contour(to_vtk(piece))
        if surface.GetNumberOfPoints():
            found |= {tuple(p) for p in numpy_of(surface.GetPoints().GetData()).tolist()}
        triangles += surface.GetNumberOfPolys()
    assert found == expected and triangles == whole.GetNumberOfPolys()


def test_extracts_come_back():
    from vtkmodules.vtkFiltersCore import vtkThreshold

    surface = from_vtk(contour(to_vtk(sphere("xyz"))))
    assert surface.blocks[0].topology == "tri3" and surface.components("p") == 3
    np.testing.assert_allclose(surface.fields["p"].values, surface.coordinates, atol=1e-6)

    image = to_vtk(sphere("xyz"))
    back = from_vtk(image)
    assert back.shape == SHAPE[::-1] and back.axes == "zyx"
    np.testing.assert_array_equal(back.fields["r"].values, DISTANCE.T)

    threshold = vtkThreshold()
    threshold.SetInputArrayToProcess(0, 0, 0, 0, "r")
    threshold.SetThresholdFunction(vtkThreshold.THRESHOLD_LOWER)
    threshold.SetLowerThreshold(RADIUS)
    inside = from_vtk(output(threshold, image))  # of voxels
    assert inside.blocks[0].topology == "hex8" and len(inside.blocks[0]) == 726
    volumes = cell_volumes(to_vtk(inside))
    assert np.allclose(volumes, np.prod(SPACING), rtol=1e-4)
    image.SetDirectionMatrix(0, 0, 1, 0, 1, 0, 1, 0, 0)
    with pytest.raises(InvalidArgument, match="direction matrix"):
        from_vtk(image)
    with pytest.raises(InvalidArgument, match="vtkTable cannot"):
        from vtkmodules.vtkCommonDataModel import vtkTable

        from_vtk(vtkTable())


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", ["uniform", "rectilinear", "curvilinear"])
def test_grids_come_back(kind, axes):
    mesh = linear(kind, axes, np.random.default_rng(3))
    back = from_vtk(to_vtk(mesh))
    assert back.type == kind and back.axes == "zyx" and back.size_of("node") == mesh.size_of("node")
    again = to_vtk(back)
    for name in ("GetNumberOfCells", "GetNumberOfPoints"):
        assert getattr(again, name)() == getattr(to_vtk(mesh), name)()
    assert probe_error(again) < 1e-9
    empty = UniformMesh(shape=(0, 0), whole=(2, 3), fields={"p": Field("node", np.zeros((0, 0)))})
    assert from_vtk(to_vtk(empty)).size_of("node") == 0
