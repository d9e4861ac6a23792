"""Regions in files that are changed: each kind of change, in all files, and what an error or a crash leaves."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import penstock
import pytest
from mesh_models import everything, write
from netcdf_part import needs_netcdf
from penstock import mesh
from penstock.cli.main import app
from penstock.mesh.replacement import Replacement
from typer.testing import CliRunner

from .test_mesh_series import GROWN, seen, write_growing

TIMEOUT_S = 60

pytestmark = needs_netcdf


def contents(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.fixture(params=["offset64", "cdf5", "netcdf4"])
def path(request, tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    write(tmp_path / "whole.e", *everything())
    narrow = mesh.Choice(integers=32 if request.param == "offset64" else 0)
    with mesh.open(tmp_path / "whole.e") as whole:
        mesh.copy(whole, folder / "a.e", choice=narrow, format=request.param)
    return folder / "a.e"


def magic(path):
    return path.read_bytes()[:4]


def fields_of(region):
    """Values by (type, entity, field, state)."""
    values = {}
    states = [None, *region] if region.times else [None]
    region.seek(0)
    for number in range(len(states)):
        state = region.next_state() if number > 0 else None
        for entity in region.model.entities:
            for its in entity.fields:
                if its.in_state == (state is not None):
                    key = (entity.type, entity.name)
                    values[(*key, its.name, state and state.number)] = region.read(key, its.name, role=its.role)
    return values


def change_all(edit):
    model = edit.model
    model.title = "changed"
    model.information.append("third")
    model.qa.append(["modify", "2", "2026/11/28", "06:00:00"])
    model.properties["seed"] = 8
    model.find("lower").name = "under"
    model.find("under").id = 77
    model.find("under").properties["material"] = 9
    model.find("bottom").name = "floor"
    model.find("nodeblock_1").find("pressure").name = "p"
    model.entities.append(mesh.Entity("assembly", "pair", 1002, 2, members=["under", "polyhedra"]))
    members = mesh.Field("members", model.find("floor").find("members").dtype, role="mesh")
    model.entities.append(mesh.Entity("node_set", "corner", 101, 2, fields=[members]))
    model.entities.append(mesh.Entity("element_set", "ends", 401, 2, fields=[members]))
    edit["corner", "members"] = [3, 1]
    edit["ends", "members"] = [0, 12]
    upper = model.find("upper")
    upper.fields += [mesh.Field("width", role="attribute"), mesh.Field("square")]
    model.find("under").fields.append(mesh.Field("most", role="reduction"))
    edit["upper", "width"] = np.arange(4) / 2
    edit["upper", "square"] = lambda state: state["upper", "pressure"] ** 2
    edit["under", "most"] = lambda state: state["lower", "pressure"].max()
    for name in ("under", "upper", "polyhedra"):
        block = model.find(name)
        block.fields.append(mesh.Field("colour", members.dtype, role="map"))
        edit[name, "colour"] = np.arange(block.count) + 10


NEW_NAMES = {"lower": "under", "bottom": "floor"}


def test_each_kind_of_change(path):
    kind = magic(path)
    with mesh.open(path) as region:
        old, before = region.model, fields_of(region)
    mesh.modify(path, change_all)
    assert list(contents(path.parent)) == ["a.e"] and magic(path) == kind
    with mesh.open(path) as region:
        model, after = region.model, fields_of(region)
    for (type, name, field, state), values in before.items():
        now = "p" if (name, field) == ("nodeblock_1", "pressure") else field
        np.testing.assert_array_equal(after.pop((type, NEW_NAMES.get(name, name), now, state)), values)
    assert after.pop(("node_set", "corner", "members", None)).tolist() == [3, 1]
    assert after.pop(("element_set", "ends", "members", None)).tolist() == [0, 12]
    assert after.pop(("element_block", "upper", "width", None)).tolist() == [0, 0.5, 1, 1.5]
    for name, count in (("under", 8), ("upper", 4), ("polyhedra", 1)):
        assert after.pop(("element_block", name, "colour", None)).tolist() == list(range(10, 10 + count))
    for state in range(3):
        pressure = before["element_block", "upper", "pressure", state]
        np.testing.assert_array_equal(after.pop(("element_block", "upper", "square", state)), pressure**2)
        most = after.pop(("element_block", "under", "most", state))
        assert most == [before["element_block", "lower", "pressure", state].max()]
    assert not after
    assert (model.title, model.information, len(model.qa)) == ("changed", [*old.information, "third"], 2)
    assert model.properties == old.properties | {"seed": 8}
    assert model.find("under").id == 77
    assert model.find("under").properties == old.find("lower").properties | {"material": 9}
    assert model.find("solids").members == ["under", "upper"] and model.find("pair").members == ["under", "polyhedra"]
    kept = [each for each in old.entities if each.name not in ("lower", "bottom", "solids", "upper")]
    for each in kept:
        now = model.find((each.type, each.name))
        assert (now.id, now.count, now.topology) == (each.id, each.count, each.topology)
        assert now.properties == each.properties


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda edit: edit.model.find("nobody"), penstock.NotFound, "no entity 'nobody'"),
        (lambda edit: setattr(edit.model.find("lower"), "name", "upper"), penstock.InvalidArgument, "used twice"),
        (lambda edit: setattr(edit.model.find("lower"), "id", 20), penstock.InvalidArgument, "another one has id 20"),
        (
            lambda edit: edit.model.find("upper").fields.append(mesh.Field("new")),
            penstock.InvalidArgument,
            "element_block 'upper': field 'new' is new, and no values are given",
        ),
        (
            lambda edit: edit.__setitem__(("upper", "pressure"), lambda state: np.zeros(3 + state.number // 2)),
            penstock.InvalidArgument,
            r"upper, pressure: the array has the shape \(3,\), and takes \(4,\)",
        ),
        (lambda edit: edit.__setitem__(("upper", "absent"), 0), penstock.NotFound, "no field 'absent'"),
        (
            lambda edit: edit.__setitem__(("upper", "pressure"), lambda state: np.full(4, 1 / (1 - state.number))),
            ZeroDivisionError,
            "division",
        ),
        (
            lambda edit: edit.model.find("solids").members.append("nobody"),
            penstock.InvalidArgument,
            "nobody",
        ),
    ],
)
def test_an_error_leaves_the_file(path, change, error, words):
    before = contents(path.parent)
    with pytest.raises(error, match=words):
        mesh.modify(path, change)
    assert contents(path.parent) == before


def rename(edit):
    edit.model.find("block_1").name = "solid"


def test_parts_are_changed(tmp_path):
    path = tmp_path / "a.e"
    for options in ({}, {"states_per_file": 1}, {"format": "netcdf4", "compression": 3}):
        with mesh.open("4x3x6|times:3|nodal:1|element:1|nodeset:xZ", database="generated") as source:
            mesh.copy(source, path, parts=3, database="exodus", **options)
        with mesh.open(path) as region:
            before = fields_of(region)
        names = sorted(contents(tmp_path))
        mesh.modify(path, rename)
        assert sorted(contents(tmp_path)) == names
        with mesh.open(path) as region:
            after = fields_of(region)
        for (type, name, field, state), values in before.items():
            new = "solid" if name == "block_1" else name
            np.testing.assert_array_equal(after.pop((type, new, field, state)), values)
        assert not after
        for each in tmp_path.iterdir():
            each.unlink()


@pytest.mark.parametrize("options", [{}, {"states_per_file": 2}, {"format": "netcdf4", "states_per_file": 1}], ids=str)
def test_a_series_is_changed(tmp_path, options):
    path = write_growing(tmp_path / "bar.e", **options)
    names = sorted(contents(tmp_path))

    def warm(edit):
        edit.model.find("bar").name = "warm"
        edit.model.find("nodes").fields.append(mesh.Field("double"))
        edit["nodes", "double"] = lambda state: 2 * state["nodes", "T"]

    mesh.modify(path, warm)
    assert sorted(contents(tmp_path)) == names
    with mesh.open(path) as region:
        for state in region:
            np.testing.assert_array_equal(state["nodes", "double"], 2 * state["nodes", "T"])
            assert region.model.count("element_block") == region.model.find("warm").count
    with mesh.open(path) as region:
        assert seen(region) == GROWN


@pytest.mark.parametrize("format", ["offset64", "cdf5", "netcdf4"])
def test_variables_of_others_stay(tmp_path, format):
    path = tmp_path / "a.e"
    with mesh.open("2x2x2|times:2", database="generated") as source:
        mesh.copy(source, tmp_path / "plain.e")

    def add(edit):
        region = edit.model.find("region")
        for name, role in (("netcdf/probe", "transient"), ("netcdf/probes", "mesh")):
            region.fields.append(mesh.Field(name, "float32", role=role, count=3))
        region.properties |= {"netcdf/probe": "float32/time_step/x=3", "netcdf/probe/units": "K"}
        region.properties["netcdf/probes"] = "float32/x=3"
        edit["region", "netcdf/probes"] = np.arange(3, dtype="f4")
        edit["region", "netcdf/probe"] = lambda state: np.arange(3, dtype="f4") + state.number

    with mesh.open(tmp_path / "plain.e") as region:
        narrow = mesh.Choice(integers=32)
        mesh.copy(region, path, choice=narrow, format=format)
    mesh.modify(path, add)
    mesh.modify(path, rename)
    kept = path.read_bytes()
    assert b"probe" in kept and b"units" in kept and b"netcdf/" not in kept  # variables, as they were
    with mesh.open(path) as region:
        assert region.model.find("solid").count == 8
        assert region["region", "netcdf/probes"].tolist() == [0, 1, 2]
        assert [state["region", "netcdf/probe"].tolist() for state in region] == [[0, 1, 2], [1, 2, 3]]
        assert region.model.find("region").properties["netcdf/probe/units"] == "K"


MODIFIER = """
import sys
from penstock import mesh

