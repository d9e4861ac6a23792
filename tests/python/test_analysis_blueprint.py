"""Blueprint files: what Conduit's specification of meshes requires is there, and the meshes come back from them."""

import itertools
from dataclasses import replace

import numpy as np
import penstock
import pytest
from hypothesis import given, settings
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
    write_blueprint,
)
from ranks import on_ranks

h5py = pytest.importorskip("h5py")

AXES = ["".join(each) for n in (1, 2, 3) for each in itertools.permutations("xyz", n)]
WEIGHTS = np.array([2.0, -3.0, 5.0])
NODES = {"point": 1, "line": 2, "tri": 3, "quad": 4, "tet": 4, "hex": 8, "wedge": 6, "pyramid": 5}


def tree_of(item):
    """Groups as dicts, texts as str, arrays of one element as numbers."""
    if isinstance(item, h5py.Group):
        return {name: tree_of(each) for name, each in item.items()}
    assert item.ndim == 1
    if item.dtype.kind == "S":
        assert item.dtype.itemsize == len(item[0]) + 1  # the 0 that ends it
        return item[0].decode()
    return item[0].item() if item.shape == (1,) else item[...]


def domains_of(root):
    """The domains, found as relay does: by the root file's patterns. Checks the index."""
    with h5py.File(root) as file:
        top = {name: tree_of(file[name]) for name in file if not name.startswith("domain_")}
    index = top["blueprint_index"]["mesh"]
    assert top["protocol"]["name"] == "hdf5" and index["state"]["number_of_domains"] == top["number_of_trees"]
    assert top["number_of_files"] in (1, top["number_of_trees"])
    out = []
    for n in range(top["number_of_trees"]):
        number = n if top["number_of_files"] > 1 or "%" in top["file_pattern"] else 0
        with h5py.File(root.parent / (top["file_pattern"].replace("%06d", f"{number:06d}"))) as file:
            domain = file[top["tree_pattern"].replace("%06d", f"{n:06d}")]
            for kind in ("coordsets", "topologies", "fields"):
                for entry in index.get(kind, {}).values():
                    assert entry["path"] in domain or kind == "fields"  # a domain may lack a field
            out.append(tree_of(domain))
        assert out[-1]["state"]["domain_id"] == n
        check(out[-1], index)
    for entry in index["coordsets"].values():
        assert entry["coord_system"]["type"] == "cartesian" and set(entry["coord_system"]["axes"]) <= set("xyz")
        assert entry["type"] in ("uniform", "rectilinear", "explicit")
    for entry in index["topologies"].values():
        assert entry["coordset"] in index["coordsets"]
        assert entry["type"] in ("points", "uniform", "rectilinear", "structured", "unstructured")
    return out


def sizes(domain):
    """Vertices and elements of a domain."""
    coords, topology = domain["coordsets"]["coords"], domain["topologies"]["mesh"]
    if coords["type"] == "uniform":
        dims = list(coords["dims"].values())
    elif coords["type"] == "rectilinear":
        dims = [np.size(each) for each in coords["values"].values()]
    if coords["type"] != "explicit":
        return int(np.prod(dims)), int(np.prod([n - 1 for n in dims]))
    vertices = np.size(coords["values"]["x"])
    if topology["type"] == "points":
        return vertices, vertices
    elements = topology["elements"]
    if topology["type"] == "structured":
        dims = list(elements["dims"].values())
        assert np.prod([n + 1 for n in dims]) == vertices
        return vertices, int(np.prod(dims))
    if "sizes" in elements:
        return vertices, np.size(elements["sizes"])
    return vertices, np.size(elements["connectivity"]) // NODES[elements["shape"]]


