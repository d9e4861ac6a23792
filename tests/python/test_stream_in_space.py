"""Streams in a space: what Python adds to the scenarios that all engines share."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest

VALUES = np.arange(6 * 8 * 4, dtype=np.float64).reshape(6, 8, 4)


@pytest.fixture
def servers(pool_servers, monkeypatch):
    started = pool_servers(2)
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", started.directory)
    return started


@pytest.fixture
def space(servers, context):
    with penstock.Space(context=context, directory=servers.directory, timeout=20.0) as opened:
        yield opened


def create(context, **options):
    return context.create("s", engine="space", **{"timeout": 20.0} | options)


def join(context, name="s", **options):
    return context.open(name, engine="space", **{"timeout": 20.0} | options)


def test_a_step_is_a_version_of_each_array(context, space):
    with create(context) as writer, join(context) as reader:
        for t in range(3):
            with writer.step() as step:
                step["T"] = VALUES + t
                step["time"] = 0.5 * t
                step["label"] = f"step {t}"
                step.attributes["unit"] = "K"
                step.put_local("own", np.arange(3.0) + t)
            with reader.step() as step:
                assert step.number == t and sorted(step) == ["T", "label", "own", "time"]
                np.testing.assert_array_equal(step["T"][...], VALUES + t)
                np.testing.assert_array_equal(step["T"][1:5, ::3, 2], VALUES[1:5, ::3, 2] + t)
                np.testing.assert_array_equal(step["T"].view(), VALUES + t)
                assert step["time"].value == 0.5 * t and step["label"].value == f"step {t}"
                assert step.attributes["unit"] == "K" and step["own"][...].tolist() == [t, t + 1, t + 2]
        T = space["s/T"]
        assert T.versions == [0, 1, 2]
        assert [version.number for version in T.subscribe(stop=3)] == [0, 1, 2]
        np.testing.assert_array_equal(T[2].get((slice(2), ...), order="F"), VALUES[:2] + 2)
        with pytest.raises(penstock.TimeoutError, match="step 3 is not complete: it waits for the writer"):
            reader.step(0.2)
        with join(context) as poller, poller.try_step() as step:
            assert step.number == 0
    with join(context) as reader:
        assert reader.steps == [0, 1, 2] and [step.number for step in reader] == [0, 1, 2]
        with reader[1] as step:
            assert step["T"][0, 0, 0] == 1
    with join(context, delivery="latest") as reader, reader.step() as step:
        assert step.number == 2
    with join(context, start="newest") as reader:
        assert [step.number for step in reader] == [2]
    with create(context) as writer:  # the stream before gives way, with its arrays
        assert "s/T" not in space
        with writer.step() as step:
            step["T"] = np.arange(4, dtype=np.int32)
    with join(context) as reader:
        assert [step["T"][...].tolist() for step in reader] == [[0, 1, 2, 3]]


def test_an_array_is_read_as_a_stream(context, space):
    with pytest.raises(penstock.TimeoutError, match=r"no writer has begun it.*no array has its name"):
        join(context, "T", timeout=0.3)
    T = space.define("T", "float64", VALUES.shape)
    with join(context, "T", start=2) as reader:
        T[1][...] = VALUES
        T[4][:3] = VALUES[:3]
        with pytest.raises(penstock.TimeoutError, match=r"version 4: not there in time: \[3, 6\)"):
            reader.step(0.3)
        T[4][3:] = VALUES[3:]
        with reader.step() as step:
            assert step.number == 4 and list(step) == ["T"] and step["T"].shape == VALUES.shape
            np.testing.assert_array_equal(step["T"][2:4, 1], VALUES[2:4, 1])
            assert not dict(step.attributes)
        assert reader.steps == [1, 4]
        assert space.drop("T")
        with pytest.raises(penstock.WriterLost, match="dropped"):
            reader.step()


def test_what_a_space_cannot_hold_is_refused(context, servers):
    with create(context) as writer:
        with writer.step() as step:
            step["v"] = np.zeros(8)
        with pytest.raises(penstock.Unsupported, match="'v' has shape 4 in step 1 and had 8 before"):
            with writer.step() as step:
                step["v"] = np.zeros(4)
        writer.define("w", float, (8,))
        with pytest.raises(penstock.AlreadyExists, match="other values"):
            with writer.step() as step:
                step.put("w", np.zeros(5), start=(0,))
                step.put("w", np.ones(5), start=(3,))
        with writer.step() as step:
            step["v"] = np.ones(8)
    with join(context) as reader:
        assert [step.number for step in reader] == [0, 3]
    with pytest.raises(penstock.InvalidArgument, match="set retain_steps"):
        create(context, retain_for="viz")
    with pytest.raises(penstock.InvalidArgument, match="queue_steps is an option of writers of engine direct"):
        create(context, queue_steps=2)


def test_the_later_writer_has_the_stream(context, servers):
    first = create(context)
    with first.step() as step:
        step["v"] = np.zeros(8)
    reader = join(context)
    with reader.step() as step:
        assert step.number == 0
    with create(context) as second:
        with pytest.raises(penstock.WrongState, match="has another writer now"):
            first.step()
        with pytest.raises(penstock.WriterLost, match="has another writer now"):
            reader.step()
        with second.step() as step:
            step["v"] = np.ones(8)
    first.close()
    with join(context) as late:
        assert [step["v"][0] for step in late] == [1]


def test_readers_hold_the_writer_back(context, space):
    with create(context, retain_steps=2, retain_for="viz") as writer:

        def write(t, timeout=20.0):
            with writer.step(timeout) as step:
                assert step.number == t
                step["v"] = np.full(8, t)

        write(0)
        write(1)
        with pytest.raises(penstock.TimeoutError, match=r"awaited: group 'viz', to read step 0"):
            write(2, 0.3)
        with pytest.raises(penstock.InvalidArgument, match="not held back for group 'vis', but for 'viz'"):
            join(context, group="vis")
        with join(context, group="viz") as reader, ThreadPoolExecutor(1) as thread:
            waits = thread.submit(write, 2)
            for t in range(3):
                with reader.step() as step:
                    assert step.number == t and step["v"][...].tolist() == [t] * 8
            waits.result(20)
            write(3)
            write(4)
            # What is not held back goes: this reader finds the two that are there.
            with join(context) as other:
                assert [other.step().number for _ in range(1)] == [3]
        assert space["s/v"].versions == [3, 4]


def test_steps_without_arrays_and_rare_variables_are_held_back_too(context, space):
    """Variable "rare" is in every third step, and steps 1, 4, ... have no array at all."""
    steps = 9

    def write():
        with create(context, retain_steps=2, retain_for="a,b") as writer:
            for t in range(steps):
                with writer.step() as step:
                    step["time"] = t
                    if t % 3 == 0:
                        step["rare"] = np.full(8, t)
                    if t % 3 == 2:
                        step["T"] = np.full(8, -t)

    def read(group, started, go_on):
        with join(context, group=group) as reader:
            for t, step in enumerate(reader):
                assert step.number == t and step["time"].value == t
                if t == 3:
                    started.release()
                    assert go_on.acquire(timeout=60)
                if t % 3 == 0:
                    assert step["rare"][...].tolist() == [t] * 8
                if t % 3 == 2:
                    assert step["T"][...].tolist() == [-t] * 8
        return t + 1

    started, go_on = threading.Semaphore(0), threading.Semaphore(0)
    with ThreadPoolExecutor(3) as threads:
        works = [threads.submit(write)] + [threads.submit(read, group, started, go_on) for group in "ab"]
        for _ in range(2):
            assert started.acquire(timeout=60)
        with join(context) as other:  # the writer waits for step 3, and so it has not begun step 5
            assert max(other.steps) <= 4
        go_on.release(2)
        works[0].result(60)
        assert [work.result(60) for work in works[1:]] == [steps, steps]
    assert space["s/rare"].versions == [] and space["s/T"].versions == [8]


def test_steps_that_nobody_reads_hold_nothing_back(context, space):
    """Steps that are void, or before the first one that a group wants."""
    with ThreadPoolExecutor(1) as threads:

        def write():
            with create(context, retain_steps=1, retain_for="viz,viz", timeout=60.0) as writer:
                for t in range(8):
                    with writer.step() as step:
                        step["v"] = np.full(8, t)
                        if t in (1, 2, 5):
                            step.abandon()

        work = threads.submit(write)
        with join(context, group="viz", timeout=60.0, start=2) as reader:
            assert [(step.number, step["v"][0]) for step in reader] == [(t, t) for t in (3, 4, 6, 7)]
        work.result(60)
    assert space["s/v"].versions == [7]


def test_steps_that_are_kept_are_read_while_the_next_is_written(context, space):
    with create(context, retain_steps=3) as writer:
        for t in range(5):
            with writer.step() as step:
                step["v"] = np.full(8, t)
        with writer.step() as step:
            step["v"] = np.full(8, 5)
            with join(context) as reader:
                assert reader.steps == [2, 3, 4]
                for t in reader.steps:
                    with reader.step() as read:
                        assert (read.number, read["v"][0]) == (t, t)
            assert context.inspect("s", engine="space")["steps"] == 3
        assert space["s/v"].versions == [3, 4, 5]


def test_a_read_of_a_step_that_has_gone_fails_at_once(context, space):
    with create(context, retain_steps=2) as writer, join(context) as reader:
        with writer.step() as step:
            step["v"], step["n"] = np.full(8, 0), 7
        with reader.step() as read:
            for t in range(1, 6):
                with writer.step() as step:
                    step["v"], step["n"] = np.full(8, t), 7
            for look in (lambda: read["v"][...], lambda: read["n"].value):
                with pytest.raises(penstock.NotFound, match="stream s: step 0 is no longer in the space"):
                    look()
        assert reader.step().number == 4


def test_an_array_that_somebody_drops_is_defined_anew(context, space):
    with create(context) as writer, join(context) as reader:
        with writer.step() as step:
            step["v"] = np.zeros(8)
        with reader.step() as step:
            assert step["v"][0] == 0
        assert space.drop("s/v")
        with pytest.raises(penstock.NotFound, match="dropped"):
            with writer.step() as step:
                step["v"] = np.ones(8)
        with writer.step() as step:
            step["v"] = np.full(8, 2.0)
        with reader.step() as step:
            assert step.number == 2 and step["v"][0] == 2


def test_a_writer_that_waits_is_told_of_its_successor(context, space):
    with create(context, retain_steps=1, retain_for="viz", timeout=60.0) as first:
        with first.step() as step:
            step["v"] = np.zeros(8)
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(first.step)
            with create(context):
                with pytest.raises(penstock.WrongState, match="has another writer now"):
                    waits.result(60)


WRITER = """
import sys
import penstock
stream = penstock.create("s", engine="space", timeout=20)
for t in range(2):
    with stream.step() as step:
        step["T"] = [float(t)] * 8
