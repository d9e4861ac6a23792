"""Meshes as values, who has which part of them, and VTK's data sets of them."""

import gc
import itertools
import subprocess
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
    partition,
)

AXES = ["".join(each) for n in (1, 2, 3) for each in itertools.permutations("xyz", n)]
AXES_3D = [axes for axes in AXES if len(axes) == 3]


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

vtk = pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")


def numpy_of(array):
    from penstock.analysis.vtk import numpy_of

    return numpy_of(array)


def to_vtk(mesh):
    from penstock.analysis import to_vtk

    return to_vtk(mesh)


def from_vtk(data):
    from penstock.analysis import from_vtk

    return from_vtk(data)


ORIGIN, SPACING, SHAPE = np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.07, 0.05]), (17, 21, 25)
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


def output(filter_, data, **arrays):
    filter_.SetInputData(data)
    filter_.Update()
    return filter_.GetOutput()


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


def cell_volumes(grid):
    from vtkmodules.vtkFiltersVerdict import vtkCellSizeFilter

    return numpy_of(output(vtkCellSizeFilter(), grid).GetCellData().GetArray("Volume"))


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


WEIGHTS = np.array([2.0, -3.0, 5.0])


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


def probe_error(data, n=40):
    """The greatest difference of VTK's own interpolation from the linear fields: within n cells, and by a probe."""
    from vtkmodules.vtkCommonCore import reference
    from vtkmodules.vtkFiltersCore import vtkProbeFilter

    rng = np.random.default_rng(1)
    arrays = {name: numpy_of(data.GetPointData().GetArray(name)) for name in "pqs"}
    places, error = [], 0.0
    for _ in range(n):
        cell = data.GetCell(int(rng.integers(data.GetNumberOfCells())))
        weights, at, middle = [0.0] * cell.GetNumberOfPoints(), [0.0] * 3, [0.0] * 3
        cell.GetParametricCenter(middle)
        shift = rng.uniform(-0.1, 0.1, 3) * (np.arange(3) < cell.GetCellDimension())
        cell.EvaluateLocation(reference(0), (middle + shift).tolist(), at, weights)
        nodes = [cell.GetPointId(k) for k in range(len(weights))]
        error = max(error, *(np.abs(weights @ arrays[q][nodes] - at).max() for q in "qs"))
        error = max(error, abs(weights @ arrays["p"][nodes] - (WEIGHTS @ at + 1)))
        places.append(at)
    flat = [
        axis for axis, k in zip("xyz", range(0, 6, 2), strict=True) if data.GetBounds()[k] == data.GetBounds()[k + 1]
    ]
    # VTK 9.7 does not find cells of rectilinear grids without an extent in x or y, and probes lines of images along
    # other axes than x wrongly.
    if (data.IsA("vtkRectilinearGrid") and {"x", "y"} & {*flat}) or (data.IsA("vtkImageData") and len(flat) == 2):
        return error
    probe = vtkProbeFilter()
    probe.SetSourceData(data)
    found = output(probe, to_vtk(ParticleMesh(coordinates=np.array(places)))).GetPointData()
    assert probe.GetValidPoints().GetNumberOfTuples() == n
    error = max(error, *(np.abs(numpy_of(found.GetArray(q)) - places).max() for q in "qs"))
    return max(error, np.abs(numpy_of(found.GetArray("p")) - (places @ WEIGHTS + 1)).max())


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
