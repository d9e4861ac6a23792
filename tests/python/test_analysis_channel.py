"""Meshes on streams: what is written is read by any number of ranks, and what is no description is refused."""

import json
import re
import threading

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
    time_and_cycle,
)

TIMEOUT_S = 20.0
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
    pytest.importorskip("vtkmodules")
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
    pytest.importorskip("vtkmodules")
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
        for a, b in zip(ends[:-1], ends[1:], strict=True)
    ]
    for part, mesh in transfer(meshes, 2, parts_of(2, "block", ghost_layers=0)):
        assert np.array_equal(mesh.fields["T"].values, cut(whole, part.low, [n + 1 for n in part.shape]))


def test_blanked_cells_cannot_be_put(transfer):
    marks = np.zeros((3, 3), np.uint8)
    marks[1, 1] = 1
    mesh = UniformMesh(shape=(4, 4), ghosts={"element": marks})
    with pytest.raises(penstock.InvalidArgument, match="ghosts in layers"):
        transfer([{"grid": mesh}], 1, lambda step, rank: None, rendezvous_readers=0)


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
            nodal = [tuple(mesh.fields["u"].values[node]) + (mesh.fields["p"].values[node],) for node in nodes]
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


# ------------------------------------------------------------------------------------------- naming, wanted, steps


def test_the_attribute_is_put_when_it_changes(hand_over):
    mesh = UniformMesh(shape=(3,), fields={"U": Field("node", np.zeros(3)), "V": Field("node", np.ones(3))})
    texts, puts = [], []

    def put(meshes, wanted=None):
        def fill(step):
            original = step._put_attribute
            step._put_attribute = lambda name, *packed: (puts.append(name), original(name, *packed))
            publish(step, meshes, wanted)

        step = hand_over(fill)
        texts.append(step.attributes["meshes"])
        return step

    step = put({"grid": mesh})
    assert json.loads(texts[0]) == {
        "version": 1,
        "meshes": {
            "grid": {
                "type": "uniform",
                "shape": [3],
                "axes": "x",
                "origin": [0, 0, 0],
                "spacing": [1, 1, 1],
                "fields": {
                    "U": {"association": "node", "variables": ["U"]},
                    "V": {"association": "node", "variables": ["V"]},
                },
            }
        },
    }
    step = put({"grid": mesh}, {"V"})
    assert "U" not in step and puts == ["meshes"] and texts[0] == texts[1]
    (found,) = describe(step).values()
    assert list(found.fields) == ["V"] and found.absent == ("U",)
    with pytest.raises(penstock.NotFound, match="'U' is not in this step"):
        found.read(step, found.parts(1)[0], ["U"])
    assert list(found.read(step, found.parts(1)[0]).fields) == ["V"]
    put({"grid": mesh}, set())
    assert puts == ["meshes"]
    put({"grid": mesh, "other": ParticleMesh(coordinates=np.zeros((1, 3)))})
    assert puts == ["meshes"] * 2


def test_names_that_collide(hand_over):
    fields = {"U": Field("node", np.zeros((3, 2))), "U_x": Field("node", np.zeros(3))}

    def fill(step):
        publish(step, {"grid": UniformMesh(shape=(3,), fields=fields)})
        with pytest.raises(penstock.InvalidArgument, match="two arrays of the channel would be the variable 'U_x'"):
            split = fields | {"U": Field("node", (np.zeros(3), np.zeros(3)))}
            publish(step, {"grid": UniformMesh(shape=(3,), fields=split)})
        with pytest.raises(penstock.InvalidArgument, match="no mesh has the field 'W'"):
            publish(step, {"grid": UniformMesh(shape=(3,), fields=fields)}, {"W"})
        grid = UniformMesh(shape=(3,))
        with pytest.raises(penstock.InvalidArgument, match="block 'grid' of 'all' is not the mesh"):
            publish(step, {"grid": grid, "all": Multiblock(blocks={"grid": UniformMesh(shape=(3,))})})

    hand_over(fill)


