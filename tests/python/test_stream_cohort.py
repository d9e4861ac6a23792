"""StreamCohort: calls of ranks that are threads or processes, and what they see of ranks that fail."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from penstock.analysis.agreement import exchange
from penstock.cohort import StreamCohort
from penstock.errors import InvalidArgument, PeerLost, TimeoutError, WrongState

TIMEOUT_S = 20.0


@pytest.fixture
def ranks(context):
    """ranks(size, work): what work(cohort) gives on each of so many threads; an exception in its place."""

    def run(size, work, name="c", timeout=TIMEOUT_S, sizes=None):
        def one(rank):
            try:
                with StreamCohort(name, rank, sizes[rank] if sizes else size, context, timeout) as cohort:
                    return work(cohort)
            except Exception as error:
                return error

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(one, range(size)))

    return run


def data_of(rank, n):
    return np.random.default_rng([rank, n]).bytes(n)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_calls_with_every_root(ranks, size):
    def work(cohort):
        results = []
        for root in range(size):
            for n in (0, 1, 999, 1000, 1001, 5000):
                results.append(cohort.broadcast(data_of(cohort.rank, n), root))
                results.append(cohort.gather(data_of(cohort.rank, n + cohort.rank), root))
        return results

    expected = [
        [
            each
            for root in range(size)
            for n in (0, 1, 999, 1000, 1001, 5000)
            for each in (data_of(root, n), [data_of(r, n + r) for r in range(size)] if rank == root else None)
        ]
        for rank in range(size)
    ]
    assert ranks(size, work) == expected


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.integers(2, 4),
    calls=st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 3000)), max_size=30),
)
def test_any_calls_give_what_threads_give(ranks, size, calls):
    def work(cohort):
        results = []
        for is_gather, root, n in calls:
            call = cohort.gather if is_gather else cohort.broadcast
            results.append(call(data_of(cohort.rank, n * (cohort.rank + 1)), root % size))
        return results

    with ThreadPoolExecutor(size) as pool:
        expected = list(pool.map(work, penstock.thread_cohort(size)))
    assert ranks(size, work) == expected


@pytest.mark.parametrize("size", [2, 3])
def test_large_messages(ranks, size):
    n = 8 << 20

    def work(cohort):
        for root in (0, size - 1):
            assert cohort.broadcast(data_of(cohort.rank, n), root) == data_of(root, n)
            parts = cohort.gather(data_of(cohort.rank, n), root)
            assert parts == ([data_of(rank, n) for rank in range(size)] if cohort.rank == root else None)
        return "done"

    assert ranks(size, work) == ["done"] * size


def test_many_small_messages(ranks):
    def work(cohort):
        total = 0
        for n in range(1000):
            total += exchange(cohort, lambda n=n: cohort.rank + n, sum)
        return total

    assert ranks(3, work) == [sum(3 + 3 * n for n in range(1000))] * 3


def test_a_cohort_opens_streams(ranks, context):
    def work(cohort):
        writer = context.create("data", comm=cohort, timeout=TIMEOUT_S)
        reader = context.open("data", comm=cohort, timeout=TIMEOUT_S)
        with writer.step() as step:
            step.put("x", np.full(2, cohort.rank), start=[2 * cohort.rank], shape=[6])
        with reader.step() as step:
            found = step["x"][:].tolist()
        reader.close()
        writer.close()
        return found

    assert ranks(3, work) == [[0, 0, 1, 1, 2, 2]] * 3


def test_two_cohorts_of_one_context(ranks, context):
    def work(first):
        with StreamCohort("other", first.rank, first.size, context, TIMEOUT_S) as second:
            return first.gather(b"a", 0), second.gather(b"b", 1), first.broadcast(b"c", 1)

    assert ranks(2, work) == [([b"a", b"a"], None, b"c"), (None, [b"b", b"b"], b"c")]


# ------------------------------------------------------------------------------------------------------------ failures


def of_kind(results, kind, text):
    for result in results:
        assert isinstance(result, kind), result
        assert text in str(result), result


def test_a_rank_that_never_comes(context):
    def one(rank):
        with pytest.raises(TimeoutError) as caught:
            StreamCohort("c", rank, 3, context, timeout=1)
        return caught.value

    with ThreadPoolExecutor(2) as pool:
        of_kind(pool.map(one, range(2)), TimeoutError, "rank 2 did not come in time")


def test_rank_0_never_comes(context):
    with pytest.raises(TimeoutError, match="rank 0 did not come in time"):
        StreamCohort("c", 1, 2, context, timeout=0.5)


def test_a_rank_that_stays_away_from_a_call(ranks):
    others = threading.Barrier(3)

    def work(cohort):
        if cohort.rank == 1:
            others.wait(TIMEOUT_S)
            return "late"
        try:
            return cohort.broadcast(b"x", 0)
        finally:
            others.wait(TIMEOUT_S)

    first, late, last = ranks(3, work, timeout=1)
    of_kind([first, last], TimeoutError, "call 1 (broadcast from rank 0): rank 1 did not come in time")
    assert late == "late"


@pytest.mark.parametrize("other", [("gather", 0), ("broadcast", 1), ("gather", 2)])
def test_mismatched_calls(ranks, other):
    def work(cohort):
        method, root = other if cohort.rank == 1 else ("broadcast", 0)
        getattr(cohort, method)(b"x", root)
        cohort.broadcast(b"y", 0)  # a gather to rank 0 is over for the one that made it

    results = ranks(3, work)
    of_kind(results, InvalidArgument, "call 1 (broadcast from rank 0): rank 1 is in cohort 'c', call 1")


def test_one_call_more(ranks):
    def work(cohort):
        for _ in range(2 if cohort.rank == 1 else 1):
            cohort.broadcast(b"x", 0)

    results = ranks(2, work)
    assert results[0] is None
    of_kind(results[1:], PeerLost, "rank 0")


def test_ranks_of_different_sizes(ranks):
    results = ranks(3, lambda cohort: None, sizes=[3, 3, 4])
    of_kind(results, InvalidArgument, "(start of ranks 3): rank 2 is in cohort 'c', call 0 (start of ranks 4)")


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_raises(ranks, failing):
    def work(cohort):
        if cohort.rank == failing:
            raise ZeroDivisionError("mine")
        return cohort.broadcast(b"x", 2)

    results = ranks(3, work)
    assert isinstance(results.pop(failing), ZeroDivisionError)
    of_kind(results, PeerLost, f"rank {failing} ")


def test_after_an_error_and_after_close(context):
    cohort = StreamCohort("alone", 0, 1, context)
    assert cohort.broadcast(b"x", 0) == b"x"
    with pytest.raises(InvalidArgument, match="root 1 is not one of 0 to 0"):
        cohort.gather(b"x", 1)
    cohort.close()
    cohort.close()
    with pytest.raises(WrongState, match="is closed"):
        cohort.broadcast(b"x", 0)


def test_the_error_is_repeated(ranks):
    def work(cohort):
        if cohort.rank == 0:
            return None
        with pytest.raises(PeerLost) as first:
            cohort.broadcast(b"", 0)
        started = time.monotonic()
        with pytest.raises(PeerLost) as second:
            cohort.gather(b"", 0)
        return str(first.value) == str(second.value) and time.monotonic() - started < 1

    assert ranks(2, work) == [None, True]


@pytest.mark.parametrize("rank, size, timeout", [(-1, 2, 1), (2, 2, 1), (0, 0, 1), (0, 1, 0), (0, 1, float("nan"))])
def test_wrong_arguments(context, rank, size, timeout):
    with pytest.raises(InvalidArgument):
        StreamCohort("c", rank, size, context, timeout)


def test_an_engine_of_the_configuration(tmp_path):
    file = tmp_path / "penstock.yaml"
    file.write_text("streams: {'*': {engine: file}}\n")
    context = penstock.Context(config_file=str(file), directory=str(tmp_path / "streams"))
    with pytest.raises(InvalidArgument, match="needs engine=direct"):
        StreamCohort("c", 0, 2, context, timeout=1)
    context._shut_down()


# ------------------------------------------------------------------------------------------------------------ processes

PROGRAM = """
import sys
import penstock
from penstock.cohort import StreamCohort
directory, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
context = penstock.Context(directory=directory, listen="127.0.0.1")
with StreamCohort("c", rank, size, context, timeout=20) as cohort:
    for n in range(20):
        assert cohort.broadcast(bytes([rank]) * 300_000, n % size) == bytes([n % size]) * 300_000
        parts = cohort.gather(str(rank).encode(), n % size)
        assert parts == ([str(r).encode() for r in range(size)] if rank == n % size else None)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        cohort.broadcast(b"", 0)
        cohort.gather(b"", 0)
        cohort.broadcast(b"", 0)
    except penstock.errors.Error as error:
        print(type(error).__name__, error)
        sys.exit(3)
