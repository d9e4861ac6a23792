"""Streams in a pool: what Python adds to the scenarios that all engines share."""

import time

import numpy as np
import penstock
import pytest
from penstock.cli.top import _progress
from penstock.workflow.statistics import Endpoint

STEPS = 6


@pytest.fixture
def kept(pool_servers, monkeypatch, context):
    """A stream of six steps in a pool, whose writer has ended."""
    servers = pool_servers(1, memory="256MiB", http="off")
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    with context.create("kept", engine="pool") as writer:
        for t in range(STEPS):
            with writer.step() as step:
                step["v"] = np.full(100, float(t))
    return context


def test_any_kept_step_in_any_order(kept):
    with kept.open("kept", engine="pool") as stream:
        assert stream.steps == list(range(STEPS))
        for number in (4, 0, 5, 2):
            with stream[number] as step:
                assert step.number == number and step["v"][0] == number
        assert [step.number for step in stream] == [3, 4, 5]
        with pytest.raises(penstock.NotFound):
            stream[17]
        with stream[-1] as step:
            assert step.number == STEPS - 1
        assert [step["v"][0] for step in stream[1::2]] == [1, 3, 5]


def test_views_outlive_reader_and_pool(pool_servers, monkeypatch, context):
    """The servers hold what is viewed, and use its memory for nothing else, after both were closed."""
    servers = pool_servers(1, memory="64MiB", http="off")
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    elements = 100_000
    writer = context.create("s", engine="pool", retain_steps=1)
    reader = context.open("s", engine="pool")
    pool = penstock.Pool(context=context)

    def write(t):
        with writer.step() as step:
            step["v"] = np.full(elements, float(t))

    views = []
    for t in range(3):
        write(t)
        with reader.step() as step:
            views.append(step["v"].view())
    pool.put("kept", "x", np.full(elements, 7.0))
    view = np.frombuffer(pool.need("kept", "x").view(), dtype=float)
    pool.drop("kept", "x")
    reader.close()
    pool.close()
    for t in range(3, 40):
        write(t)
    with penstock.Pool(context=context) as filler:
        with pytest.raises(penstock.PoolFull):
            for n in range(100):
                filler.put("fill", str(n), np.full(elements, -1.0), timeout=0.5)
        assert [v[0] for v in views] == [v[-1] for v in views] == [0, 1, 2]
        assert (view == 7.0).all()
        filler.drop_matching("fill", "*")
        before = filler.status()["servers"][0]["memory_bytes"]
        del views, view
        deadline = time.monotonic() + 20
        while filler.status()["servers"][0]["memory_bytes"] > before - 4 * 8 * elements:
            assert time.monotonic() < deadline, "what was viewed is given back with the last view"
    writer.close()


def test_where_a_reader_starts(kept):
    with kept.open("kept", engine="pool", start="newest") as stream, stream.step() as step:
        assert step.number == STEPS - 1
    with kept.open("kept", engine="pool", start="3") as stream:
        assert [step.number for step in stream] == [3, 4, 5]


def test_a_group_goes_on_where_it_stopped(kept):
    for expected in (0, 1):
        with kept.open("kept", engine="pool", group="plots") as stream, stream.step() as step:
            assert step.number == expected


def test_no_client_is_given_a_writers_token(kept):
    """A stream's record holds it; whatever is computed runs for clients too."""
    with penstock.Pool(context=kept, ns="penstock.streams") as admin:
        directory = admin.directory_for_roles()
        for role in ("read", "write", "compute", "admin"):
            options = {"role": role, "token": admin.token(role), "directory": directory}
            with penstock.Pool("default", context=kept, ns="penstock.streams", **options) as client:
                columns = {entry.column: entry.bytes for entry in client.list("stream/kept")}
                assert columns["stream"] == client.info("stream/kept", "stream").bytes > 32
                step = min(column for column in columns if column.startswith("step/"))
                assert len(client.get("stream/kept", step)) == columns[step]
                for call in (client.get, client.need):
                    with pytest.raises(penstock.Forbidden, match="only the pool's servers"):
                        call("stream/kept", "stream")
                with pytest.raises(penstock.Forbidden):
                    client.compute("first", [("stream/kept", "stream")])


def test_a_pool_counts_the_steps_and_bytes_that_it_took(context, engine_servers, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", engine_servers.directory)
    sizes = [1000, 3000, 5000]
    with context.create("counted", engine="pool", retain_steps=1) as stream, penstock.Pool(context=context) as pool:
        for size in sizes:
            with stream.step() as step:
                step.put_local("a", np.zeros(size, np.uint8))
        deadline = time.monotonic() + 20
        while (said := pool.streams()[0])["bytes_taken"] < sum(sizes) or said["steps"] > 1:
            assert time.monotonic() < deadline, said
    assert (said["steps"], said["bytes"], said["steps_taken"], said["bytes_taken"]) == (1, 5000, 3, 9000)
    assert _progress(Endpoint("counted", "pool default", 0, said, 0.0)) == (3, 9000)


def test_options_of_pools_that_streams_do_not_take_are_named_once(
    context, engine_servers, monkeypatch, tmp_path, capfd
):
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", engine_servers.directory)
    (tmp_path / "named.yaml").write_text("pools:\n  '*':\n    timeout_ms: 20000\n")
    named = penstock.Context(
        directory=str(tmp_path / "streams"), listen="127.0.0.1", config_file=str(tmp_path / "named.yaml")
    )
    for name in ("one", "two"):
        with named.create(name, engine="pool") as writer:
            with writer.step() as step:
                step["a"] = 1
            with named.open(name, engine="pool") as reader:
                reader.step().end()
    named._shut_down()
    errors = capfd.readouterr().err
    assert errors.count("streams take pool, directory and token") == 1
    assert f"options=timeout_ms from={tmp_path}/named.yaml:3" in errors


def test_direct_streams_keep_no_steps(context):
    with context.create("plain", rendezvous_readers=0), context.open("plain") as stream:
        with pytest.raises(penstock.Unsupported, match="engine=pool"):
            stream.seek(0)


def test_a_writer_waits_for_a_pool_no_longer_than_it_was_told(context):
    begun = time.monotonic()
    with pytest.raises(penstock.PeerLost, match="no directory is registered"):
        context.create("heat", engine="pool", timeout=0.3)
    assert time.monotonic() - begun < 20