def test_a_stream_without_the_attribute(hand_over):
    array = np.arange(24.0).reshape(2, 3, 4)

    def fill(step):
        step["T"] = array
        step["flags"] = array > 3
        step["line"] = np.arange(3)
        step["complex"] = array.astype(complex)
        step["empty"] = np.zeros((0, 2))
        step["x"] = 3.5
        step.attributes.update({"T/spacing": [0.5, 1.0, 2.0], "origin": [1.0, 2.0], "T/units": "K"})

    step = hand_over(fill)
    (mesh,) = describe(step).values()
    assert list(mesh.fields) == ["T", "flags"] and mesh.axes == "zyx" and mesh.fields["T"].units == "K"
    whole = mesh.read(step, mesh.parts(1)[0])
    np.testing.assert_array_equal(whole.fields["T"].values, array)
    assert whole.spacing == (0.5, 1, 2) and whole.origin == (1, 2, 0) and not whole.ghosts
    assert mesh.box_of(mesh.parts(1)[0]) == ((1, 2, 0), (2.5, 4, 2))
    expected = step.to_vtk()
    if pytest.importorskip("vtkmodules"):
        from penstock.analysis import to_vtk

        image = to_vtk(whole)
        assert image.GetDimensions() == expected.GetDimensions() and image.GetBounds() == expected.GetBounds()


def test_no_meshes_at_all(hand_over):
    assert describe(hand_over(lambda step: step.put_value("x", 1.0))) == {}


@pytest.mark.parametrize(
    ("values", "attributes", "expected"),
    [
        ({}, {}, (0.0, 0)),
        ({"time": 2.5, "cycle": 7}, {"time": 9.0}, (2.5, 7)),
        ({}, {"time": 1.5, "cycle": 3}, (1.5, 3)),
        ({"time": np.arange(3.0)}, {"cycle": "three"}, (0.0, 0)),
        ({"time": float("nan")}, {"cycle": [1, 2]}, (0.0, 0)),
    ],
)
def test_time_and_cycle(hand_over, values, attributes, expected):
    def fill(step):
        step.attributes.update(attributes)
        for name, value in values.items():
            step[name] = value

    assert time_and_cycle(hand_over(fill)) == expected


# ------------------------------------------------------------------------------------------------ hostile attributes

FIELD = {"association": "node", "variables": ["U"]}
GRID = {"type": "uniform", "shape": [3, 4], "axes": "xy", "fields": {"U": FIELD}}
CLOUD = {"type": "particles", "coordinates": ["x"]}
TETS = {"name": "t", "topology": "tri3", "connectivity": "c"}
SOLID = {"type": "unstructured", "coordinates": "x", "blocks": [TETS]}
TREE = {"type": "amr", "cells": [2, 2], "axes": "xy", "levels": "l", "indices": "i"}