def check(domain, index):
    """What the specification requires of a mesh of one domain."""
    coords, topology = domain["coordsets"]["coords"], domain["topologies"]["mesh"]
    assert topology["coordset"] == "coords"
    if coords["type"] == "uniform":
        n = len(coords["dims"])
        assert [*coords["dims"]] == [*"ijk"[:n]] and [*coords["origin"]] == [*"xyz"[:n]]
        assert [*coords["spacing"]] == [f"d{axis}" for axis in "xyz"[:n]] and topology["type"] == "uniform"
    elif coords["type"] == "rectilinear":
        assert [*coords["values"]] == [*"xyz"[: len(coords["values"])]] and topology["type"] == "rectilinear"
    else:
        assert coords["type"] == "explicit" and topology["type"] in ("points", "structured", "unstructured")
        assert len({np.size(each) for each in coords["values"].values()}) == 1
    vertices, elements = sizes(domain)
    if topology["type"] == "unstructured":
        found = topology["elements"]
        assert found["shape"] in (*NODES, "mixed", "polygonal")
        assert (
            np.size(found["connectivity"]) == 0
            or 0 <= np.min(found["connectivity"]) <= np.max(found["connectivity"]) < vertices
        )
        if "sizes" in found:
            ends = np.cumsum(np.atleast_1d(found["sizes"]))
            assert ends[-1] == np.size(found["connectivity"])
            assert np.array_equal(np.atleast_1d(found["offsets"]), ends - np.atleast_1d(found["sizes"]))
        if found["shape"] == "mixed":
            assert np.size(found["shapes"]) == elements and {*np.unique(found["shapes"])} <= {
                *found["shape_map"].values()
            }
    for name, field in domain.get("fields", {}).items():
        assert field["association"] in ("vertex", "element") and field["topology"] == "mesh"
        assert field["volume_dependent"] in ("true", "false")
        parts = field["values"].values() if isinstance(field["values"], dict) else [field["values"]]
        assert {np.size(each) for each in parts} == {vertices if field["association"] == "vertex" else elements}
        assert index["fields"][name]["number_of_components"] == len(parts)


def places(domain):
    """x, y, z of the vertices."""
    coords = domain["coordsets"]["coords"]
    if coords["type"] == "explicit":
        return np.stack([np.atleast_1d(coords["values"][axis]) for axis in "xyz"], axis=-1)
    lines = {}
    for axis, key in zip("xyz", "ijk", strict=True):
        if coords["type"] == "rectilinear":
            lines[axis] = np.atleast_1d(coords["values"].get(axis, 0.0))
        elif key in coords["dims"]:
            lines[axis] = coords["origin"][axis] + coords["spacing"][f"d{axis}"] * np.arange(coords["dims"][key])
        else:
            lines[axis] = np.zeros(1)
    grids = np.meshgrid(lines["z"], lines["y"], lines["x"], indexing="ij")[::-1]
    return np.stack([each.ravel() for each in grids], axis=-1)


def grid(kind, axes, shape, start=None, whole=None, origin=(0.0, 0.0, 0.0), marks=None):
    """With p linear, q the position on nodes, and e the number of each element, indexed [x, y, z]."""
    start = start or (0,) * len(shape)
    whole = whole or tuple(a + n for a, n in zip(start, shape, strict=True))
    lines = {axis: np.arange(a, a + n) * 0.5 for axis, a, n in zip(axes, start, shape, strict=True)}
    if kind == "uniform":
        lines = {axis: each + origin["xyz".index(axis)] for axis, each in lines.items()}
    found = dict(zip(axes, np.meshgrid(*lines.values(), indexing="ij"), strict=True))
    other = origin if kind == "uniform" else (0.0,) * 3
    nodes = np.stack([found.get(axis, np.full(shape, other[d])) for d, axis in enumerate("xyz")], axis=-1)
    common = {"shape": shape, "axes": axes, "start": start, "whole": whole}
    fields = {"p": Field("node", nodes @ WEIGHTS), "q": Field("node", nodes)}
    if kind == "uniform":
        mesh = UniformMesh(**common, origin=origin, spacing=(0.5,) * 3)
    elif kind == "rectilinear":
        mesh = RectilinearMesh(**common, coordinates=lines)
    else:
        mesh = CurvilinearMesh(**common, coordinates=nodes)
    order = sorted(range(len(axes)), key=lambda d: axes[d], reverse=True)
    e = np.arange(np.prod(mesh.cells)).reshape([mesh.cells[d] for d in order]).transpose(np.argsort(order))
    return replace(
        mesh, fields={**fields, "e": Field("element", e)}, ghosts={} if marks is None else {"element": marks}
    )


def values(domain, name):
    found = domain["fields"][name]["values"]
    return np.stack([*map(np.atleast_1d, found.values())], axis=-1) if isinstance(found, dict) else np.atleast_1d(found)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", ["uniform", "rectilinear", "curvilinear"])
@pytest.mark.parametrize("flat", [False, True])
def test_structured(tmp_path, kind, axes, flat):
    shape = tuple(3 + d for d in range(len(axes)))
    shape = (1, *shape[1:]) if flat else shape
    start = tuple(2 * (n > 1) for n in shape)
    mesh = grid(kind, axes, shape, start, tuple(a + n + (n > 1) for a, n in zip(start, shape, strict=True)))
    root = write_blueprint(tmp_path / "a-0.5", [mesh], 7, 0.25)
    assert root == tmp_path / "a-0.5.root" and [each.name for each in tmp_path.iterdir()] == ["a-0.5.root"]
    (domain,) = domains_of(root)
    assert domain["state"] == {"cycle": 7, "time": 0.25, "domain_id": 0}
    at = places(domain)
    np.testing.assert_allclose(values(domain, "q"), at)
    np.testing.assert_allclose(values(domain, "p"), at @ WEIGHTS)
    assert len(at) == np.prod(shape)


