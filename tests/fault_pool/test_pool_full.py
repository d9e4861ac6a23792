"""A stream's writer whose pool is full."""

import numpy as np
import penstock
import pytest


def test_a_writer_is_told_which_servers_are_full(pools, context):
    pool = pools(servers=1, memory="16MiB", disk=None)
    full = "pool stage, whose memory is full: server " + pool.server(1).ready["name"]
    options = {"retain_for": "analysis", "queue_steps": 2, "timeout": 3.0}  # no reader of that group comes
    writer = context.create("heat", engine="pool", pool="stage", **options)
    with pytest.raises(penstock.TimeoutError) as error:
        for number in range(30):
            with writer.step() as step:
                step["x"] = np.full(250_000, float(number))
    assert full in str(error.value) and "of memory=16MiB in use, no tiers" in str(error.value)
    assert "held" not in str(error.value)
    with pytest.raises(penstock.TimeoutError) as error:
        writer.close()
    assert full in str(error.value)
    # The pool heard that the writer is gone: the stream can be read to that point, and its place be taken.
    with pytest.raises(penstock.WriterLost), context.open("heat", engine="pool", pool="stage", timeout=30) as stream:
        for number, step in enumerate(stream):
            assert (step["x"][:] == number).all()
    assert number >= 1
    pool.open().drop_stream("heat")


def test_objects_are_read_while_a_server_without_room_for_them_joins(pools):
    pool = pools(servers=1, memory="96MiB", disk=None)
    client = pool.open()
    for number in range(40):
        client.put(f"row {number}", "x", bytes([number]) * (512 << 10))
    pool.stage.start_one(2, memory="8MiB")
    pool.stage.wait_ready(60)
    assert not pool.named(client, pool.members())["settled"]
    for number in range(40):
        assert client.get(f"row {number}", "x").bytes() == bytes([number]) * (512 << 10)
    rows = [(f"row {number}", "x") for number in range(40)]
    assert [bytes(found.bytes())[:1] for found in client.get_many(rows)] == [bytes([n]) for n in range(40)]
    assert client.info("row 1", "x").bytes == 512 << 10
