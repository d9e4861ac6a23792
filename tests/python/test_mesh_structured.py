"""Structured blocks: said in Python, sent by a stream, looked at, compared, analysed."""

import copy
import threading

import numpy as np
import penstock
import pytest
from penstock import mesh
from penstock.cli.main import app
from typer.testing import CliRunner

from .test_mesh import leaves, pytestmark  # noqa: F401


def bent():
    """Two blocks in an L, whose axes are twisted where they touch."""
    seam = mesh.ZoneConnectivity("seam", "right", [[2, 0, 0], [2, 3, 2]], [[3, 0, 0], [0, 2, 0]], [3, -1, 2])
    inlet = mesh.BoundaryCondition("inlet", "inflow", [[0, 0, 0], [0, 3, 2]], 0)
    blocks = [
        ("left", mesh.Structured((2, 3, 2), connectivities=[seam], boundaries=[inlet])),
        ("right", mesh.Structured((3, 2, 4))),
    ]
    model = mesh.Model("bent", 3)
    for number, (name, cells) in enumerate(blocks, 1):
        nodes = mesh.Entity("node_block", name, number, int(np.prod(cells.nodes)))
        nodes.fields = [mesh.Field("coordinates", storage="vector_3d", role="mesh"), mesh.Field("speed")]
        block = mesh.Entity("structured_block", name, number, int(np.prod(cells.cells)), structured=cells)
        block.fields = [mesh.Field("material", "int32", role="attribute"), mesh.Field("pressure")]
        model.entities += [nodes, block]
    return model


def grid(nodes, origin):
    """x, y, z of nodes with i fastest."""
    k, j, i = np.indices(nodes[::-1])
    return np.column_stack([each.ravel() for each in (i, j, k)]) + np.array(origin, float)


def write_bent(name, context, model=None, **options):
    model = model or bent()
    with mesh.create(name, model, context=context, **options) as out:
        for block, origin in (("left", (0, 0, 0)), ("right", (10, 0, 0))):
            its = model.find(("structured_block", block))
            out[("node_block", block), "coordinates"] = grid(its.structured.nodes, origin)
            out[("structured_block", block), "material"] = np.arange(its.count)
        for time in (0.5, 1.5):
            with out.state(time) as state:
                for block in ("left", "right"):
                    cells = model.find(("structured_block", block)).count
                    nodes = model.find(("node_block", block)).count
                    state[("structured_block", block), "pressure"] = np.arange(cells) + time
                    state[("node_block", block), "speed"] = np.arange(nodes) * time


@pytest.fixture
def sent(context):
    """Sends the region again under a name."""
    threads = []

    def send(name, model=None):
        threads.append(threading.Thread(target=write_bent, args=(name, context, model)))
        threads[-1].start()
        return mesh.open(name, context=context, timeout=20)

    yield send
    for each in threads:
        each.join()


def test_a_model_is_read_as_it_was_said(sent):
    with sent("bent") as region:
        assert region.model == bent()
        left = region.model.find(("structured_block", "left")).structured
        assert left.nodes == (3, 4, 3) and left.whole == (2, 3, 2) and left.connectivities[0].transform == (3, -1, 2)
        np.testing.assert_array_equal(region[("node_block", "right"), "coordinates"], grid((4, 3, 5), (10, 0, 0)))
        times = []
        for state in region:
            times.append(state.time)
            np.testing.assert_array_equal(state[("structured_block", "left"), "pressure"], np.arange(12) + state.time)
            np.testing.assert_array_equal(state[("node_block", "right"), "speed"], np.arange(60) * state.time)
        assert times == [0.5, 1.5]


def test_a_copy_keeps_them(sent, context):
    copies = threading.Thread(target=lambda region: mesh.copy(region, "second", context=context), args=(sent("first"),))
    copies.start()
    with sent("other") as a, mesh.open("second", context=context, timeout=20) as b:
        report = mesh.compare(a, b, mesh.Options(records=True))
    copies.join()
    assert report.same and report.states == 2, report.differences


def test_compare_says_what_differs(sent):
    changed = bent()
    changed.find(("structured_block", "left")).structured.boundaries[0].family = "outflow"
    with sent("one") as a, sent("two", changed) as b:
        report = mesh.compare(a, b)
    assert report.total == 1
    text = str(report.differences[0])
    assert "structured_block left" in text and "boundaries is" in text and "outflow" in text


