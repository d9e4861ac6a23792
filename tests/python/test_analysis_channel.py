"""Meshes on streams: what is written is read by any number of ranks."""

import itertools

import numpy as np
import penstock
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
    describe,
    partition,
    publish,
)

PROPERTY = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def plane():
    return "shm"


@pytest.fixture
def transfer(cohorts):
    """transfer(meshes, n, use): each rank puts its meshes of the list, and use(step, rank) reads them on n ranks."""

    def run(meshes, n, use, order="row", **options):
        def write(stream):
            with stream.step() as step:
                publish(step, meshes[stream.rank], order=order)

        out, failed = {}, []

        def read(stream):
            with stream.step() as step:
                try:
                    out[stream.rank] = use(step, stream.rank)
                except BaseException as error:
                    failed.append(error)

        cohorts(len(meshes), n, write, read, **options)
        if failed:
            raise failed[0]
        return [out[rank] for rank in range(n)]

    return run


def parts_of(n, method, name="grid", **how):
    """What each reader does: read its part."""

    def use(step, rank):
        mesh = describe(step)[name]
        part = mesh.parts(n, method)[rank]
        return part, mesh.read(step, part, **how)

    return use


# ---------------------------------------------------------------------------------------------------- structured


def writers_boxes(shape, ranks, ghosts):
    """Parts that share their nodes, as a simulation might have them: by cells, with layers of ghosts."""
    cells = tuple(max(n - 1, 1) for n in shape)
    for part in partition.boxes(cells, ranks, "planar"):
        box = part.grown(ghosts, cells)
        if box.empty:
            yield (0,) * len(shape), (0,) * len(shape), np.zeros((0,) * len(shape), np.uint8)
            continue
        nodes = tuple(n + (all_ > 1) for n, all_ in zip(box.shape, shape, strict=True))
        marks = np.ones(box.shape, np.uint8)
        marks[tuple(slice(a - b, c - b) for a, b, c in zip(part.low, box.low, part.high, strict=True))] = 0
        yield box.low, nodes, marks


def cut(array, start, counts):
    return array[tuple(slice(a, a + n) for a, n in zip(start, counts, strict=True))]


def structured(kind, shape, axes, ranks, ghosts, order, seed):
    """The meshes of each writer rank, and the whole arrays."""
    rng = np.random.default_rng(seed)
    cells = tuple(max(n - 1, 1) for n in shape)
    whole = {
        "a": rng.random(shape),
        "v": rng.random((*shape, 3)).astype(np.float32),
        "s": (rng.random(shape), rng.random(shape)),
        "e": rng.integers(0, 100, cells),
    }
    ids = np.arange(np.prod(cells)).reshape(cells)
    points = rng.random((*shape, 3))
    lines = {axis: np.sort(rng.random(n)) for axis, n in zip(axes, shape, strict=True)}

    def arrange(array):
        return np.asfortranarray(array) if order == "F" else array

    meshes = []
    for start, nodes, marks in writers_boxes(shape, ranks, ghosts):
        fields = {
            "a": Field("node", arrange(cut(whole["a"], start, nodes)), "K"),
            "v": Field("node", arrange(cut(whole["v"], start, nodes))),
            "s": Field("node", tuple(arrange(cut(each, start, nodes)) for each in whole["s"])),
            "e": Field("element", arrange(cut(whole["e"], start, marks.shape))),
        }
        common = {"shape": nodes, "axes": axes, "start": start, "whole": shape, "fields": fields}
        common |= {"ids": {"element": arrange(cut(ids, start, marks.shape))}}
        common |= {"ghosts": {"element": marks}} if ghosts else {}
        if kind == "uniform":
            mesh = UniformMesh(**common, origin=(1, 2, 3), spacing=(0.5, 1, 2))
        elif kind == "rectilinear":
            own = {axis: lines[axis][a : a + n] for axis, a, n in zip(axes, start, nodes, strict=True)}
            mesh = RectilinearMesh(**common, coordinates=own)
        else:
            mesh = CurvilinearMesh(**common, coordinates=arrange(cut(points, start, nodes)))
        meshes.append({"grid": mesh})
    return meshes, whole | {"ids": ids, "points": points, "lines": lines}


