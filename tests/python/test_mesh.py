"""Mesh regions: files, parts, streams, copies and comparisons, also with VTK's own readers."""

import re
import threading
from dataclasses import replace

import numpy as np
import penstock
import pytest
from netcdf_part import needs_netcdf
from penstock import mesh

pytestmark = needs_netcdf

GENERATED = "4x3x6|times:3|nodal:2|element:2|global:1|nodeset:xZ|sideset:Xz"


def generated(text=GENERATED):
    return mesh.open(text, database="generated")


def written(path, text=GENERATED, **options):
    with generated(text) as source:
        mesh.copy(source, path, **options)
    return path


def same(a, b, **options):
    with mesh.open(a) if not isinstance(a, mesh.Region) else a as one, mesh.open(b) as two:
        return mesh.compare(one, two, mesh.Options(**options))


def test_a_region_is_read(tmp_path):
    with mesh.open(written(tmp_path / "a.e")) as region:
        assert region.times == [0, 1, 2]
        nodes = region["nodeblock_1", "coordinates"]
        assert nodes.shape == (5 * 4 * 7, 3) and nodes.max(axis=0).tolist() == [4, 3, 6]
        hexes = region["block_1", "connectivity"]
        assert hexes.shape == (72, 8) and hexes.min() == 0 and hexes.max() == len(nodes) - 1
        with pytest.raises(penstock.WrongState, match="'nodal0' has values in states"):
            region["nodeblock_1", "nodal0"]
        seen = []
        for state in region:
            values = state["nodeblock_1", "nodal0"]
            np.testing.assert_array_equal(values, nodes[:, 0] + 0.5 * nodes[:, 1] - 0.25 * nodes[:, 2] + state.time * 3)
            seen.append(state)
        assert [(each.number, each.time) for each in seen] == [(0, 0), (1, 1), (2, 2)]
        with pytest.raises(penstock.WrongState, match="gone on"):
            seen[0]["nodeblock_1", "nodal0"]
        region.seek(1)
        assert region.next_state().time == 1
        assert region.read("nodeblock_1", "nodal1", first=3, count=2).shape == (2,)


def test_what_is_wrong_is_said(tmp_path):
    path = written(tmp_path / "a.e")
    with mesh.open(path) as region:
        for key, words in (
            (("blok", "ids"), "no entity 'blok'; there are: region, nodeblock_1"),
            (("block_1", "idz"), "element_block 'block_1' has no field 'idz'; there are: connectivity, ids"),
        ):
            with pytest.raises(penstock.NotFound, match=words):
                region[key]
        with pytest.raises(penstock.InvalidArgument, match="there are 72 rows"):
            region.read("block_1", "ids", first=70, count=3)
        with pytest.raises(penstock.NotFound, match="no state 3"):
            region.seek(3)
        model = region.model
    with pytest.raises(penstock.NotFound, match="no such file"):
        mesh.open(tmp_path / "absent.e")
    with pytest.raises(penstock.InvalidArgument, match="did you mean 'exodus'"):
        mesh.open(path, database="exodos")
    with pytest.raises(penstock.UnknownOption, match="did you mean 'format'"):
        mesh.create(tmp_path / "b.e", model, fromat="cdf5")
    with mesh.create(tmp_path / "b.e", model) as out:
        with pytest.raises(penstock.InvalidArgument, match=r"has the shape \(3,\), and takes \(140, 3\)"):
            out["nodeblock_1", "coordinates"] = np.zeros(3)
        with pytest.raises(penstock.InvalidArgument, match="float64 does not become int64"):
            out["block_1", "ids"] = np.zeros(72)
        with pytest.raises(penstock.WrongState, match="no values of field 'coordinates'"), out.state(0):
            pass
        out.abandon()