def test_what_has_no_place_for_them_refuses(context, tmp_path, sent):
    for database in ("exodus", "nemesis"):
        with pytest.raises(penstock.Unsupported, match="structured_block 'left'; these have: stream, null"):
            mesh.create(tmp_path / "a.e", bent(), context=context, database=database)
    assert not list(tmp_path.glob("a.e*"))
    with sent("bent") as region:
        with pytest.raises(penstock.Unsupported, match=r"structured_block 'left': .* is not spread"):
            mesh.copy(region, "parts", parts=2, context=context, database="null")
        list(region)
    wrong = copy.deepcopy(bent())
    wrong.find(("structured_block", "right")).count = 25
    with pytest.raises(penstock.InvalidArgument, match="'right': count is 25, and there are 24 cells"):
        mesh.create("wrong", wrong, context=context)


def test_cells_are_elements_of_an_analysis(sent):
    with sent("bent") as region:
        region.next_state()
        found = region.to_mesh()
        assert [(each.name, each.topology, len(each)) for each in found.blocks] == [
            ("left", "hex8", 12),
            ("right", "hex8", 24),
        ]
        for block in found.blocks:
            corners = found.coordinates[block.connectivity]
            # of a cell: along i, j and k by one, counterclockwise from below
            np.testing.assert_array_equal(corners[:, 1] - corners[:, 0], np.tile([1, 0, 0], (len(block), 1)))
            np.testing.assert_array_equal(corners[:, 2] - corners[:, 0], np.tile([1, 1, 0], (len(block), 1)))
            np.testing.assert_array_equal(corners[:, 3] - corners[:, 0], np.tile([0, 1, 0], (len(block), 1)))
            np.testing.assert_array_equal(corners[:, 4:] - corners[:, :4], np.tile([0, 0, 1], (len(block), 4, 1)))
        second = found.coordinates[found.blocks[0].connectivity[1, 0]]
        assert second.tolist() == [1, 0, 0]  # i is fastest
        assert found.fields["pressure"].values.shape == (36,) and found.fields["speed"].values.shape == (96,)
        list(region)


def test_lines_and_quadrilaterals(context):
    model = mesh.Model("flat", 2)
    for name, cells in (("plane", (2, 3, 0)), ("line", (4, 0, 0)), ("none", (0, 0, 0))):
        its = mesh.Structured(cells, cells if cells[0] else (5, 5, 0))
        count = int(np.prod([each for each in cells if each])) if cells[0] else 0
        nodes = mesh.Entity("node_block", name, len(model.entities), int(np.prod(its.nodes)))
        nodes.fields = [mesh.Field("coordinates", storage="vector_2d", role="mesh")]
        model.entities += [
            nodes,
            mesh.Entity("structured_block", name, len(model.entities), count, structured=its),
        ]

    def write():
        with mesh.create("flat", model, context=context) as out:
            for name in ("plane", "line"):
                its = model.find(("structured_block", name)).structured
                out[("node_block", name), "coordinates"] = grid(its.nodes, (0, 0, 0))[:, :2]

    writer = threading.Thread(target=write)
    writer.start()
    with mesh.open("flat", context=context, timeout=20) as region:
        found = region.to_mesh()
        plane, line, none = found.blocks
        assert (plane.topology, len(plane), line.topology, len(line)) == ("quad4", 6, "bar2", 4)
        assert none.topology == "quad4" and len(none) == 0
        np.testing.assert_array_equal(plane.connectivity[0], [0, 1, 4, 3])
        np.testing.assert_array_equal(line.connectivity, [[12, 13], [13, 14], [14, 15], [15, 16]])
        list(region)
    writer.join()


def test_the_command_line_shows_them(sent, context, monkeypatch):
    region = sent("bent")
    monkeypatch.setattr("penstock.cli.mesh._open", lambda *_args, **_keys: region)
    result = CliRunner().invoke(app, ["mesh", "info", "bent"])
    assert result.exit_code == 0, result.output
    assert "left: 2 x 3 x 2 cells" in result.output
    assert "left: connected to right by seam: nodes (2, 0, 0) to (2, 3, 2) are (3, 0, 0) to (0, 2, 0)" in result.output
    assert "axes ijk are +k-i+j" in result.output
    assert "boundary condition inlet (inflow): nodes (0, 0, 0) to (0, 3, 2), least i" in result.output
