"""Exodus files that two programs want to write: the second is refused as long as the first one lives."""

import os
import signal
import subprocess
import sys

import penstock
import pytest
from netcdf_part import needs_netcdf
from penstock import mesh

TIMEOUT_S = 60
GENERATED = "2x2x4|times:3|nodal:1"

pytestmark = needs_netcdf

WRITER = """
import sys
from penstock import mesh

path, parts, *options = sys.argv[1:]

def pause(number, time):
    print(number, flush=True)
    sys.stdin.readline()

source = mesh.open("2x2x4|times:3|nodal:1", database="generated")
mesh.copy(source, path, parts=int(parts), progress=pause, **dict(each.split("=") for each in options))
"""


class Writer:
    """Another process, which waits after each of three states."""

    def __init__(self, path, parts=1, **options):
        words = [f"{key}={value}" for key, value in {"database": "exodus", **options}.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(parts), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.process.stdout.readline() == "0\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def go_on(self):
        self.process.communicate("\n\n\n", timeout=TIMEOUT_S)
        assert self.process.returncode == 0

    def die(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(TIMEOUT_S)


def write(path, parts=1, **options):
    mesh.copy(mesh.open(GENERATED, database="generated"), path, parts=parts, database="exodus", **options)


def contents(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def refused(path, process, parts, **options):
    with pytest.raises(
        penstock.WrongState, match=rf"w\.e.*: is being written by process {process}: wait until"
    ) as error:
        write(path, parts, **options)
    return str(error.value)


KINDS = [
    (1, {}),
    (1, {"format": "cdf5"}),
    (1, {"format": "netcdf4"}),
    (1, {"states_per_file": 1}),
    (1, {"format": "netcdf4", "states_per_file": 1}),
    (2, {}),
    (2, {"format": "netcdf4"}),
]


@pytest.mark.parametrize(("parts", "options"), KINDS, ids=str)
def test_a_second_writer_is_refused(tmp_path, parts, options):
    path = tmp_path / "w.e"
    with Writer(path, parts, **options) as writer:
        before = contents(tmp_path)
        for others in (1, 2, 3):
            refused(path, writer.process.pid, others, **options)
        assert contents(tmp_path) == before
        writer.go_on()
    with mesh.open(path) as region, mesh.open(GENERATED, database="generated") as whole:
        assert mesh.compare(region, whole).same
    write(path, parts, **options)  # it has ended


@pytest.mark.parametrize(("parts", "options"), KINDS, ids=str)
def test_what_a_killed_writer_leaves_is_written_again(tmp_path, parts, options):
    path = tmp_path / "w.e"
    with Writer(path, parts, **options) as writer:
        writer.die()
    write(path, parts, **options)
    with mesh.open(path) as region, mesh.open(GENERATED, database="generated") as whole:
        assert mesh.compare(region, whole).same
    assert not [each for each in contents(tmp_path) if "writing" in each]


def test_a_file_that_is_written_is_not_resumed(tmp_path):
    path = tmp_path / "w.e"
    with Writer(path) as writer:
        said = refused(path, writer.process.pid, 1, resume="append")
        assert said.startswith(str(path) + ": is being")
        writer.die()
    model = mesh.open(path).model
    with mesh.open(path) as region, mesh.create(path, model, resume="append") as out:
        for entity in model.entities:
            for its in entity.fields:
                if not its.in_state:
                    out.write((entity.type, entity.name), its.name, region.read((entity.type, entity.name), its.name))
        refused(path, os.getpid(), 1)
        refused(path, os.getpid(), 1, resume="append")
    assert mesh.open(path).times == [0]


def test_a_model_that_is_refused_leaves_no_file(tmp_path):
    with pytest.raises(penstock.InvalidArgument):
        mesh.create(tmp_path / "w.e", mesh.Model(entities=[mesh.Entity("element_block", "a", 1, 2, "no_such")] * 2))
    assert contents(tmp_path) == {}