def test_types_of_coordsets_and_topologies(tmp_path):
    def kinds(mesh):
        (domain,) = domains_of(write_blueprint(tmp_path / "a", [mesh]))
        return domain["coordsets"]["coords"]["type"], domain["topologies"]["mesh"]["type"]

    assert kinds(grid("uniform", "zyx", (2, 3, 4))) == ("uniform", "uniform")
    assert kinds(grid("uniform", "xy", (2, 3))) == ("uniform", "uniform")
    assert kinds(grid("uniform", "xy", (2, 3), origin=(0, 0, 4.0))) == ("explicit", "structured")  # a plane at z = 4
    assert kinds(grid("uniform", "xz", (2, 3))) == ("explicit", "structured")
    assert kinds(grid("rectilinear", "zyx", (2, 3, 4))) == ("rectilinear", "rectilinear")
    assert kinds(grid("curvilinear", "zyx", (2, 3, 4))) == ("explicit", "structured")
    assert kinds(ParticleMesh(coordinates=np.zeros((3, 3)))) == ("explicit", "points")
    assert kinds(UniformMesh(shape=(1, 1), fields={"e": Field("element", np.ones((1, 1)))})) == ("explicit", "points")


def test_elements_are_in_order_and_ghosts_left_out(tmp_path):
    marks = np.ones((4, 5), np.uint8)
    marks[1:-1, :3] = 0
    (domain,) = domains_of(write_blueprint(tmp_path / "a", [grid("uniform", "xy", (5, 6), marks=marks)]))
    assert domain["coordsets"]["coords"]["origin"] == {"x": 0.5, "y": 0.0}
    assert values(domain, "e").reshape(3, 2).tolist() == np.arange(20).reshape(5, 4)[:3, 1:3].tolist()
    np.testing.assert_allclose(values(domain, "q"), places(domain)[:, :3])


def block(name, topology, nodes):
    return ElementBlock(name, topology, np.array(nodes))


def mixed(nodes, offsets, kinds):
    return ElementBlock("m", "mixed", np.array(nodes), offsets=np.array(offsets), topologies=np.array(kinds, np.uint8))


@pytest.mark.parametrize(
    ("blocks", "shape", "sizes"),
    [
        ([block("a", "hex8", [range(8)])], "hex", None),
        ([block("a", "tet4", [range(4)]), block("b", "tet4", [range(4, 8)])], "tet", None),
        ([block("a", "hex8", [range(8)]), block("b", "wedge6", [range(6)])], "mixed", [8, 6]),
        ([mixed(range(7), [0, 4, 7], [9, 5])], "mixed", [4, 3]),
        ([mixed(range(6), [0, 3, 6], [5, 5])], "tri", None),
        ([mixed(range(5), [0, 5], [7])], "polygonal", [5]),
        ([mixed(range(8), [0, 5, 8], [7, 5])], "mixed", [5, 3]),
        ([block("a", "sphere", [[1]]), block("b", "pyramid5", np.zeros((0, 5), int))], "point", None),
    ],
)
def test_unstructured(tmp_path, blocks, shape, sizes):
    x = np.arange(24.0).reshape(8, 3)
    n = sum(len(each) for each in blocks)
    fields = {
        "e": Field("element", np.arange(float(n))),
        "s": Field("node", (np.arange(8), -np.arange(8))),
        "w": Field("node", np.arange(40.0).reshape(8, 5)),
        "h": Field("node", np.arange(8).astype(np.float16)),
        "on/off": Field("node", np.arange(8) > 3),
    }
    ids, ghosts = {"node": np.arange(8) + 100}, {"element": np.zeros(n, np.uint8)}
    mesh = UnstructuredMesh(coordinates=x, blocks=blocks, fields=fields, ids=ids, ghosts=ghosts)
    (domain,) = domains_of(write_blueprint(tmp_path / "a.root", [mesh]))
    elements = domain["topologies"]["mesh"]["elements"]
    assert elements["shape"] == shape and (sizes is None or np.atleast_1d(elements["sizes"]).tolist() == sizes)
    expected = np.concatenate([each.connectivity.ravel() for each in blocks])
    assert np.atleast_1d(elements["connectivity"]).tolist() == expected.tolist()
    np.testing.assert_array_equal(places(domain), x)
    np.testing.assert_array_equal(values(domain, "s"), np.stack(fields["s"].values, axis=-1))
    np.testing.assert_array_equal(values(domain, "w"), fields["w"].values)
    np.testing.assert_array_equal(values(domain, "on_off"), np.arange(8) > 3)
    assert values(domain, "h").dtype == np.float32 and values(domain, "node_ids").tolist() == [*range(100, 108)]
    assert set(domain["fields"]["w"]["values"]) == {"c0", "c1", "c2", "c3", "c4"}