@given(
    st.sampled_from(["uniform", "rectilinear", "curvilinear"]),
    st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["xyz", "zyx", "yzx"]),
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.sampled_from(partition.METHODS),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from("CF"),
    st.booleans(),
    st.booleans(),
)
@PROPERTY
def test_structured(transfer, kind, shape, axes, ranks, method, written_ghosts, ghosts, order, column, views):
    """Cells and nodes have one owner each, and all values are where they were, in whatever order arrays are."""
    m, n = ranks
    axes = "".join(axis for axis in axes if axis in axes[: len(shape)])
    meshes, whole = structured(kind, shape, axes, m, written_ghosts, order, 7)
    found = transfer(
        meshes, n, parts_of(n, method, ghost_layers=ghosts, views=views), order="column" if column else "row"
    )
    cells = tuple(max(n - 1, 1) for n in shape)
    owners = {"node": np.zeros(shape, int), "element": np.zeros(cells, int)}
    for part, mesh in found:
        assert mesh.type == kind and mesh.axes == axes and mesh.whole == shape
        if part.empty:
            assert mesh.size_of("node") == mesh.size_of("element") == 0
            assert mesh.components("v") == 3 and mesh.components("s") == 2
            continue
        box = part.grown(ghosts, cells)
        assert mesh.start == box.low and mesh.cells == box.shape
        for association, total in owners.items():
            marks = mesh.ghosts.get(association, np.zeros(mesh.shape_of(association), np.uint8))
            cut(total, mesh.start, marks.shape)[...] += marks == 0
        assert np.array_equal(mesh.fields["a"].values, cut(whole["a"], mesh.start, mesh.shape))
        assert np.array_equal(mesh.fields["v"].values, cut(whole["v"], mesh.start, mesh.shape))
        for got, put in zip(mesh.fields["s"].values, whole["s"], strict=True):
            assert np.array_equal(got, cut(put, mesh.start, mesh.shape))
        assert np.array_equal(mesh.fields["e"].values, cut(whole["e"], mesh.start, mesh.cells))
        assert np.array_equal(mesh.ids["element"], cut(whole["ids"], mesh.start, mesh.cells))
        assert mesh.fields["a"].units == "K"
        if kind == "uniform":
            assert mesh.origin == (1, 2, 3) and mesh.spacing == (0.5, 1, 2)
        elif kind == "curvilinear":
            assert np.array_equal(mesh.coordinates, cut(whole["points"], mesh.start, mesh.shape))
        else:
            for d, axis in enumerate(axes):
                own = whole["lines"][axis][mesh.start[d] : mesh.start[d] + mesh.shape[d]]
                assert np.array_equal(mesh.coordinates[axis], own)
    for total in owners.values():
        assert (total == 1).all()


def test_arrays_that_are_read_have_vtks_order(transfer):
    """A C array indexed [x, y, z] is turned on its way, and not again for VTK."""
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from penstock.analysis import to_vtk
    from penstock.analysis.vtk import numpy_of

    meshes, whole = structured("uniform", (3, 4, 5), "xyz", 1, 0, "C", 1)
    ((_, mesh),) = transfer(meshes, 1, parts_of(1, "block"))
    image = to_vtk(mesh)
    assert image.GetDimensions() == (3, 4, 5)
    assert numpy_of(image.GetPointData().GetArray("a")).ctypes.data == mesh.fields["a"].values.ctypes.data
    np.testing.assert_array_equal(numpy_of(image.GetPointData().GetArray("a")), whole["a"].ravel(order="F"))
    vectors = image.GetPointData().GetArray("v")
    assert np.asarray(vectors.GetComponentBuffer(1)).ctypes.data == mesh.fields["v"].values[..., 1].ctypes.data
    np.testing.assert_array_equal(numpy_of(vectors), whole["v"].transpose(2, 1, 0, 3).reshape(-1, 3))


def ball(kind, axes):
    """The distance from a point, on nodes and elements, of the mesh of one writer; the contour 0.6 is closed."""
    shape = tuple({"x": 17, "y": 14, "z": 12}[axis] for axis in axes)
    lines = {
        axis: np.linspace(-1, 1, n) ** (3 if kind == "rectilinear" else 1) for axis, n in zip(axes, shape, strict=True)
    }
    found = dict(zip(axes, np.meshgrid(*lines.values(), indexing="ij"), strict=True))
    nodes = np.stack([found[axis] for axis in "xyz"], axis=-1)
    nodes = nodes @ np.array([[1, 0.2, 0], [0, 1, 0.1], [0, 0, 1]]) if kind == "curvilinear" else nodes
    r = np.linalg.norm(nodes - [0.05, 0.02, -0.03], axis=-1)
    cells = sum(r[tuple(slice(k, n - 1 + k) for k, n in zip(at, shape, strict=True))] for at in np.ndindex(2, 2, 2)) / 8
    fields = {"r": Field("node", r), "c": Field("element", cells)}
    common = {"shape": shape, "axes": axes, "fields": fields}
    if kind == "uniform":
        spacing = [2 / ({"x": 17, "y": 14, "z": 12}[axis] - 1) for axis in "xyz"]
        return UniformMesh(**common, origin=(-1, -1, -1), spacing=spacing)
    if kind == "rectilinear":
        return RectilinearMesh(**common, coordinates=lines)
    return CurvilinearMesh(**common, coordinates=nodes)