"""


@pytest.fixture
def processes(tmp_path):
    started = []

    def start(size):
        for rank in range(size):
            command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(rank), str(size)]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert [process.stdout.readline() for process in started] == ["ready\n"] * size
        return started

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_processes(processes, size):
    started = processes(size)
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.wait(60) for process in started] == [0] * size


@pytest.mark.parametrize("killed", [0, 2])
def test_a_process_is_killed(processes, killed):
    started = processes(3)
    started[killed].kill()
    started[killed].wait()
    others = [process for rank, process in enumerate(started) if rank != killed]
    for process in others:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in others:
        assert process.wait(60) == 3
        assert process.stdout.read().startswith(f"PeerLost cohort 'c', call 41 (broadcast from rank 0): rank {killed} ")


def test_threads_name_the_rank_that_did_not_come(monkeypatch):
    monkeypatch.setattr("penstock.cohort._PATIENCE_S", 0.2)
    first, second, third = penstock.thread_cohort(3)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(third.broadcast, b"", 0)
        with pytest.raises(penstock.TimeoutError, match="rank 1 did not come to call 1"):
            first.broadcast(b"data", 0)
        with pytest.raises(penstock.TimeoutError, match="rank 1 did not come"):
            waits.result()
    with pytest.raises(penstock.TimeoutError, match="gave up waiting"):
        second.broadcast(b"", 0)