def test_elements_and_names_that_blueprint_does_not_have(tmp_path):
    x = np.zeros((10, 3))
    for blocks in ([block("a", "tet10", [range(10)])], [mixed([0, 1, 2], [0, 3], [4])]):
        mesh = UnstructuredMesh(coordinates=x, blocks=blocks)
        with pytest.raises(penstock.InvalidArgument, match="Blueprint has no elements of VTK's types"):
            write_blueprint(tmp_path / "a", [mesh])

        def work(cohort, mesh=mesh):
            with pytest.raises(penstock.InvalidArgument, match="Blueprint has no elements"):
                write_blueprint(tmp_path / "a", [mesh] if cohort.rank == 1 else [], cohort=cohort)

        on_ranks(2, work)
    for names in (("a/b", "a_b"), (".",)):
        fields = {name: Field("element", np.zeros(10)) for name in names}
        with pytest.raises(penstock.InvalidArgument, match="not different"):
            write_blueprint(tmp_path / "a", [ParticleMesh(coordinates=x, fields=fields)])
    assert not [*tmp_path.iterdir()]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4))
@settings(deadline=None, max_examples=20)
def test_ranks_with_any_number_of_parts(tmp_path_factory, counts):
    folder = tmp_path_factory.mktemp("b")
    rng = np.random.default_rng(sum(counts))

    def cloud(rank, n):
        fields = {f"f{rank}": Field("element", np.full(n + 1, 10.0 * rank + n))}
        return ParticleMesh(coordinates=rng.random((n + 1, 3)), fields=fields)

    clouds = [[cloud(rank, n) for n in range(count)] for rank, count in enumerate(counts)]
    paths = on_ranks(len(counts), lambda c: write_blueprint(folder / "s/a", clouds[c.rank], 3, cohort=c))
    assert {*paths} == {folder / "s/a.root"}
    found = domains_of(paths[0])
    given_ = [(rank, each) for rank, mine in enumerate(clouds) for each in mine]
    assert len(found) == max(len(given_), 1)
    for domain, (rank, each) in zip(found, given_, strict=False):
        np.testing.assert_array_equal(places(domain), each.coordinates)
        np.testing.assert_array_equal(values(domain, f"f{rank}"), each.fields[f"f{rank}"].values)
    if not given_:
        assert sizes(found[0]) == (0, 0)
    names = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
    inner = [f"s/a/domain_{n:06d}.hdf5" for n in range(len(found))] if len(counts) > 1 else []
    assert names == sorted(["s/a.root", *inner])


@pytest.mark.parametrize("axes", ["zyx", "xyz", "yx"])
def test_amr(tmp_path, axes):
    """Each block is a domain without its ghost layers; positions and levels are right."""
    cells = tuple(4 + d for d in range(len(axes)))
    levels, indices = np.array([0, 1, 1]), np.array([[1, 0, 0], [0, 0, 0], [1, 2, 0]])
    centres = np.zeros((3, *cells, 3))
    for row in range(3):
        lines = {}
        for d, axis in enumerate(axes):
            a = "xyz".index(axis)
            step = (0.5, 0.25, 2.0)[a] / 2 ** levels[row]
            first = indices[row, a] * (cells[d] - 2) - 1
            lines[axis] = (1.0, 2.0, 3.0)[a] + step * (first + np.arange(cells[d]) + 0.5)
        found = dict(zip(axes, np.meshgrid(*lines.values(), indexing="ij"), strict=True))
        centres[row] = np.stack([found.get(axis, np.zeros(cells)) for axis in "xyz"], axis=-1)
    mesh = AmrMesh(
        cells=cells,
        levels=levels,
        indices=indices,
        axes=axes,
        ghost_layers=1,
        origin=(1, 2, 3 if "z" in axes else 0),
        spacing=(0.5, 0.25, 2.0),
        fields={"c": Field("element", centres)},
        ghosts={"element": np.zeros((3, *cells), np.uint8)},
    )
    found = domains_of(write_blueprint(tmp_path / "a", [mesh]))
    assert [domain["state"]["level_id"] for domain in found] == [0, 1, 1]
    for domain in found:
        dims = list(domain["coordsets"]["coords"]["dims"].values())
        assert sorted(dims) == sorted(n - 1 for n in cells)
        nodes = places(domain).reshape(*dims[::-1], 3)
        middle = nodes
        for d in range(len(dims)):
            low, high = [slice(None)] * len(dims), [slice(None)] * len(dims)
            low[d], high[d] = slice(None, -1), slice(1, None)
            middle = (middle[tuple(low)] + middle[tuple(high)]) / 2
        np.testing.assert_allclose(values(domain, "c"), middle.reshape(-1, 3))
        assert "ghosts" in domain["fields"]