def triangles_of(mesh, field):
    """Of the contour of the part's own cells: (n, 3 corners, 3); values of elements become values of points first."""
    from penstock.analysis import to_vtk
    from penstock.analysis.parts import owned, run, with_points
    from penstock.analysis.vtk import numpy_of
    from vtkmodules.vtkFiltersCore import vtkContourFilter

    own = owned(with_points(to_vtk(mesh), field))
    if own is None:
        return np.zeros((0, 3, 3))
    contour = vtkContourFilter()
    contour.SetInputArrayToProcess(0, 0, 0, 0, field)
    contour.SetValue(0, 0.6)
    surface = run(contour, own)
    if surface.GetNumberOfPolys() == 0:
        return np.zeros((0, 3, 3))
    points = numpy_of(surface.GetPoints().GetData()).astype(float)
    return points[numpy_of(surface.GetPolys().GetConnectivityArray()).reshape(-1, 3)]


def area(triangles):
    return (
        np.linalg.norm(np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]), axis=1).sum() / 2
    )


@pytest.mark.parametrize("kind", ["uniform", "rectilinear", "curvilinear"])
@pytest.mark.parametrize(("field", "method"), [("r", "block"), ("c", "block"), ("c", "planar"), ("c", "morton")])
def test_contours_of_ranks_fit_together(transfer, kind, field, method):
    """The area over 2 to 4 ranks is that of one; every edge of the surface has two triangles, whichever rank's."""
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    axes = {"block": "zyx", "planar": "xyz", "morton": "yzx"}[method]
    mesh = {"grid": ball(kind, axes)}
    whole = triangles_of(transfer([mesh], 1, parts_of(1, method))[0][1], field)
    for n in (2, 3, 4):
        parts = [triangles_of(part, field) for _, part in transfer([mesh], n, parts_of(n, method))]
        assert sum(map(area, parts)) == pytest.approx(area(whole), rel=1e-6)
        assert sum(map(len, parts)) == len(whole) > 500
        together = np.concatenate(parts)
        _, ids = np.unique(np.round(together.reshape(-1, 3), 5), axis=0, return_inverse=True)
        corners = ids.reshape(-1, 3)
        corners = corners[(corners != np.roll(corners, 1, axis=1)).all(axis=1)]  # those that are no lines
        edges = np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]]), axis=1)
        assert (np.unique(edges, axis=0, return_counts=True)[1] % 2 == 0).all()


def test_nodes_that_no_ranks_share(transfer):
    """Each rank has planes of its own; cells between ranks are read all the same."""
    whole = np.random.default_rng(2).random((7, 4))
    ends = (0, 2, 3, 7)
    meshes = [
        {
            "grid": UniformMesh(
                shape=(b - a, 4), start=(a, 0), whole=(7, 4), fields={"T": Field("node", whole[a:b].copy())}
            )
        }
        for a, b in itertools.pairwise(ends)
    ]
    for part, mesh in transfer(meshes, 2, parts_of(2, "block", ghost_layers=0)):
        assert np.array_equal(mesh.fields["T"].values, cut(whole, part.low, [n + 1 for n in part.shape]))


def test_blanked_cells_cannot_be_put(transfer):
    marks = np.zeros((3, 3), np.uint8)
    marks[1, 1] = 1
    mesh = UniformMesh(shape=(4, 4), ghosts={"element": marks})
    with pytest.raises(penstock.InvalidArgument, match="ghosts in layers"):
        transfer([{"grid": mesh}], 1, lambda step, rank: None, rendezvous_readers=0)


def test_the_example_of_a_script(transfer):
    """As it stands in the module: over 3 ranks each node counts once."""
    from penstock.analysis import meshes

    example = [line[4:] for line in meshes.__doc__.splitlines() if line.startswith("    ")]
    assert len(example) == 5
    array, x = np.random.default_rng(8).random((7, 9)), np.arange(9.0) ** 2
    field = {"U": Field("node", array)}
    grid = RectilinearMesh(shape=(7, 9), axes="yx", coordinates={"y": np.arange(7.0), "x": x}, fields=field)

    def use(step, rank):
        found = {"step": step, "part": describe(step)["grid"].parts(3)[rank], "np": np, "describe": describe}
        exec("\n".join(example), found)
        assert np.array_equal(found["x"], x[found["mesh"].start[1] :][: len(found["x"])])
        assert found["u"] is found["mesh"].fields["U"].values
        own = found["u"][found["ghost"] == 0]
        assert found["mean"] == own.mean()
        return own

    counted = np.concatenate(transfer([{"grid": grid}], 3, use))
    assert np.array_equal(np.sort(counted), np.sort(array.ravel()))