print("written", flush=True)
sys.stdin.readline()
"""


def test_a_writer_that_was_killed_is_lost(context, servers):
    with subprocess.Popen([sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout.readline() == b"written\n"
            with join(context) as reader:
                assert reader.step().number == 0 and context.inspect("s")["state"] == "open"
                writer.kill()
                writer.wait(20)
                assert reader.step().number == 1
                with pytest.raises(penstock.WriterLost, match=r"was killed, is stopped, .*; the last step read was 1"):
                    reader.step(60)
        finally:
            writer.kill()
    assert context.inspect("s")["state"] == "lost"
    with context.open("s", timeout=20.0) as late:  # found as one that is kept
        assert late.options["engine"] == "space" and [late.step().number for _ in range(2)] == [0, 1]
        with pytest.raises(penstock.WriterLost):
            late.step()
    with create(context) as second, second.step() as step:
        step["T"] = [2.0] * 8
    assert context.inspect("s")["state"] == "ended"


def test_what_writers_before_have_left_goes(context, space):
    for t in range(3):
        writer = create(context)
        with writer.step() as step:
            step[f"v{t}"] = np.zeros(8)
        old = writer.step()
        old["late"] = np.zeros(8)
        with create(context):
            with pytest.raises(penstock.WrongState, match="has another writer now"):
                old.end()
            writer.close()
        assert [array.name for array in space] == []


def test_a_writer_that_was_replaced_within_a_step_puts_nothing(context, space):
    first = create(context)
    with first.step() as step:
        step["v"] = np.zeros(8)
    old = join(context)
    read = old.step()
    late = first.step()
    late["v"] = np.full(8, 1.0)
    late["w"] = np.full(8, 1.0)
    with create(context) as second:
        with second.step() as step:
            step["v"] = np.full(8, 2.0)
        with pytest.raises(penstock.WriterLost, match="another writer now"):
            read["v"][...]  # step 0 is there again, of the second one
        with pytest.raises(penstock.WrongState, match="has another writer now"):
            late.end()
        with second.step() as step:
            step["v"] = np.full(8, 3.0)
            step["w"] = np.full(8, 3.0)
    old.close()
    first.close()
    with join(context) as reader:
        assert [step["v"][0] for step in reader] == [2.0, 3.0]
    assert space["s/v"].versions == [0, 1] and space["s/w"].versions == [1]


def test_a_stream_drops_its_own_arrays_only(context, space):
    for name in ("s/mine", "s/deep/T", "sT"):
        space.define(name, "float64", (8,))[0][...] = np.arange(8.0)
    with create(context) as writer:
        with writer.step() as step:
            step["v"] = np.zeros(8)
        with pytest.raises(penstock.AlreadyExists, match="'s/mine' already, which no stream has defined"):
            with writer.step() as step:
                step["mine"] = np.zeros(8)
    with create(context) as writer, writer.step() as step:
        step["w"] = np.zeros(8)
    assert sorted(array.name for array in space) == ["s/deep/T", "s/mine", "s/w", "sT"]
    for name in ("s/mine", "s/deep/T", "sT"):
        np.testing.assert_array_equal(space[name, 0][...], np.arange(8.0))


def test_readers_hold_a_writer_back_while_servers_die(context, pool_servers, monkeypatch):
    servers = pool_servers(3, replication=2, lease_ms=1000)
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    behind = threading.Semaphore(0)
    steps = 24

    def write():
        with create(context, timeout=60.0, retain_steps=2, retain_for="viz", acknowledge="replicated") as writer:
            for t in range(steps):
                with writer.step() as step:
                    step["T"] = VALUES + t
                    step["time"] = t

    def read():
        with join(context, timeout=60.0, group="viz") as reader:
            for t, step in enumerate(reader):
                assert step.number == t and step["time"].value == t
                np.testing.assert_array_equal(step["T"][...], VALUES + t)
                behind.release()
        return t + 1

    with ThreadPoolExecutor(2) as threads:
        works = [threads.submit(write), threads.submit(read)]
        for _ in range(3):
            assert behind.acquire(timeout=60)
        servers.stop_one(servers.servers[1], number=signal.SIGKILL)
        works[0].result(120)
        assert works[1].result(120) == steps


def test_a_stream_goes_on_when_a_server_dies(context, pool_servers, monkeypatch):
    servers = pool_servers(3, replication=2, lease_ms=1000)
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    behind = threading.Semaphore(0)

    def write():
        with create(context, timeout=60.0, acknowledge="replicated") as writer:
            for t in range(12):
                with writer.step() as step:
                    step["T"] = VALUES + t
                    step["time"] = t
                behind.release()

    def read():
        with join(context, timeout=60.0) as reader:
            for t, step in enumerate(reader):
                assert step.number == t and step["time"].value == t
                np.testing.assert_array_equal(step["T"][...], VALUES + t)
        return t

    with ThreadPoolExecutor(2) as threads:
        works = [threads.submit(write), threads.submit(read)]
        for _ in range(3):
            assert behind.acquire(timeout=60)
        servers.stop_one(servers.servers[1], number=signal.SIGKILL)
        works[0].result(120)
        assert works[1].result(120) == 11


def test_ranks_keep_so_many_steps_together(context, space):
    """No rank begins a version that makes another one's go before that is complete, however far ahead it is."""
    steps, ranks = 9, penstock.thread_cohort(2)

    def write(rank, cohort):
        with create(context, comm=cohort, retain_steps=2) as writer:
            for t in range(steps):
                with writer.step() as step:
                    step.put("v", np.full(4, t), start=(4 * rank,), shape=(8,))
                    if t == 3 and rank == 0:
                        step.abandon()

    with ThreadPoolExecutor(2) as threads:
        for work in [threads.submit(write, rank, cohort) for rank, cohort in enumerate(ranks)]:
            work.result(60)
    with join(context) as reader:
        assert reader.steps == [steps - 2, steps - 1]
        found = [(step.number, step["v"][...].tolist()) for step in reader]
    assert found == [(t, [t] * 8) for t in (steps - 2, steps - 1)]
    assert space["s/v"].versions == [steps - 2, steps - 1]
