"""Mesh regions whose topology changes, in series of files, and gone on with."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import penstock
import pytest
from netcdf_part import needs_netcdf
from penstock import _core, mesh
from penstock.cli.main import app
from typer.testing import CliRunner

TIMEOUT_S = 30


pytestmark = needs_netcdf


def bar(elements):
    """A row of squares, which gets more of them: the model and the values of its fields."""
    nodes = 2 * (elements + 1)
    columns = np.arange(elements + 1, dtype="f8")
    coordinates = np.stack([np.concatenate([columns, columns]), np.repeat([0.0, 1.0], elements + 1)], axis=1)
    first = np.arange(elements)
    quads = np.stack([first, first + 1, first + elements + 2, first + elements + 1], axis=1)
    model = mesh.Model(dimensions=2)
    model.entities.append(mesh.Entity("region", "region", count=1))
    node_fields = [mesh.Field("coordinates", storage="vector_2d", role="mesh"), mesh.Field("ids", "int32", role="mesh")]
    model.entities.append(mesh.Entity("node_block", "nodes", 1, nodes, fields=[*node_fields, mesh.Field("T")]))
    block_fields = [mesh.Field("connectivity", "int32", "[4]", "mesh"), mesh.Field("ids", "int32", role="mesh")]
    model.entities.append(mesh.Entity("element_block", "bar", 1, elements, "quad4", fields=block_fields))
    values = {
        ("nodes", "coordinates"): coordinates,
        ("nodes", "ids"): np.arange(1, nodes + 1),
        ("bar", "connectivity"): quads,
        ("bar", "ids"): np.arange(1, elements + 1),
    }
    return model, values


def write_growing(name, sizes=(2, 2, 5, 3), first_time=0, **options):
    """A state for each size; the topology changes with it."""
    writer = None
    for time, elements in enumerate(sizes, first_time):
        model, values = bar(elements)
        if writer is None:
            writer = mesh.create(name, model, **options)
        elif writer.model.count("element_block") != elements:
            writer.define(model)
        else:
            values = {}
        for key, its in values.items():
            writer[key] = its
        with writer.state(time) as state:
            state["nodes", "T"] = np.arange(2 * (elements + 1)) + 100.0 * time
    writer.close()
    return name


def seen(region):
    return [
        (state.time, state.model_number, region.model.count("element_block"), state["nodes", "T"][-1])
        for state in region
    ]


GROWN = [(0, 0, 2, 5), (1, 0, 2, 105), (2, 1, 5, 211), (3, 2, 3, 307)]


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_a_topology_changes(tmp_path):
    write_growing(tmp_path / "bar.e")
    assert names(tmp_path) == ["bar.e", "bar.e-s0002", "bar.e-s0003"]
    with mesh.open(tmp_path / "bar.e") as region:
        assert region.times == [0, 1, 2, 3]
        assert seen(region) == GROWN
        assert region["bar", "connectivity"].shape == (3, 4)
        region.seek(1)
        assert region.next_state().time == 1 and region.model.count("element_block") == 2
    with mesh.open(tmp_path / "bar.e-s0002") as alone:
        assert alone.times == [2]


def test_each_file_of_the_series_is_an_exodus_file(tmp_path):
    io = pytest.importorskip("vtkmodules.vtkIOExodus", reason="needs VTK (pip install vtk)")
    write_growing(tmp_path / "bar.e")
    for name, cells in (("bar.e", 2), ("bar.e-s0002", 5), ("bar.e-s0003", 3)):
        reader = io.vtkExodusIIReader()
        reader.SetFileName(str(tmp_path / name))
        reader.Update()
        assert reader.GetTotalNumberOfElements() == cells


def test_names_of_files(tmp_path):
    of_region = ["a.e", "a.e-s0002", "a.e-s0002.4.1", "a.e-s12345", "a.e.10.03", "a.e.10.03.writing", "a.e.writing"]
    others = ["a.e-s2", "a.e-s0002x", "a.e.10", "a.e.10.3.1", "a.e.copying", "a.e-sx0002", "a.e-s", "a.e.1.-1", "ba.e"]
    for name in of_region + others:
        (tmp_path / name).touch()
    assert _core.mesh_files_of(str(tmp_path / "a.e")) == [str(tmp_path / each) for each in of_region]
    assert _core.mesh_files_of(str(tmp_path / "no_folder" / "a.e")) == []


@pytest.mark.parametrize("engine", ["direct", "file"])
def test_a_topology_changes_on_a_stream(tmp_path, engine):
    context = penstock.Context(directory=tmp_path / "streams", listen="127.0.0.1")
    os.environ["PENSTOCK_STREAM_BAR"] = f"{engine},folder={tmp_path}/files" if engine == "file" else engine
    try:
        if engine == "file":
            write_growing("bar", context=context, database="stream")
            with mesh.open("bar", context=context, database="stream", timeout=TIMEOUT_S) as region:
                assert seen(region) == GROWN
            return
        thread = threading.Thread(
            target=write_growing, args=("bar",), kwargs={"context": context, "database": "stream"}
        )
        thread.start()
        with mesh.open("bar", context=context, database="stream", timeout=TIMEOUT_S) as region:
            assert seen(region) == GROWN
        thread.join(TIMEOUT_S)
    finally:
        del os.environ["PENSTOCK_STREAM_BAR"]


def command(*words):
    """The exit code, and what was printed as one line."""
    done = CliRunner().invoke(app, ["mesh", *map(str, words)])
    return done.exit_code, " ".join(done.output.split())


def test_copies_follow(tmp_path):
    source = write_growing(tmp_path / "bar.e")
    for arguments in (
        [str(source), str(tmp_path / "copy.e")],
        [str(source), str(tmp_path / "parts.e"), "--parts", "2"],
        [str(source), str(tmp_path / "single.e"), "--states-per-file", "1", "--format", "netcdf4"],
        [str(source), str(tmp_path / "block.e"), "--block", "bar"],
    ):
        assert command("copy", *arguments, "--quiet") == (0, "")
        assert command("compare", source, arguments[1])[0] == 0
        assert not [name for name in names(tmp_path) if "copying" in name or "writing" in name]
    assert "parts.e-s0003.2.1" in names(tmp_path)
    assert [name for name in names(tmp_path) if name.startswith("single.e")] == [
        "single.e", "single.e-s0002", "single.e-s0003", "single.e-s0004",
    ]  # fmt: skip
    code, said = command("copy", source, tmp_path / "copy.e")
    assert code == 2 and "copy.e is there already" in said
    assert command("copy", source, tmp_path / "copy.e", "--states", "0:2", "--force", "-q")[0] == 0
    assert [name for name in names(tmp_path) if name.startswith("copy.e")] == ["copy.e"]


def test_a_change_that_one_lacks_is_found(tmp_path):
    write_growing(tmp_path / "a.e")
    write_growing(tmp_path / "b.e", (2, 2, 2, 3))
    for one, two, words in (("a.e", "b.e", "the first only"), ("b.e", "a.e", "the second only")):
        code, said = command("compare", tmp_path / one, tmp_path / two)
        assert code == 1 and f"state 2: the topology changes in {words}" in said


def test_a_region_is_gone_on_with(tmp_path):
    path = tmp_path / "bar.e"
    write_growing(path, (2, 2))
    write_growing(path, (2, 5), 2, resume="append")
    write_growing(path, (5,), 4, resume="append")
    with mesh.open(path) as region:
        assert [each[:3] for each in seen(region)] == [(0, 0, 2), (1, 0, 2), (2, 0, 2), (3, 1, 5), (4, 1, 5)]
    write_growing(path, (5,), 4, resume=3.5)  # a restart from time 3
    with mesh.open(path) as region:
        assert region.times == [0, 1, 2, 3, 4]
    with pytest.raises(
        penstock.InvalidArgument, match="node_block 'nodes' has id 1 and 12 members there, and 1 and 16"
    ):
        write_growing(path, (7,), resume="append")
    with pytest.raises(penstock.InvalidArgument, match="time 4 is not after the last state that is there, of time 4"):
        write_growing(path, (5,), 4, resume="append")
    with pytest.raises(penstock.InvalidArgument, match="resume"):
        write_growing(path, (5,), resume="later")
    with mesh.open(path) as region:
        assert region.times == [0, 1, 2, 3, 4]


WRITER = """
import sys
from test_mesh_series import bar
from penstock import mesh
import numpy as np
model, values = bar(3)
writer = mesh.create(sys.argv[1], model, format="netcdf4", states_per_file=1)
for key, its in values.items():
    writer[key] = its
for time in range(1_000_000):
    with writer.state(time) as state:
        state["nodes", "T"] = np.full(8, float(time))
    print(time, flush=True)
"""


def test_netcdf4_states_in_files_of_their_own_survive_their_writer(tmp_path):
    path = tmp_path / "bar.e"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        for _ in range(5):
            ended = int(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)
    with mesh.open(path) as region:
        states = [(state.time, state["nodes", "T"].tolist()) for state in region]
    assert len(states) > ended
    assert states == [(time, [time] * 8) for time in range(len(states))]