# ------------------------------------------------------------------------------------------------------- domains


def domain(rng, kinds, split):
    """A part of an unstructured mesh with a block of tetrahedra and one of triangles, or a mixed one, and particles."""
    n, tets, tris = int(rng.integers(0, 9)), int(rng.integers(0, 5)), int(rng.integers(0, 5))
    if n == 0:
        tets = tris = 0
    connectivity = [rng.integers(0, max(n, 1), (tets, 4)), rng.integers(0, max(n, 1), (tris, 3)).astype(np.int32)]
    x = rng.random((n, 3))
    x = tuple(np.ascontiguousarray(x[:, c]) for c in range(3)) if split else x
    if kinds == "mixed":
        flat = np.concatenate([connectivity[0].ravel(), connectivity[1].ravel()])
        offsets = np.cumsum([0] + [4] * tets + [3] * tris)
        blocks = [
            ElementBlock("all", "mixed", flat, offsets=offsets, topologies=np.array([10] * tets + [5] * tris, np.uint8))
        ]
    else:
        blocks = [ElementBlock("tets", "tet4", connectivity[0]), ElementBlock("tris", "tri3", connectivity[1], id=9)]
    fields = {
        "p": Field("node", rng.random(n)),
        "u": Field("node", rng.random((n, 3))),
        "s": Field("element", tuple(rng.random(tets + tris) for _ in range(2)), "Pa"),
    }
    marks = {"element": rng.integers(0, 2, tets + tris).astype(np.uint8)}
    ids = {"node": rng.integers(0, 1000, n), "element": rng.integers(0, 1000, tets + tris)}
    mesh = UnstructuredMesh(coordinates=x, blocks=blocks, fields=fields, ghosts=marks, ids=ids)
    k = int(rng.integers(0, 6))
    spray = ParticleMesh(
        coordinates=rng.random((k, 3)).astype(np.float32),
        fields={"p": Field("element", rng.random(k)), "w": Field("element", rng.random((k, 2)))},
    )
    return {"grid": mesh, "spray": spray}


def elements(mesh):
    """Of each element: (topology, its nodes' coordinates, values, id, ghost), sorted: whatever the numbering."""
    x = np.stack(mesh.coordinates, axis=-1) if isinstance(mesh.coordinates, tuple) else mesh.coordinates
    out, at = [], 0
    for block in mesh.blocks:
        for n in range(len(block)):
            nodes = (
                block.connectivity[n]
                if block.topology != "mixed"
                else block.connectivity[block.offsets[n] : block.offsets[n + 1]]
            )
            values = tuple(each[at] for each in mesh.fields["s"].arrays)
            nodal = [(*mesh.fields["u"].values[node], mesh.fields["p"].values[node]) for node in nodes]
            out.append((block.name, len(nodes), tuple(map(tuple, x[nodes])), tuple(nodal), values))
            out[-1] += (mesh.ids["element"][at], mesh.ghosts["element"][at], tuple(mesh.ids["node"][nodes]))
            at += 1
    return out