GOOD = [GRID, CLOUD, SOLID, TREE]
BAD = [
    ({**GRID, "type": "hexagonal"}, "key 'type': there is no type 'hexagonal'"),
    ({**GRID, "colour": 1}, "key 'colour': unknown"),
    ({"type": "uniform", "axes": "xy"}, "key 'shape': missing"),
    ({**GRID, "shape": [3, 4, 5, 6]}, "key 'shape': expected 1 to 3 integers"),
    ({**GRID, "shape": [3, True]}, "key 'shape'"),
    ({**GRID, "shape": [3, 1 << 60]}, "key 'shape'"),
    ({**GRID, "shape": "34"}, "key 'shape'"),
    ({**GRID, "axes": "xx"}, "key 'axes': axes are 2 different letters"),
    ({**GRID, "axes": "xyz"}, "key 'axes'"),
    ({**GRID, "spacing": [1, 0, 1]}, "key 'spacing': spacing is positive"),
    ({**GRID, "origin": [1, 2]}, "key 'origin': expected three finite numbers"),
    ({**GRID, "origin": [1, 2, "1e999"]}, "key 'origin'"),
    ({**GRID, "fields": []}, "key 'fields': expected an object"),
    ({**GRID, "fields": {"U": {**FIELD, "x": 1}}}, "key 'fields/U', key 'x': unknown"),
    ({**GRID, "fields": {"U": {**FIELD, "association": "face"}}}, "key 'association': expected one of"),
    ({**GRID, "fields": {"U": {**FIELD, "association": "element"}}}, r"shape \(3, 4\), expected \(2, 3\)"),
    ({**GRID, "fields": {"U": {**FIELD, "components": 2}}}, r"expected \(3, 4, 2\)"),
    ({**GRID, "fields": {"U": {**FIELD, "components": 0}}}, "key 'components'"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": []}}}, "key 'variables'"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": ["U", "absent"]}}}, "no variable 'absent'"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": ["U", "U"], "components": 3}}}, "so many components"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": ["z"]}}}, "complex128, expected real numbers"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": ["x"]}}}, "is a local_array, expected a global_array"),
    ({**GRID, "ghosts": FIELD}, "key 'ghosts'.*expected uint8"),
    ({**GRID, "ids": {"face": "U"}}, "key 'ids', key 'face': unknown"),
    ({**GRID, "ids": {"node": "U"}}, "key 'ids/node'.*expected int64"),
    ({**GRID, "ids": {"node": 3}}, "key 'node': expected text"),
    ({**GRID, "type": "rectilinear"}, "key 'coordinates': missing"),
    ({**GRID, "type": "rectilinear", "coordinates": {"x": "U", "y": "U"}}, r"key 'coordinates/x'.*expected \(3,\)"),
    ({**GRID, "type": "curvilinear", "coordinates": ["U"]}, r"expected \(3, 4, 3\)"),
    ({**CLOUD, "coordinates": "absent"}, "key 'coordinates': the step has no variable 'absent'"),
    ({**CLOUD, "coordinates": ["x", "x"]}, "one variable, or three, not 2"),
    ({**CLOUD, "coordinates": [["x"]]}, "expected a list of at least 1 names"),
    ({**CLOUD, "fields": {"m": {"association": "node", "variables": ["x"]}}}, r"expected one of \('element',\)"),
    ({**CLOUD, "fields": {"m": {"association": "element", "variables": ["two"]}}}, "'two' has 2 blocks, 'x' 1"),
    ({**SOLID, "blocks": {}}, "key 'blocks': expected a list"),
    ({**SOLID, "blocks": [TETS, TETS]}, "a name of its own"),
    ({**SOLID, "blocks": [{**TETS, "topology": "hex99"}]}, "there is no topology 'hex99'"),
    ({**SOLID, "blocks": [{**TETS, "topology": "mixed"}]}, "key 'offsets': missing"),
    ({**SOLID, "blocks": [{**TETS, "offsets": "c"}]}, "key 'offsets': unknown"),
    ({**SOLID, "blocks": [{**TETS, "connectivity": "x"}]}, "expected integers"),
    ({**TREE, "cells": [2, 2], "ghost_layers": 1}, "key 'cells': blocks of"),
    ({**TREE, "refinement": 1}, "key 'refinement': expected an integer from 2"),
    ({**TREE, "refinement": 10**6}, "key 'refinement'"),
    ({"type": "multiblock", "blocks": ["m"]}, "'m' is no other mesh"),
    ({"type": "multiblock", "blocks": ["absent"]}, "key 'blocks': 'absent' is no other mesh"),
    ({**GRID, "shape": [1 << 40, 1 << 40]}, "key 'shape': .* are more than"),
    ({**TREE, "cells": [1 << 20, 1 << 20]}, "key 'cells': .* are more than"),
    ({**GRID, "spacing": [1, 1, 10**400]}, "key 'spacing'"),
    ({**GRID, "fields": {"U": {**FIELD, "units": "m" * 2000}}}, "key 'units': expected text of at most 1000"),
    ({**GRID, "x" * 900_000: 1}, "unknown"),
    ([], "key 'type'"),
    ({}, "key 'type': there is no type None"),
]
TEXTS = [
    ("", "is no JSON"),
    ("[", "is no JSON"),
    ("[" * 500_000, "is no JSON"),
    ('{"version": 1, "version": 1, "meshes": {}}', "not all different"),
    ('{"version": NaN, "meshes": {}}', "key 'version': this program reads version 1, not nan"),
    ("[]", "expected an object"),
    ('{"meshes": {}}', "key 'version': missing"),
    ('{"version": 2, "meshes": {}}', "key 'version': this program reads version 1, not 2"),
    ('{"version": true, "meshes": {}}', "key 'version'"),
    ('{"version": 1, "meshes": []}', "key 'meshes'"),
    ('{"version": 1, "meshes": {}, "more": 1}', "key 'more': unknown"),
    (json.dumps({"version": 1, "meshes": {str(n): GRID for n in range(1001)}}), "at most 1000 meshes"),
    (json.dumps({"version": 1, "meshes": {"n" * 201: GRID}}), "1 to 200 characters"),
    (json.dumps({"version": 1, "meshes": {"": GRID}}), "1 to 200 characters"),
    (" " * (1 << 20) + "{}", "at most 1048576 bytes"),
    ('{"version": ' + "1" * 5000 + ', "meshes": {}}', "is no JSON"),
    (3, "one text"),
    (["a", "b"], "one text"),
]


