"""Leases that outlive a step, a reader or a stream, scenario by scenario, over every data plane (test_scenarios.py)."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

TIMEOUT_S = 20.0


def eight(t):
    return np.arange(8.0) + 1000 * t


def write_step(writer):
    with writer.step() as step:
        step["v"] = eight(step.number)


def keep(reader, t):
    """Reads the next step, which is this one, and returns its view."""
    with reader.step() as step:
        assert step.number == t
        return step["v"].view()


@pytest.fixture
def streams(context, plane):
    """streams(readers, **options): a writer and so many readers of it; all are closed with the test."""
    opened = []

    def open_streams(readers, **options):
        opened.append(context.create("s", timeout=TIMEOUT_S, data_plane=plane, **options))
        opened.extend(context.open("s", timeout=TIMEOUT_S, data_plane=plane) for _ in range(readers))
        return opened

    yield open_streams
    for stream in reversed(opened):
        stream.close()


def test_closed_reader_keeps_a_view(streams):
    writer, reader = streams(1, queue_steps=4)
    write_step(writer)
    kept = keep(reader, 0)
    reader.close()
    for _ in range(1, 20):
        write_step(writer)
    np.testing.assert_array_equal(kept, eight(0))
    writer.close()
    np.testing.assert_array_equal(kept, eight(0))


def test_end_comes_while_views_are_kept(streams):
    writer, reader = streams(1, queue_steps=4)
    for _ in range(3):
        write_step(writer)
    with ThreadPoolExecutor() as pool:
        closing = pool.submit(writer.close)
        numbers = []
        for step in reader:
            kept = step["v"].view()  # as loops are written: the last view lives when the next step is asked for
            numbers.append(step.number)
        closing.result(TIMEOUT_S)
    assert numbers == [0, 1, 2]
    np.testing.assert_array_equal(kept, eight(2))


def test_writer_closes_while_a_view_is_kept(streams):
    writer, reader = streams(1)
    write_step(writer)
    kept = keep(reader, 0)
    writer.close()
    np.testing.assert_array_equal(kept, eight(0))
    assert list(reader) == []


def test_ranks_keep_views_to_the_end(cohorts):
    def write(stream):
        for t in range(6):
            with stream.step() as step:
                step.put("v", np.array([float(t)]), start=(stream.rank,), shape=(2,))

    def read(stream):
        for step in stream:
            kept = step["v"].view()
            assert [part[0] for part in kept] == [step.number] * 2
        assert [part[0] for part in kept] == [5, 5]

    cohorts(2, 3, write, read)


def test_stopped_reader_starves_nobody(streams):
    writer, stopped, reader = streams(2, queue_steps=4, rendezvous_readers=2, when_full="discard_newest")
    for t in range(40):
        write_step(writer)
        np.testing.assert_array_equal(keep(reader, t), eight(t))
    assert reader.statistics.steps_dropped == 0
    reader.close()
    with ThreadPoolExecutor() as pool:
        closing = pool.submit(writer.close)
        late = [step.number for step in stopped if step["v"][0] == 1000 * step.number]
        closing.result(TIMEOUT_S)
    assert late[:2] == [0, 1]
    assert len(late) + stopped.statistics.steps_dropped == 40


def test_hoarding_reader_starves_nobody(context, plane):
    for when_full in ("discard_newest", "discard_oldest"):
        options = {"timeout": TIMEOUT_S, "data_plane": plane}
        with context.create("s", queue_steps=4, rendezvous_readers=2, when_full=when_full, **options) as writer:
            with context.open("s", **options) as hoarder, context.open("s", **options) as reader:
                hoarded = []
                for t in range(40):
                    write_step(writer)
                    step = hoarder.try_step(TIMEOUT_S if t == 0 else 0)  # announcements take their time
                    if step is not None:
                        with step:
                            hoarded.append(step["v"].view())
                    np.testing.assert_array_equal(keep(reader, t), eight(t))
                assert hoarded
                assert reader.statistics.steps_dropped == 0