@given(
    st.sampled_from(["separate", "mixed"]),
    st.booleans(),
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.sampled_from(partition.METHODS),
    st.booleans(),
    st.integers(0, 2**31),
)
@PROPERTY
def test_unstructured_and_particles(transfer, kinds, split, ranks, method, views, seed):
    m, n = ranks
    rng = np.random.default_rng(seed)
    meshes = [domain(rng, kinds, split) for _ in range(m)]

    def use(step, rank):
        found = describe(step)
        return {name: mesh.read(step, mesh.parts(n, method)[rank], views=views) for name, mesh in found.items()}

    found = transfer(meshes, n, use)
    assert sorted(e for each in found for e in elements(each["grid"])) == sorted(
        e for each in meshes for e in elements(each["grid"])
    )
    for each in found:
        assert each["grid"].fields["s"].units == "Pa"
        assert [block.id for block in each["grid"].blocks] == ([0] if kinds == "mixed" else [0, 9])
    for name in ("p", "w"):
        got = np.concatenate([each["spray"].fields[name].values for each in found])
        assert np.array_equal(got, np.concatenate([each["spray"].fields[name].values for each in meshes]))
    x = np.concatenate([each["spray"].coordinates for each in found])
    assert np.array_equal(x, np.concatenate([each["spray"].coordinates for each in meshes]))


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.sampled_from(partition.METHODS),
    st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple),
    st.booleans(),
    st.integers(0, 2**31),
)
@PROPERTY
def test_amr(transfer, ranks, method, cells, views, seed):
    m, n = ranks
    rng = np.random.default_rng(seed)
    meshes, rows = [], []
    for _ in range(m):
        blocks = int(rng.integers(0, 8))
        fields = {
            "f": Field("element", rng.random((blocks, *cells))),
            "v": Field("element", rng.random((blocks, *cells, 2))),
        }
        mesh = AmrMesh(
            cells=cells,
            levels=rng.integers(0, 4, blocks),
            indices=rng.integers(0, 9, (blocks, 3)).astype(np.int32),
            fields=fields,
            refinement=3,
        )
        meshes.append({"grid": mesh})
        rows += amr_rows(mesh)
    found = transfer(meshes, n, parts_of(n, method, views=views))
    assert sorted(row for _, mesh in found for row in amr_rows(mesh)) == sorted(rows)
    counts = [len(mesh.levels) for _, mesh in found]
    assert max(counts) - min(counts) <= 1
    for _, mesh in found:
        assert mesh.refinement == 3 and mesh.cells == cells and mesh.components("v") == 2


def test_splits_of_amr(transfer):
    """Published by each rank, one number each, and refused where blocks are elsewhere."""
    indices = [[[0, 0, 0], [1, 0, 0]], [[0, 1, 0]], np.empty((0, 3), int)]
    splits = np.array([0, 16, 2**64 - 1], np.uint64)
    meshes = [
        {"grid": AmrMesh(cells=(2, 2), levels=np.ones(len(each), int), indices=np.array(each), splits=splits, depth=2)}
        for each in indices
    ]

    def use(step, rank):
        return describe(step)["grid"].depth, step["grid/splits"][...]

    ((depth, found),) = transfer(meshes, 1, use)
    assert depth == 2 and np.array_equal(found, splits)
    for rank, bad, depth, why in (
        (1, [0, 15, 99], 2, "Morton numbers 16 to 16, and splits say 15 up to 99"),
        (0, [0, 8, 16], 2, "Morton numbers 0 to 8, and splits say 0 up to 8"),
        (0, [0, 16, 17], 0, "levels 1 to 1; depth says 0 to 0"),
        (0, [0, 16, 17], 22, "Morton numbers reach"),
    ):
        mesh = meshes[rank]["grid"]
        with pytest.raises(penstock.InvalidArgument, match=why):
            partition.check_places(mesh.levels, mesh.indices, np.array(bad, np.uint64), rank, depth)


def amr_rows(mesh):
    f, v = mesh.fields["f"].values, mesh.fields["v"].values
    return [
        (int(mesh.levels[n]), tuple(mesh.indices[n].tolist()), f[n].tobytes(), v[n].tobytes())
        for n in range(len(mesh.levels))
    ]


def test_multiblock(transfer):
    rng = np.random.default_rng(4)
    wall = UniformMesh(shape=(3, 3), axes="xy", fields={"T": Field("node", rng.random((3, 3)))})
    gas = UniformMesh(shape=(4, 3), axes="xy", fields={"T": Field("node", rng.random((4, 3)))})
    own = {"T": Field("element", rng.random(2)), "m": Field("element", rng.random(2))}
    spray = ParticleMesh(coordinates=rng.random((2, 3)), fields=own)
    whole = Multiblock(blocks={"wall": wall, "gas": gas, "spray": spray})

    def use(step, rank):
        assert "wall/T" in step and "gas/T" in step and "m" in step
        found = describe(step)
        assert list(found) == ["whole", "wall", "gas", "spray"]
        mesh = found["whole"]
        assert set(mesh.fields) == {"T", "m"}
        with pytest.raises(penstock.NotFound, match="'nothing' does not exist"):
            mesh.read(step, mesh.parts(2)[rank], ["nothing"])
        return [mesh.read(step, mesh.parts(2)[rank], names, ghost_layers=0) for names in (None, ["m"])]

    found = transfer([{"whole": whole}], 2, use)
    assert sum(mesh.blocks["gas"].size_of("element") for mesh, _ in found) == 6
    assert sum(mesh.blocks["spray"].size_of("element") for mesh, _ in found) == 2
    for full, selected in found:
        assert [list(block.fields) for block in full.blocks.values()] == [["T"], ["T"], ["T", "m"]]
        assert [list(block.fields) for block in selected.blocks.values()] == [[], [], ["m"]]
