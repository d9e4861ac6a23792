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