def test_the_blocks_of_a_multiblock_are_domains(tmp_path):
    spray = ParticleMesh(coordinates=np.ones((2, 3)), fields={"m": Field("element", np.ones(2))})
    mesh = Multiblock(
        blocks={"a": grid("uniform", "zyx", (2, 3, 4)), "b": grid("rectilinear", "zyx", (3, 3, 3)), "c": spray}
    )
    with h5py.File(write_blueprint(tmp_path / "a", [mesh])) as file:
        types = [file[f"domain_{n:06d}/topologies/mesh/type"][0].decode() for n in range(3)]
        assert types == ["uniform", "rectilinear", "points"]
        assert sorted(file["blueprint_index/mesh/fields"]) == ["e", "m", "p", "q"]


# ---------------------------------------------------------------------------------------------------- as an extract


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", ["vti", "vtr", "vts", "vtu", "vtp"])
def test_extract(tmp_path, size, kind):
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from penstock.analysis import partition, to_vtk
    from penstock.analysis.expressions import Values
    from penstock.analysis.extracts import ExtractWriter
    from penstock.analysis.parts import run
    from penstock.analysis.pipeline import Pipeline
    from vtkmodules.vtkFiltersCore import vtkAppendFilter
    from vtkmodules.vtkFiltersGeometry import vtkGeometryFilter

    one = Pipeline("extracts: {x: {type: blueprint, fields: [q, e]}}").extracts["x"]
    whole = (9, 5, 5)
    cells = partition.boxes([n - 1 for n in whole], size)

    def work(cohort):
        box = cells[cohort.rank].grown(1, [n - 1 for n in whole])
        marks = np.ones(box.shape, np.uint8)
        own = zip(cells[cohort.rank].low, box.low, cells[cohort.rank].high, strict=True)
        marks[tuple(slice(a - b, c - b) for a, b, c in own)] = 0
        name = {"vtr": "rectilinear", "vts": "curvilinear"}.get(kind, "uniform")
        data = to_vtk(grid(name, "zyx", tuple(n + 1 for n in box.shape), box.low, whole, marks=marks))
        if kind in ("vtu", "vtp"):
            data = run(vtkAppendFilter() if kind == "vtu" else vtkGeometryFilter(), data)
        return ExtractWriter(one, tmp_path, cohort).write([data], Values(3, 0.5, 3))

    assert {*on_ranks(size, work)} == {tmp_path / "x-000003.root"}
    found = domains_of(tmp_path / "x-000003.root")
    assert len(found) == size and {name for domain in found for name in domain["fields"]} == {"q", "e"}
    for domain in found:
        np.testing.assert_allclose(values(domain, "q"), places(domain)[:, :3])
        assert domain["state"]["cycle"] == 3 and domain["state"]["time"] == 0.5
    total = sum(sizes(domain)[1] for domain in found)
    assert total == (8 * 4 * 4 if kind != "vtp" else total) and total > 0


def test_an_extract_without_anything_and_with_a_field_that_is_not_there(tmp_path):
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from penstock.analysis import to_vtk
    from penstock.analysis.expressions import Values
    from penstock.analysis.extracts import ExtractWriter
    from penstock.analysis.pipeline import Pipeline

    one = Pipeline("extracts: {x: {type: blueprint, fields: [z]}}").extracts["x"]
    path = ExtractWriter(one, tmp_path).write([], Values(3, 0.5, 3))
    assert sizes(domains_of(path)[0]) == (0, 0)
    with pytest.raises(penstock.NotFound, match="no field 'z'"):
        ExtractWriter(one, tmp_path).write([to_vtk(grid("uniform", "xy", (3, 3)))], Values(4, 0.5, 4))


def test_a_file_that_cannot_be_written(tmp_path):
    import resource

    cloud = ParticleMesh(coordinates=np.zeros((20000, 3)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r"a\.root"):
            write_blueprint(tmp_path / "a", [cloud])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [*tmp_path.iterdir()]