def hostile(step, attribute):
    step["U"] = np.zeros((3, 4))
    step["z"] = np.zeros((3, 4), complex)
    step.put_local("x", np.zeros((3, 3)))
    step.put_local("two", np.zeros(3))
    step.put_local("two", np.zeros(3))
    step.put_local("c", np.array([[0, 1, 2]]))
    step.put_local("l", np.zeros(2, np.int64))
    step.put_local("i", np.zeros((2, 3), np.int64))
    step.attributes["meshes"] = attribute


def test_attributes_that_are_refused(hand_over):
    """All over one stream: each step has another attribute."""
    for mesh in GOOD:
        step = hand_over(lambda step, mesh=mesh: hostile(step, json.dumps({"version": 1, "meshes": {"m": mesh}})))
        found = describe(step)["m"]
        found.read(step, found.parts(2)[0])
    for mesh, message in BAD:
        text = json.dumps({"version": 1, "meshes": {"m": mesh}}).replace('"1e999"', "1e999")  # infinite when read
        step = hand_over(lambda step, text=text: hostile(step, text))
        with pytest.raises(penstock.InvalidArgument) as error:
            describe(step)
        assert re.search(message, str(error.value)) and "mesh 'm'" in str(error.value), (mesh, str(error.value))
        assert len(str(error.value)) < 2000
    for text, message in TEXTS:
        step = hand_over(lambda step, text=text: hostile(step, text))
        with pytest.raises(penstock.InvalidArgument) as error:
            describe(step)
        assert re.search(message, str(error.value)) and "attribute 'meshes'" in str(error.value), str(error.value)


@given(st.data())
@PROPERTY
def test_mutations_of_attributes(hand_over, data):
    """Whatever is put in the place of a value, describe() and read() work or raise InvalidArgument."""
    junk = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-5, 1 << 70)
        | st.floats()
        | st.sampled_from(["U", "x", "c", "l", "", "xy"]),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["x", "name", "U"]), inner, max_size=3)
        ),
        max_leaves=6,
    )
    whole = json.loads(json.dumps({"version": 1, "meshes": {f"m{n}": mesh for n, mesh in enumerate(GOOD)}}))
    place = whole
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    place[key] = data.draw(junk)
    step = hand_over(lambda step: hostile(step, json.dumps(whole)))
    try:
        for mesh in describe(step).values():
            for part in mesh.parts(2):
                mesh.read(step, part)
    except penstock.InvalidArgument as error:
        assert "mesh" in str(error)


NAMES = ["U", "x", "c", "l", "i", "z", "two", "o", "t", "n", "absent", ""]
NUMBERS = st.integers(-2, 5) | st.sampled_from([1 << 20, 1 << 31, 1 << 48, 1 << 62, -(1 << 63)]) | st.floats()
AXIS = st.sampled_from(["x", "xy", "yx", "zyx", "xx", "w", ""])
NAME = st.sampled_from(NAMES)
FIELDS = st.dictionaries(
    st.sampled_from(["f", "g"]),
    st.fixed_dictionaries(
        {
            "association": st.sampled_from(["node", "element", "face"]),
            "variables": st.lists(NAME, min_size=1, max_size=3),
        },
        optional={"components": st.integers(0, 4), "units": st.text(max_size=3)},
    ),
    max_size=2,
)
BLOCK = st.fixed_dictionaries(
    {"name": NAME, "topology": st.sampled_from(["tri3", "mixed", "hex8", "sphere"]), "connectivity": NAME},
    optional={"offsets": NAME, "topologies": NAME, "id": NUMBERS},
)
MESH = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["uniform", "rectilinear", "curvilinear", "unstructured", "particles", "amr", "multiblock"]
        )
    },
    optional={
        "shape": st.lists(NUMBERS, max_size=4) | st.just([3, 4]),
        "cells": st.lists(NUMBERS, max_size=4) | st.just([2, 2]),
        "axes": AXIS,
        "origin": st.lists(NUMBERS, max_size=4),
        "spacing": st.lists(NUMBERS, max_size=4),
        "coordinates": NAME | st.lists(NAME, max_size=4) | st.dictionaries(AXIS, NAME, max_size=2),
        "blocks": st.lists(BLOCK, max_size=2) | st.lists(NAME, max_size=2),
        "levels": NAME,
        "indices": NAME,
        "ghost_layers": NUMBERS,
        "refinement": NUMBERS,
        "fields": FIELDS,
        "ids": st.dictionaries(st.sampled_from(["node", "element"]), NAME, max_size=2),
    },
)