@pytest.mark.parametrize("format", ["offset64", "cdf5", "netcdf4", "netcdf4_classic"])
def test_formats(tmp_path, format):
    integers = 32 if format in ("offset64", "netcdf4_classic") else 64
    path = written(tmp_path / "a.e", choice=mesh.Choice(integers=integers), format=format)
    assert same(generated(), path, records=True).same


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_are_joined(tmp_path, parts):
    written(tmp_path / "a.e", parts=parts, database="exodus")
    assert len(list(tmp_path.glob(f"a.e.{parts}.*"))) == parts
    report = same(generated(), tmp_path / "a.e")
    assert report.same and report.states == 3, report.differences
    with mesh.open(tmp_path / "a.e", part=1) as part:
        assert part.model.count("element_block") in (72 // parts, 72 // parts + 1)
        shared = part[("comm_set", "commset_node"), "entity_processor"]
        assert set(shared[:, 1]) <= set(range(parts)) - {1}
    mesh.copy(mesh.open(tmp_path / "a.e"), tmp_path / "one.e")
    assert same(generated(), tmp_path / "one.e").same


def test_shares(tmp_path):
    path = written(tmp_path / "a.e", parts=4, database="exodus")
    seen = []
    for index in range(3):
        with mesh.open(path, share=(index, 3)) as region:
            seen.extend(region["block_1", "ids"])
            assert region["block_1", "connectivity"].max() == region.model.count("node_block") - 1
    assert seen == list(range(1, 73))


def vtk_reader(kind, path):
    module = pytest.importorskip(
        "vtkmodules.vtkIOExodus" if kind == "exodus" else "vtkmodules.vtkIOIOSS", reason="needs VTK (pip install vtk)"
    )
    reader = module.vtkExodusIIReader() if kind == "exodus" else module.vtkIOSSReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    if kind == "exodus":
        for group in (module.vtkExodusIIReader.NODAL, module.vtkExodusIIReader.ELEM_BLOCK):
            reader.SetAllArrayStatus(group, 1)
    else:
        reader.GetNodeBlockFieldSelection().EnableAllArrays()
        reader.GetElementBlockFieldSelection().EnableAllArrays()
    reader.UpdateTimeStep(2.0)
    return reader.GetOutputDataObject(0)


def leaves(data):
    if data is None:
        return []
    if hasattr(data, "GetNumberOfPartitionedDataSets"):
        parts = [data.GetPartitionedDataSet(i) for i in range(data.GetNumberOfPartitionedDataSets())]
        return [
            leaf for part in parts for i in range(part.GetNumberOfPartitions()) for leaf in leaves(part.GetPartition(i))
        ]
    if hasattr(data, "GetNumberOfBlocks"):
        return [leaf for i in range(data.GetNumberOfBlocks()) for leaf in leaves(data.GetBlock(i))]
    return [data] if data.GetNumberOfCells() else []


@pytest.mark.parametrize("kind", ["exodus", "ioss"])
@pytest.mark.parametrize("format", ["offset64", "cdf5", "netcdf4"])
def test_vtk_reads_the_same(tmp_path, kind, format):
    from vtkmodules.util.numpy_support import vtk_to_numpy

    path = written(tmp_path / "a.e", choice=mesh.Choice(integers=32), format=format)
    grids = [leaf for leaf in leaves(vtk_reader(kind, path)) if leaf.GetNumberOfCells() == 72]
    assert grids
    grid = grids[0]
    with mesh.open(path) as region:
        region.seek(2)
        state = region.next_state()
        theirs = vtk_to_numpy(grid.GetCells().GetConnectivityArray()).reshape(-1, 8)  # readers number nodes anew
        ours = region["block_1", "connectivity"]
        points = vtk_to_numpy(grid.GetPoints().GetData())
        np.testing.assert_array_equal(points[theirs], region["nodeblock_1", "coordinates"][ours])
        for name in ("nodal0", "nodal1"):
            values = vtk_to_numpy(grid.GetPointData().GetArray(name))
            np.testing.assert_array_equal(values[theirs], state["nodeblock_1", name][ours])
        for name in ("element0", "element1"):
            np.testing.assert_array_equal(vtk_to_numpy(grid.GetCellData().GetArray(name)), state["block_1", name])


def test_a_region_becomes_a_vtk_grid(tmp_path):
    pytest.importorskip("vtkmodules.vtkCommonDataModel", reason="needs VTK (pip install vtk)")
    with generated() as region:
        region.next_state()
        grid = region.to_vtk(["nodal0", "element1"])
        assert (grid.GetNumberOfPoints(), grid.GetNumberOfCells()) == (140, 72)
        assert (
            grid.GetPointData().GetArray("nodal0") is not None and grid.GetCellData().GetArray("element1") is not None
        )


@pytest.mark.parametrize("parts", [1, 3])
def test_a_stream_is_a_region(tmp_path, parts, context):
    def write():
        mesh.copy(generated(), "results", parts=parts, database="stream", context=context)

    thread = threading.Thread(target=write)
    thread.start()
    with mesh.open("results", context=context) as region:
        assert region.parts == 1
        report = mesh.compare(region, generated())
        with pytest.raises(penstock.Unsupported, match="read in order"):
            _ = region.times
    thread.join()
    assert report.same and report.states == 3, report.differences


def changed(tmp_path, change, text=GENERATED):
    """Two files, the second with one thing changed: change(model, arrays by (type, entity, field, state))."""
    with generated(text) as region:
        model = region.model
        arrays = {}
        for entity in model.entities:
            for its in entity.fields:
                if not its.in_state:
                    arrays[entity.type, entity.name, its.name, None] = region.read((entity.type, entity.name), its.name)
        times = list(region.times)
        for state in region:
            for entity in model.entities:
                for its in entity.fields:
                    if its.in_state:
                        arrays[entity.type, entity.name, its.name, state.number] = state[
                            (entity.type, entity.name), its.name
                        ]
    first = tmp_path / "first.e"
    _write(first, model, arrays, times)
    model = mesh.Model.from_text(model.to_text())
    change(model, arrays, times)
    second = tmp_path / "second.e"
    _write(second, model, arrays, times)
    return first, second


def _write(path, model, arrays, times):
    with mesh.create(path, model) as out:
        for entity in model.entities:
            for its in entity.fields:
                if not its.in_state:
                    out.write((entity.type, entity.name), its.name, arrays[entity.type, entity.name, its.name, None])
        for number, time in enumerate(times):
            with out.state(time) as state:
                for entity in model.entities:
                    for its in entity.fields:
                        if its.in_state:
                            state[(entity.type, entity.name), its.name] = arrays[
                                entity.type, entity.name, its.name, number
                            ]


NODAL = ("node_block", "nodeblock_1", "nodal0")


def _value(model, arrays, times):
    arrays[*NODAL, 1][7] += 0.5


def _nan(model, arrays, times):
    arrays[*NODAL, 1][7] = np.nan


def _both_nan(model, arrays, times):
    arrays[*NODAL, 1][7] = np.nan


def _time(model, arrays, times):
    times[2] = 2.5


def _fewer_states(model, arrays, times):
    times.pop()


def _no_field(model, arrays, times):
    fields = model.find("nodeblock_1").fields
    fields.remove(model.find("nodeblock_1").find("nodal1"))


def _no_set(model, arrays, times):
    model.entities.remove(model.find("surface_2"))


def _topology(model, arrays, times):
    model.find("block_1").topology = "hex9x"


def _member(model, arrays, times):
    arrays["node_set", "nodelist_1", "members", None][0] = 3


def _side(model, arrays, times):
    arrays["side_set", "surface_1", "element_side", None][4, 1] = 5


def _connectivity(model, arrays, times):
    arrays["element_block", "block_1", "connectivity", None][5, 6] = 0


def _coordinate(model, arrays, times):
    arrays["node_block", "nodeblock_1", "coordinates", None][11, 2] += 1e-3


def _id(model, arrays, times):
    arrays["element_block", "block_1", "ids", None][3] = 1000


def _name(model, arrays, times):
    model.find("block_1").name = "other"
    arrays.update({(key[0], "other", *key[2:]): array for key, array in arrays.items() if key[1] == "block_1"})


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("change", "total", "words"),
    [
        (_value, 1, r"state 1: node_block nodeblock_1, nodal0: 1 of 140 values differ; at \[7\]"),
        (_nan, 1, r"state 1: node_block nodeblock_1, nodal0: 1 of 140 values differ; at \[7\]: .*nan"),
        (_time, 1, r"state 2: the time is 2\.[05] and 2\.[05]"),
        (_fewer_states, 1, "has more than 2 states"),
        (_no_field, 1, "nodal1: only the (first|second) has it"),
        (_no_set, 1, "side_set surface_2: only the (first|second) has it"),
        (_topology, 1, "topology is"),
        (_member, 1, "node_set nodelist_1, members: .* of 28 values differ"),
        (_side, 1, r"side_set surface_1, element_side: 1 of .* values differ; at \[4, 1\]"),
        (_connectivity, 1, r"element_block block_1, connectivity: 1 of 576 values differ; at \[5, 6\]"),
        (_coordinate, 1, r"coordinates: 1 of 420 values differ; at \[11, 2\]"),
        (_id, 2, r"the ids are not the same ones"),
        (_name, 2, "element_block (block_1|other): only the (first|second) has it"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_planted_differences_are_found(tmp_path, change, total, words, backwards):
    first, second = changed(tmp_path, change)
    if backwards:
        first, second = second, first
    report = same(first, second)
    assert report.total == total, report.differences
    assert any(re.search(words, str(each)) for each in report.differences), report.differences


def test_nothing_is_invented(tmp_path):
    first, second = changed(tmp_path, lambda *_: None)
    assert same(first, second, records=True).same
    assert same(first, written(tmp_path / "wide.e", choice=mesh.Choice(integers=32))).same  # 32 against 64 bits

    def shuffled(model, arrays, times):
        """Nodes and elements in another order, with the ids that they had."""
        random = np.random.default_rng(3)
        nodes, elements = random.permutation(140), random.permutation(72)
        to_node, to_element = np.argsort(nodes), np.argsort(elements)
        for key in list(arrays):
            kind, _, name, _ = key
            array = arrays[key]
            if kind == "node_block":
                arrays[key] = array[nodes]
            elif kind == "element_block":
                arrays[key] = (to_node[array] if name == "connectivity" else array)[elements]
            elif name == "members":
                arrays[key] = to_node[array][::-1]
            elif name == "element_side":
                arrays[key] = np.column_stack([to_element[array[:, 0]], array[:, 1]])[::-1]

    first, second = changed(tmp_path, shuffled)
    report = same(first, second)
    assert report.same, report.differences
    assert not same(first, second, ids=False).same
    first, second = changed(tmp_path, _both_nan)
    assert same(second, second).same

    def ordered(order):
        def change(model, arrays, times):
            model.find("block_1").fields.append(mesh.Field("elem_map", "int64", role="map"))
            arrays["element_block", "block_1", "elem_map", None] = order

        return change

    assert same(*changed(tmp_path, ordered(np.arange(72) + 1))).same
    assert same(*changed(tmp_path, ordered(np.arange(72)[::-1] + 1))).total == 1


def test_tolerances(tmp_path):
    first, second = changed(tmp_path, _value)
    T = mesh.Tolerance
    assert same(first, second, tolerance=T(absolute=0.5)).same
    assert not same(first, second, tolerance=T(absolute=0.49)).same
    assert same(first, second, tolerance=T(relative=1.0)).same
    assert same(first, second, by_field={"nodal0": T(ignore=True)}).same
    assert not same(first, second, by_field={"nodal1": T(ignore=True)}).same
    a = np.array([1.0, 1e-12, -1.0, np.inf, 0.0])
    b = np.array([np.nextafter(1.0, 2), 0.0, np.nextafter(-1.0, -2), np.inf, -0.0])
    assert T(ulps=1).same(a, b).tolist() == [True, False, True, True, True]
    assert T(floor=1e-9).same(a, b).tolist() == [False, True, False, True, True]
    assert T().same(np.float64(np.inf), np.float64(-np.inf)) == np.False_
    assert T(absolute=np.inf).same(np.float64(np.nan), np.float64(1)) == np.False_
    with pytest.raises(penstock.InvalidArgument, match="unknown tolerance 'relativ'"):
        T.of({"relativ": 1})


def test_a_report_is_bounded(tmp_path):
    def all_states(model, arrays, times):
        for key in arrays:
            if key[-1] is not None:
                arrays[key] = arrays[key] + 1

    first, second = changed(tmp_path, all_states)
    report = same(first, second, limit=4)
    assert len(report.differences) == 4 and report.total == 3 * 5


def test_choices(tmp_path):
    path = written(tmp_path / "a.e", choice=mesh.Choice(states=[0, 2], fields=["nodal1"], sets=False, reals=32))
    with mesh.open(path) as region:
        assert region.times == [0, 2]
        assert [each.type for each in region.model.entities] == ["region", "node_block", "element_block"]
        assert [its.name for its in region.model.find("nodeblock_1").fields] == ["coordinates", "ids", "nodal1"]
        assert region["nodeblock_1", "coordinates"].dtype == np.float32
    with pytest.raises(penstock.NotFound, match="no element block 'block_2'"):
        written(tmp_path / "b.e", choice=mesh.Choice(blocks=["block_2"]))


def test_models_cross_the_border():
    with generated() as region:
        model = region.model
    model.properties = {"a": 1, "b": 0.1, "c": "text", "d": [1, 2], "e": [0.5, float("inf")]}
    assert mesh.Model.from_text(model.to_text()) == model
    with pytest.raises(penstock.InvalidArgument, match="a number, a text or a list"):
        replace(model, properties={"a": None}).to_text()


def penstock_mesh(*words, code=0):
    from penstock.cli.main import app
    from typer.testing import CliRunner

    done = CliRunner().invoke(app, ["mesh", *map(str, words)])
    assert done.exit_code == code, done.output + str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


def test_a_copy_never_loses_what_it_reads_or_replaces(tmp_path, monkeypatch):
    path = written(tmp_path / "a.e")
    before = path.read_bytes()
    (tmp_path / "hard.e").hardlink_to(path)
    (tmp_path / "soft.e").symlink_to(path)
    for to in ("a.e", "hard.e", "soft.e"):
        penstock_mesh("copy", path, tmp_path / to, "--force", code=2)
    penstock_mesh("copy", path, tmp_path / "p.e", "--parts", 3)
    parts = {each: each.read_bytes() for each in tmp_path.glob("p.e.3.*")}
    assert len(parts) == 3
    penstock_mesh("copy", tmp_path / "p.e", tmp_path / "p.e.3.1", "--force", code=2)
    penstock_mesh("copy", tmp_path / "p.e.3.1", tmp_path / "p.e", "--parts", 3, "--force", code=2)
    assert all(each.read_bytes() == content for each, content in parts.items())
    # A copy that fails leaves what stood there.
    written(tmp_path / "old.e", "2x2x2")
    old = (tmp_path / "old.e").read_bytes()
    penstock_mesh("copy", path, tmp_path / "old.e", "--force", "--field", "absent", code=1)
    penstock_mesh("copy", path, tmp_path / "old.e", "--force", "--states", "9:", code=2)
    penstock_mesh("copy", path, tmp_path / "old.e", "--force", "--states", "0:2:0", code=2)
    penstock_mesh("copy", path, tmp_path / "old.e", "--force", "--format", "offset64", code=1)  # it has 64-bit integers
    assert (tmp_path / "old.e").read_bytes() == old and path.read_bytes() == before
    (tmp_path / "folder.e").mkdir()
    penstock_mesh("copy", path, tmp_path / "folder.e", "--force", code=2)
    penstock_mesh("copy", path, tmp_path / "old.e", "--force")
    assert same(path, tmp_path / "old.e").same
    assert not list(tmp_path.glob("*copying*"))


def test_commands_say_what_they_did(tmp_path):
    path = written(tmp_path / "a.e")
    assert "states: 3, times 0 to 2" in penstock_mesh("info", path)
    assert "1 states" in penstock_mesh("copy", path, tmp_path / "b.e", "--states", "-1", "--no-sets")
    assert "the first has more than 1 states" in penstock_mesh("compare", path, tmp_path / "b.e", code=1)
    (tmp_path / "t.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot read" in penstock_mesh("compare", path, path, "--tolerances", tmp_path / "t.yaml", code=2)
    assert "there is no part 3" in penstock_mesh("info", path, "--part", 3, code=1)


# What a part is spread into is what it is, whatever spread it before.
def test_a_part_is_spread_again(tmp_path):
    def shuffled(model, arrays, times):
        arrays["element_block", "block_1", "ids", None] = arrays["element_block", "block_1", "ids", None][::-1].copy()

    _, path = changed(tmp_path, shuffled)
    mesh.copy(mesh.open(path), tmp_path / "parts.e", parts=3, database="nemesis")
    mesh.copy(mesh.open(tmp_path / "parts.e.3.1"), tmp_path / "again.e", parts=2, database="nemesis")
    with mesh.open(tmp_path / "parts.e.3.1") as one, mesh.open(tmp_path / "again.e") as two:
        assert one.model.count("element_block") == two.model.count("element_block") == 24
        np.testing.assert_array_equal(one["block_1", "ids"], two["block_1", "ids"])


def test_a_join_keeps_the_width_of_integers(tmp_path):
    path = written(tmp_path / "a.e", choice=mesh.Choice(integers=32))
    mesh.copy(mesh.open(path), tmp_path / "parts.e", parts=3, database="nemesis")
    mesh.copy(mesh.open(tmp_path / "parts.e"), tmp_path / "joined.e")
    with mesh.open(path) as a, mesh.open(tmp_path / "joined.e") as b:
        assert a.model == b.model
    assert path.stat().st_size == (tmp_path / "joined.e").stat().st_size
