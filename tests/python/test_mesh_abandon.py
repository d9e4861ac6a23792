"""A state that was begun and given up: readers do not see it, and the next one can begin."""

import threading

import numpy as np
import penstock
import pytest
from penstock import mesh

from .test_mesh import leaves, pytestmark  # noqa: F401


class Problem(Exception):
    pass


def model():
    points = mesh.Entity("node_block", "points", 1, 3)
    points.fields = [
        mesh.Field("coordinates", storage="vector_2d", role="mesh"),
        mesh.Field("T"),
        mesh.Field("flag", "int32"),
    ]
    return mesh.Model(dimensions=2, entities=[mesh.Entity("region", "region", count=1), points])


def write(name, **options):
    with mesh.create(name, model(), **options) as out:
        out["points", "coordinates"] = np.arange(6.0).reshape(3, 2)
        for time in range(4):
            with pytest.raises(Problem), out.state(time + 0.25) as state:
                state["points", "T"] = [-1, -1, -1]
                raise Problem
            with pytest.raises(penstock.WrongState, match="no values of field 'flag'"), out.state(time + 0.5) as state:
                state["points", "T"] = [-2, -2, -2]
            with pytest.raises(penstock.InvalidArgument, match="shape"), out.state(time + 0.75) as state:
                state["points", "T"] = [-3, -3]
            with out.state(time) as state:
                state["points", "T"] = [time, 10 + time, 20 + time]
                state["points", "flag"] = [time] * 3
        with pytest.raises(Problem), out.state(99):
            raise Problem


def check(region):
    found = []
    for state in region:
        assert state["points", "T"].tolist() == [state.time, 10 + state.time, 20 + state.time]
        assert state["points", "flag"].tolist() == [state.time] * 3
        found.append((state.number, state.time))
    assert found == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("format", ["offset64", "cdf5", "netcdf4"])
@pytest.mark.parametrize("states_per_file", [0, 2])
def test_files(tmp_path, format, states_per_file):
    write(tmp_path / "a.e", format=format, states_per_file=states_per_file)
    with mesh.open(tmp_path / "a.e") as region:
        check(region)


def test_nothing_kept():
    write("nowhere", database="null")


def test_a_stream(context):
    writer = threading.Thread(target=write, args=("points",), kwargs={"context": context, "database": "stream"})
    writer.start()
    with mesh.open("points", context=context, timeout=20) as region:
        check(region)
    writer.join()


def test_files_of_a_stream(context, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_STREAM_POINTS", f"file,folder={tmp_path}/steps")
    write("points", context=context, database="stream")
    with mesh.open("points", context=context, database="stream", timeout=20) as region:
        check(region)


def test_a_pool(pool_servers, monkeypatch):
    servers = pool_servers(1)
    monkeypatch.setenv("PENSTOCK_STREAM_POINTS", "pool")
    context = penstock.Context(directory=servers.directory, listen="127.0.0.1")
    writer = threading.Thread(target=write, args=("points",), kwargs={"context": context, "database": "stream"})
    writer.start()
    with mesh.open("points", context=context, database="stream", timeout=20) as region:
        check(region)
    writer.join()


def test_a_region_that_is_left_keeps_what_is_complete(tmp_path):
    with pytest.raises(Problem), mesh.create(tmp_path / "a.e", model()) as out:
        out["points", "coordinates"] = np.zeros((3, 2))
        with out.state(0) as state:
            state["points", "T"], state["points", "flag"] = [0.0] * 3, [0] * 3
        with out.state(1) as state:
            state["points", "T"] = [1.0] * 3
            raise Problem
    with mesh.open(tmp_path / "a.e") as region:
        assert region.times == [0]