def arrays_of(seed):
    """Local arrays that may fit each other or not, with numbers that overflow."""
    rng = np.random.default_rng(seed)
    extremes = np.array([0, 1, 2, 5, 10, -1, -(2**63), 2**63 - 1])
    return {
        "x": rng.random((int(rng.integers(0, 5)), int(rng.integers(2, 4)))),
        "c": rng.choice(extremes, (2, 3)) if rng.random() < 0.5 else np.array([[0, 1, 2]]),
        "l": rng.choice(extremes, int(rng.integers(0, 4))),
        "i": rng.choice(extremes, (int(rng.integers(0, 4)), 3)),
        "n": rng.integers(0, 3, 10),
        "o": np.array([0, 5, -(2**63), -1, 10]) if rng.random() < 0.5 else np.array([0, 5, 10]),
        "t": np.full(int(rng.choice([2, 4])), int(rng.choice([4, 5, 7, 99])), np.uint8),
    }


@given(st.dictionaries(st.sampled_from(["m", "n"]), MESH, max_size=2), st.integers(0, 50), st.integers(1, 3))
@settings(PROPERTY, max_examples=150)
def test_whatever_a_hostile_writer_sends(hand_over, meshes, seed, size):
    """Attributes that look right, over arrays of any content: read, and given to VTK, or refused with the place."""

    def fill(step):
        hostile(step, json.dumps({"version": 1, "meshes": meshes}).replace("Infinity", "1e999").replace("NaN", "1e999"))

    def fill_all(step):
        step["U"] = np.zeros((3, 4))
        for name, array in arrays_of(seed).items():
            step.put_local(name, array)
        text = json.dumps({"version": 1, "meshes": meshes}).replace("Infinity", "1e999").replace("NaN", "1e999")
        step.attributes["meshes"] = text

    step = hand_over(fill if seed == 0 else fill_all)
    try:
        found = [mesh.read(step, part) for mesh in describe(step).values() for part in mesh.parts(size)]
    except penstock.InvalidArgument as error:
        assert re.search("mesh|attribute 'meshes'", str(error)) and len(str(error)) < 2000
        return
    for mesh in found:
        draw(mesh)


def draw(mesh):
    """VTK does not crash on it."""
    pytest.importorskip("vtkmodules")
    from penstock.analysis import to_vtk
    from vtkmodules.vtkFiltersGeometry import vtkGeometryFilter

    data = to_vtk(mesh)
    blocks = (
        [data] if not data.IsA("vtkMultiBlockDataSet") else [data.GetBlock(n) for n in range(data.GetNumberOfBlocks())]
    )
    for block in blocks:
        if not block.IsA("vtkMultiBlockDataSet"):
            surface = vtkGeometryFilter()
            surface.SetInputData(block)
            surface.Update()


