"""How streams end that nobody closes: dropped objects, programs that leave; and what a step says after its end."""

import gc
import subprocess
import sys

import numpy as np
import penstock
import pytest
from refusals import without_refusals

TIMEOUT_S = 20.0
PROCESS_S = 60.0

WRITER = """
import sys
import penstock
stream = penstock.Context(directory=sys.argv[1], listen="127.0.0.1").create("heat", timeout=30)
for t in range(2):
    with stream.step() as step:
        step["t"] = t
sys.stdin.readline()
"""


@pytest.mark.parametrize(("end", "code", "outcome"), [
    ("", 0, penstock.WriterLost),
    ("sys.exit()", 0, penstock.WriterLost),
    ("sys.exit(3)", 3, penstock.WriterLost),
    ("raise SystemError('broken')", 1, penstock.WriterLost),
    ("del stream, step", 0, penstock.WriterLost),
    ("step = stream.step(); span = step.span('T', shape=(3,), dtype='f8')", 0, penstock.WriterLost),
    ("with stream: sys.exit()", 0, penstock.WriterLost),
    ("with stream: pass", 0, penstock.EndOfStream),
    ("stream.close(); sys.exit(4)", 4, penstock.EndOfStream),
])  # fmt: skip
def test_a_program_that_ends_without_close_has_lost_its_stream(context, tmp_path, end, code, outcome):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER + end, str(tmp_path / "streams")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with context.open("heat", timeout=TIMEOUT_S) as reader:
            for t in range(2):
                with reader.step() as step:
                    assert step["t"].value == t
            process.stdin.write("\n")
            process.stdin.flush()
            with pytest.raises(outcome):
                reader.step()
        _, errors = process.communicate(timeout=PROCESS_S)
        assert process.returncode == code and (without_refusals(errors) == "" or code == 1), errors
    finally:
        process.kill()
        process.wait(PROCESS_S)


@pytest.fixture
def no_collection():
    """What is dropped must go by its count of references: the collector of cycles may come much later."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_dropped_reader_leaves_at_once(context, plane, no_collection):
    with context.create("heat", timeout=TIMEOUT_S, queue_steps=1, data_plane=plane) as writer:
        reader = context.open("heat", timeout=TIMEOUT_S, data_plane=plane)
        with writer.step() as step:
            step["T"] = np.arange(3)
        step = reader.step()
        assert step["T"][:].tolist() == [0, 1, 2]
        assert step.attributes == {} and "T" in repr(step)
        del step, reader  # neither ended nor closed
        assert not [stream for stream in context._streams if isinstance(stream, penstock.Reader)]
        with context.open("heat", timeout=TIMEOUT_S, data_plane=plane) as other:
            with writer.step() as step:
                step["T"] = np.arange(3)
            with other.step() as step:
                assert step.number == 1


def test_a_loop_that_is_left_holds_no_step(context, no_collection):
    with context.create("heat", timeout=TIMEOUT_S, queue_steps=1) as writer:
        reader = context.open("heat", timeout=TIMEOUT_S)
        with writer.step() as step:
            step["t"] = 1
        step = next(iter(reader))
        del step, reader
        assert not [stream for stream in context._streams if isinstance(stream, penstock.Reader)]


def test_a_dropped_step_has_ended_when_the_next_begins(context, no_collection):
    with context.create("heat", timeout=TIMEOUT_S) as writer, context.open("heat", timeout=TIMEOUT_S) as reader:
        for t in range(2):
            with writer.step() as step:
                step["t"] = t
        assert [reader.step()["t"].value for _ in range(2)] == [0, 1]
        assert reader.statistics.queue_depth == 1  # the last one


def test_a_dropped_writer_is_lost_at_once(context, plane, no_collection):
    writer = context.create("heat", timeout=TIMEOUT_S, data_plane=plane)
    with context.open("heat", timeout=TIMEOUT_S, data_plane=plane) as reader:
        with writer.step() as step:
            step["t"] = 1
        reader.step().end()
        step = writer.step()
        span = step.span("T", shape=(1000,), dtype="f8")
        step.attributes["title"] = "x"
        del step, writer
        span[:] = 1  # the memory stays while the array does
        with pytest.raises(penstock.WriterLost):
            reader.step()
        assert span.sum() == 1000


def test_memory_of_a_span_outlives_a_writer_that_is_lost(context):
    with pytest.raises(ZeroDivisionError):
        with context.create("heat", timeout=TIMEOUT_S, rendezvous_readers=0) as writer:
            step = writer.step()
            span = step.span("T", shape=(1 << 20,), dtype="f8")
            span[:] = 1
            raise ZeroDivisionError
    assert span.sum() == 1 << 20
    with pytest.raises(ValueError, match="read-only"):
        span[0] = 2


def test_dropped_pool_objects_go_at_once(pool_servers, open_pool, no_collection):
    pool = open_pool(pool_servers(1, http="off"))
    pool.put("row", "x", b"x")
    context = pool._context
    other = penstock.Pool(context=context, directory=pool._options["directory"], timeout=TIMEOUT_S)
    events = other.subscribe("row")
    waiting = other.want("row", "never", timeout=TIMEOUT_S)
    assert other.get("row", "x").bytes() == b"x"
    before = len(context._pools)
    del other, events, waiting
    assert len(context._pools) == before - 1


def test_what_a_step_is_can_be_asked_after_its_end(context):
    with context.create("heat", timeout=TIMEOUT_S, queue_steps=1, when_full="discard_newest") as writer:
        with context.open("heat", timeout=TIMEOUT_S) as reader:
            with writer.step() as kept:
                kept["t"] = 1
            with writer.step() as refused:
                refused["t"] = 2
            assert [(step.number, step.dropped) for step in (kept, refused)] == [(0, False), (1, True)]
            with reader.step() as step:
                variable = step["t"]
            assert step.number == 0
            assert (variable.name, variable.kind, variable.dtype) == ("t", "global_value", np.int64)
        abandoned = writer.step()
        abandoned.abandon()
        assert not abandoned.dropped
    assert not abandoned.dropped and refused.dropped