def change(edit):
    edit.model.find("block_1").name = "solid"

def pause(number, time):
    print(number, flush=True)
    sys.stdin.readline()

mesh.modify(sys.argv[1], change, progress=pause)
"""


@pytest.mark.parametrize(("parts", "options"), [(1, {}), (1, {"states_per_file": 1}), (2, {"format": "cdf5"})], ids=str)
def test_a_modifier_that_is_killed_leaves_the_files(tmp_path, parts, options):
    path = tmp_path / "a.e"
    with mesh.open("4x3x2|times:3|nodal:1", database="generated") as source:
        mesh.copy(source, path, parts=parts, database="exodus", **options)
    before = contents(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", MODIFIER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout.readline() == "0\n"
        for _ in range(2):
            with pytest.raises(penstock.WrongState, match=f"is being written by process {process.pid}"):
                mesh.modify(path, rename)
        model = mesh.open(path, part=0).model
        for resume in ("no", "append"):
            with pytest.raises(penstock.WrongState, match=f"is being written by process {process.pid}"):
                mesh.create(path, model, resume=resume)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)
    assert {name: its for name, its in contents(tmp_path).items() if "copying" not in name} == before
    mesh.modify(path, rename)
    assert sorted(contents(tmp_path)) == sorted(before)
    with mesh.open(path) as region:
        assert region.model.find("solid").count == 24 and len(region.times) == 3


def test_streams_are_refused(tmp_path):
    for name in ("plate", "3x3x3|times:2"):
        with pytest.raises(penstock.Unsupported, match="is modified in files only"):
            mesh.modify(name, rename)
    with pytest.raises(penstock.NotFound, match="no such file"):
        mesh.modify(tmp_path / "absent.e", rename)
    assert contents(tmp_path) == {}


def command(*words):
    """The exit code, and what was printed as one line."""
    done = CliRunner().invoke(app, ["mesh", "modify", *map(str, words)])
    return done.exit_code, " ".join(done.output.split())


def test_the_command(path):
    code, said = command(
        path, "--rename", "block:lower=under", "--rename", "bottom=floor", "--id", "block:upper=21",
        "--assembly", "pair=under,polyhedra", "--information", "third", "--title", "changed",
    )  # fmt: skip
    assert code == 0 and "3 states" in said
    with mesh.open(path) as region:
        model = region.model
    assert model.find("pair").members == ["under", "polyhedra"] and model.find("pair").id == 1002
    assert model.find("solids").members == ["under", "upper"] and model.find("upper").id == 21
    assert (model.title, model.information) == ("changed", ["first", "second", "third"])
    assert model.find("floor").type == "node_set"
    before = contents(path.parent)
    for words, expected, text in (
        ((), 2, "nothing is to be changed"),
        (("--rename", "lower"), 2, "--rename takes NAME=VALUE"),
        (("--rename", "lower=x"), 1, "no entity 'lower'"),
        (("--rename", "block:upper=under"), 1, "the name is used twice"),
        (("--id", "upper=x"), 2, "--id takes a whole number"),
        (("--assembly", "b=upper,floor"), 2, "members are of several types"),
    ):
        code, said = command(path, *words)
        assert (code, text in said) == (expected, True), said
    assert contents(path.parent) == before
    code, said = command("plate", "--title", "x")
    assert code == 1 and "in files only" in said


def titled(title):
    def change(edit):
        edit.model.title = title

    return change


def test_nothing_is_lost_where_the_configuration_sends_the_copy_elsewhere(tmp_path, monkeypatch):
    write(tmp_path / "a.e", *everything())
    before = contents(tmp_path)
    with pytest.raises(penstock.InvalidArgument, match="path and resume are no options"):
        mesh.modify(tmp_path / "a.e", titled("x"), path=str(tmp_path / "b.e"))
    name = re.sub(r"[^A-Za-z0-9]", "_", str(tmp_path / "a.e.copying")).upper()
    monkeypatch.setenv(f"PENSTOCK_MESH_{name}", f"path={tmp_path}/b.e")
    with pytest.raises(penstock.InvalidArgument, match="nothing was written beside it"):
        mesh.modify(tmp_path / "a.e", titled("x"), context=penstock.Context())
    assert before.items() <= contents(tmp_path).items()


def test_a_change_leaves_other_files_alone(tmp_path):
    """Names that only look like those of a part."""
    write(tmp_path / "a.e", *everything())
    for other in ("a.e.1.2", "a.e.4.10", "a.e.04.01", "a.e-s1", "a.e.4.1.txt"):
        (tmp_path / other).write_text("mine")
    before = contents(tmp_path)
    mesh.modify(tmp_path / "a.e", titled("x"))
    after = contents(tmp_path)
    assert after.keys() == before.keys() and after.pop("a.e") != before.pop("a.e") and after == before


@pytest.mark.parametrize("text", ["", "b.e\n", "\xff"])
def test_a_file_that_is_no_list_of_a_copy_removes_nothing(tmp_path, text):
    write(tmp_path / "a.e", *everything())
    (tmp_path / "a.e.copied").write_text(text, encoding="latin-1")
    before = contents(tmp_path)
    with pytest.raises(penstock.InvalidArgument, match="not a list of the files of a copy"):
        mesh.modify(tmp_path / "a.e", titled("x"))
    assert contents(tmp_path) == before


def test_a_changed_file_is_as_private_as_before(tmp_path):
    write(tmp_path / "a.e", *everything())
    (tmp_path / "a.e").chmod(0o600)
    (tmp_path / "link.e").symlink_to("a.e")
    mesh.modify(tmp_path / "link.e", titled("x"))
    assert (tmp_path / "link.e").is_symlink() and (tmp_path / "a.e").stat().st_mode & 0o777 == 0o600
    with mesh.open(tmp_path / "a.e") as region:
        assert region.model.title == "x"


def test_what_came_meanwhile_stays(tmp_path):
    """A simulation begins to write the name of a copy that is under way."""
    with pytest.raises(penstock.WrongState, match="being written"), Replacement(tmp_path / "a.e") as copy:
        write(copy.beside, *everything(), database="exodus")
        simulation = mesh.create(tmp_path / "a.e", everything()[0])
    simulation.abandon()
    write(tmp_path / "a.e", *everything())
    before = contents(tmp_path)
    with pytest.raises(penstock.WrongState, match="have changed meanwhile"), Replacement(tmp_path / "b.e") as copy:
        write(copy.beside, *everything(), database="exodus")
        (tmp_path / "b.e").write_bytes((tmp_path / "a.e").read_bytes())
    assert contents(tmp_path) == before | {"b.e": before["a.e"]}


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_replacement_that_was_cut_off_is_finished(tmp_path, after, monkeypatch):
    """The program ends after so many of the new names: one file, of which three are made."""
    write_growing(tmp_path / "a.e")
    with mesh.open(tmp_path / "a.e") as region:
        states = seen(region)
    assert len(states) > 2
    real, given = Path.replace, []

    def replace(path, to):
        if ".copying" in path.name:
            if len(given) == after:
                os._exit(9)
            given.append(path)
        return real(path, to)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Path, "replace", replace)
        mesh.modify(tmp_path / "a.e", titled("x"), states_per_file=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    mesh.modify(tmp_path / "a.e", titled("y"))
    with mesh.open(tmp_path / "a.e") as region:
        assert region.model.title == "y" and seen(region) == states
    assert not [each for each in tmp_path.iterdir() if ".cop" in each.name]