def test_offsets_that_overflow(hand_over):
    """Differences of which are all positive in 64 bits, and which VTK would follow out of memory."""
    block = {"name": "b", "topology": "mixed", "connectivity": "n", "offsets": "o", "topologies": "t"}
    mesh = {"type": "unstructured", "coordinates": "x", "blocks": [block]}
    for offsets in (np.array([0, 5, -(2**63), -1, 10]), np.array([0, 5, 2**63, 2**64 - 1, 10], np.uint64)):

        def fill(step, offsets=offsets):
            step.put_local("x", np.zeros((3, 3)))
            step.put_local("n", np.zeros(10, int))
            step.put_local(f"o{offsets.dtype}", offsets)
            step.put_local("t", np.full(4, 7, np.uint8))
            text = json.dumps({"version": 1, "meshes": {"m": mesh}}).replace('"o"', f'"o{offsets.dtype}"')
            step.attributes["meshes"] = text

        step = hand_over(fill)
        found = describe(step)["m"]
        with pytest.raises(penstock.InvalidArgument, match="mesh 'm', domain 0: element block 'b': offsets rise"):
            found.read(step, found.parts(1)[0])


def test_more_than_the_machine_has(hand_over):
    """A global array of which hardly a block is there: the part is refused before memory is asked for."""
    shape = (1 << 44, 4)
    field = {"association": "node", "variables": ["huge"]}
    grid = {"type": "uniform", "shape": shape, "axes": "xy"}

    def fill(step, meshes):
        step.put("huge", np.zeros((1, 4)), start=(0, 0), shape=shape)
        if meshes:
            step.attributes["meshes"] = json.dumps({"version": 1, "meshes": meshes})

    for meshes in (None, {"mesh": {**grid, "fields": {"f": field}}}, {"mesh": grid}):
        step = hand_over(lambda step, meshes=meshes: fill(step, meshes))
        found = describe(step)["mesh"]
        with pytest.raises(penstock.InvalidArgument, match="mesh 'mesh': the part needs over .* use more ranks"):
            found.read(step, found.parts(2)[1])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"spacing": 1j}, "'T': the attribute 'spacing' is at most three finite numbers, not 1j"),
        ({"spacing": "abc"}, "'T': the attribute 'spacing'"),
        ({"spacing": [1.0] * 4}, "'T': the attribute 'spacing'"),
        ({"spacing": [1.0, 0.0]}, "'T': spacing is positive"),
        ({"T/origin": [np.inf]}, "'T': the attribute 'origin'"),
        ({"origin": [1j]}, "'T': the attribute 'origin'"),
        ({"origin": ["a", "b"]}, "'T': the attribute 'origin'"),
    ],
)
def test_attributes_of_a_plain_stream_that_are_refused(hand_over, attributes, message):
    def fill(step):
        step["T"] = np.zeros((3, 4))
        step.attributes.update(attributes)

    step = hand_over(fill)
    with pytest.raises(penstock.InvalidArgument, match=message):
        describe(step)


def test_the_largest_arrays_of_a_plain_stream_are_the_mesh(hand_over):
    def fill(step):
        step["histogram"] = np.zeros(10)
        step["U"] = np.zeros((4, 5))
        step["V"] = np.ones((4, 5))

    (mesh,) = describe(hand_over(fill)).values()
    assert list(mesh.fields) == ["U", "V"] and mesh.shape == (4, 5)


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (
            {"c": np.array([[0, 1, 3]])},
            "mesh 'm', domain 0: element block 't': connectivity has the node numbers 0 to 3",
        ),
        ({"c": np.array([0, 1, 2])}, r"shape \(n, 3\), not \(3,\)"),
        ({"x": np.zeros((3, 2))}, "coordinates are one array"),
        ({"p": np.zeros(4)}, r"field 'p'.*expected shape \(3,\), not \(4,\)"),
        ({"p": np.zeros((3, 2))}, "field 'p' has 2 components, not 1"),
        ({"g": np.zeros(2, np.uint8)}, "ghosts of each element"),
    ],
)
def test_arrays_that_make_no_mesh(hand_over, put, message):
    good = {"c": np.array([[0, 1, 2]]), "x": np.zeros((3, 3)), "p": np.zeros(3), "g": np.zeros(1, np.uint8)}
    mesh = {
        **SOLID,
        "fields": {"p": {"association": "node", "variables": ["p"]}},
        "ghosts": {"association": "element", "variables": ["g"]},
    }

    def fill(step):
        for name, array in (good | put).items():
            step.put_local(name, array)
        step.attributes["meshes"] = json.dumps({"version": 1, "meshes": {"m": mesh}})

    step = hand_over(fill)
    found = describe(step)["m"]
    with pytest.raises(penstock.InvalidArgument, match=message):
        found.read(step, found.parts(1)[0])


