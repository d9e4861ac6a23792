"""Fixtures of the stream tests: a context of its own for each test, and writers and readers that it closes."""

import gc
from concurrent.futures import ThreadPoolExecutor

import penstock
import pytest

TIMEOUT_S = 20.0


@pytest.fixture
def context(tmp_path):
    """A context with a directory of its own. The test fails when it leaves a stream open."""
    context = penstock.Context(directory=str(tmp_path / "streams"), listen="127.0.0.1")
    yield context
    left = _open_streams(context)
    if left:
        gc.collect()  # which takes long, and streams of tests that end well are closed
        left = _open_streams(context)
    context._shut_down(failed=False)
    assert not left, f"left open: {left}"


def _open_streams(context):
    return [stream for stream in context._streams if not stream.closed]


@pytest.fixture(params=["shm", "tcp"])
def plane(request):
    return request.param


@pytest.fixture
def pair(context, plane):
    """pair(**options) opens a writer and a reader of it over the data plane; both are closed with the test."""
    opened = []

    def open_pair(name="heat", **options):
        writer = context.create(name, timeout=TIMEOUT_S, **options)
        opened.append(writer)
        reader = context.open(name, timeout=TIMEOUT_S, data_plane=plane, **options)
        opened.append(reader)
        return writer, reader

    yield open_pair
    for stream in reversed(opened):
        stream.close()


@pytest.fixture
def hand_over(pair):
    """hand_over(fill) writes one step, which fill(step) fills, and returns it as its reader sees it."""
    streams = []

    def send(fill, **options):
        if not streams:
            streams.extend(pair(**options))
        writer, reader = streams
        if reader._step is not None:
            reader._step.end()
        with writer.step() as step:
            fill(step)
        received = reader.step()
        assert received.number == step.number
        return received

    yield send


@pytest.fixture
def cohorts(context, plane):
    """cohorts(m, n, write, read): write(stream) on each of m threads, the ranks of a writer, read(stream) on n."""

    def run(m, n, write, read, **options):
        def rank_of_writer(cohort):
            with context.create("s", comm=cohort, timeout=TIMEOUT_S, data_plane=plane, **options) as stream:
                write(stream)

        def rank_of_reader(cohort):
            with context.open("s", comm=cohort, timeout=TIMEOUT_S, data_plane=plane) as stream:
                read(stream)

        def team(size):
            return penstock.thread_cohort(size) if size > 1 else [None]

        with ThreadPoolExecutor(m + n) as pool:
            tasks = [pool.submit(rank_of_writer, cohort) for cohort in team(m)]
            tasks += [pool.submit(rank_of_reader, cohort) for cohort in team(n)]
            for task in tasks:
                task.result(3 * TIMEOUT_S)

    return run