@pytest.mark.parametrize(
    ("put", "message"),
    [
        ({"i": np.zeros((2, 2), int)}, r"domain 0: indices of 2 blocks have the shape \(2, 3\)"),
        ({"l": np.array([0, 99])}, "domain 0: levels are 0 to 50"),
        ({"f": np.zeros((3, 2, 2))}, "domain 0: 'f' has 3 rows, 'l' 2"),
        ({"f": np.zeros((2, 2, 3))}, r"mesh 'm': field 'f'.*expected shape \(2, 2, 2\)"),
    ],
)
def test_arrays_that_make_no_tree(hand_over, put, message):
    good = {"l": np.zeros(2, int), "i": np.zeros((2, 3), int), "f": np.zeros((2, 2, 2))}

    def fill(step):
        for name, array in (good | put).items():
            step.put_local(name, array)
        mesh = {**TREE, "fields": {"f": {"association": "element", "variables": ["f"]}}}
        step.attributes["meshes"] = json.dumps({"version": 1, "meshes": {"m": mesh}})

    step = hand_over(fill)
    found = describe(step)["m"]
    with pytest.raises(penstock.InvalidArgument, match=message):
        found.read(step, found.parts(1)[0])


@pytest.mark.parametrize("kind", ["field", "coordinates", "amr"])
def test_components_of_different_types(hand_over, kind):
    """Each error says which mesh."""
    field = {"association": "element" if kind == "amr" else "node", "variables": ["a", "b"]}
    mesh = {"type": "uniform", "shape": [3, 4], "axes": "xy", "fields": {"v": field}}
    if kind == "coordinates":
        mesh = {"type": "curvilinear", "shape": [3, 4], "axes": "xy", "coordinates": ["a", "b", "a"]}
    if kind == "amr":
        mesh = {**TREE, "fields": {"v": field}}

    def fill(step):
        for name, dtype in (("a", np.float32), ("b", np.float64)):
            if kind == "amr":
                step.put_local(name, np.zeros((2, 2, 2), dtype))
            else:
                step[name] = np.zeros((3, 4), dtype)
        step.put_local("l", np.zeros(2, int))
        step.put_local("i", np.zeros((2, 3), int))
        step.attributes["meshes"] = json.dumps({"version": 1, "meshes": {"m": mesh}})

    step = hand_over(fill)
    found = describe(step)["m"]
    with pytest.raises(penstock.InvalidArgument, match="mesh 'm': the components of a field are arrays of one type"):
        found.read(step, found.parts(1)[0])


def test_parts_of_another_kind_of_mesh(hand_over):
    step = hand_over(lambda step: step.__setitem__("T", np.zeros((3, 3))))
    mesh = describe(step)["mesh"]
    for part in (partition.DomainsPart((0,)), partition.BoxPart((0, 0), (3, 2)), partition.BoxPart((1, 1), (0, 0))):
        with pytest.raises(penstock.InvalidArgument, match="mesh 'mesh'"):
            mesh.read(step, part)
    with pytest.raises(penstock.InvalidArgument, match="no partitioner"):
        mesh.parts(2, "random")
    with pytest.raises(penstock.InvalidArgument, match="list of names"):
        mesh.read(step, mesh.parts(1)[0], "T")


# ------------------------------------------------------------------------------------------------------- zero copy


@pytest.fixture
def insitu(context):
    """insitu(fill, look): fill(step) puts, and look(step) is called with the step in the same thread."""
    opened = []

    def run(fill, look):
        opened.append(context.create("s", engine="insitu", timeout=TIMEOUT_S))
        opened.append(context.open("s", engine="insitu", timeout=TIMEOUT_S))
        threads = []
        opened[1].on_step(lambda step: (threads.append(threading.get_ident()), look(step)) and None, on_error="raise")
        with opened[0].step() as step:
            fill(step)
        assert threads == [threading.get_ident()]

    yield run
    for stream in reversed(opened):
        stream.close()


def test_lent_arrays_are_read_and_given_to_vtk_in_place(insitu):
    """From the simulation's arrays to VTK's: the same addresses."""
    pytest.importorskip("vtkmodules")
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
    pytest.importorskip("vtkmodules")
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
    pytest.importorskip("vtkmodules")
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
