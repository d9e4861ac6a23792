"""Scenarios whose contract differs in a pool (see test_scenarios.py): the writer's queue is towards the pool, which
readers do not hold. A stopped server is a pool that takes nothing."""

import contextlib
import os
import signal

import numpy as np
import penstock
import pytest

TIMEOUT_S = 20.0


def eight(t):
    return np.arange(8.0) + 1000 * t


def write_step(writer, timeout=None):
    """Returns whether the step was kept."""
    with writer.step(timeout) as step:
        step["v"] = eight(step.number)
        return not step.dropped


def read_step(reader, t):
    with reader.step() as step:
        assert step.number == t
        np.testing.assert_array_equal(step["v"], eight(t))


@pytest.fixture
def create(context, plane):
    with contextlib.ExitStack() as stack:
        yield lambda name="s", **options: stack.enter_context(
            context.create(name, **{"timeout": TIMEOUT_S, "data_plane": plane, **options})
        )


@pytest.fixture
def join(create, context, plane):
    with contextlib.ExitStack() as stack:
        yield lambda name="s": stack.enter_context(context.open(name, timeout=TIMEOUT_S, data_plane=plane))


@pytest.fixture
def stopped(engine_servers):
    """stopped(): a block in which the pool's server does not answer."""

    @contextlib.contextmanager
    def stop():
        pid = engine_servers.servers[0].process.pid
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    return stop


def test_rendezvous(create, join):
    with create(rendezvous_readers=2) as writer:  # without effect
        for _ in range(10):
            write_step(writer)
    reader = join()  # after the writer
    for t in range(10):
        read_step(reader, t)
    with pytest.raises(penstock.EndOfStream):
        reader.step()


def test_queue_bounds_steps_and_names_who_holds_them(create, join, stopped):
    writer = create(queue_steps=2)
    with stopped():
        write_step(writer)
        write_step(writer)
        assert writer.try_step() is None
        with pytest.raises(penstock.TimeoutError, match="pool"):
            writer.step(timeout=0.001)
    writer.try_step(timeout=TIMEOUT_S).abandon()
    reader = join()
    read_step(reader, 0)
    read_step(reader, 1)
    writer.close()
    assert writer.statistics.steps_voided == 1


def test_queue_bounds_bytes(create, stopped):
    writer = create(queue_bytes="8MiB", queue_steps=4)
    data = np.zeros(3 << 20, np.uint8)
    with pytest.raises(penstock.StepTooLarge):
        with writer.step() as step:
            step["large"] = np.zeros(16 << 20, np.uint8)

    def write(timeout):
        step = writer.try_step(timeout)
        if step is None:
            return False
        with step:
            step["v"] = data
        return True

    with stopped():
        assert write(TIMEOUT_S) and write(TIMEOUT_S)
        assert not write(0.01)  # two steps of three MiB and a third do not fit in eight
        assert writer.statistics.memory_bytes <= 8 << 20
    assert write(TIMEOUT_S)


def test_discard_newest(create, join, stopped):
    writer = create(queue_steps=2, when_full="discard_newest")
    with stopped():
        assert [write_step(writer, 0) for _ in range(6)] == [True] * 2 + [False] * 4
        assert writer.statistics.steps_dropped == 4 == writer.statistics.peers[0].steps_dropped
    reader = join()
    read_step(reader, 0)
    read_step(reader, 1)
    while not write_step(writer, 0):  # until the pool has released them
        pass
    read_step(reader, writer.statistics.steps_dropped + 2)


def test_discard_oldest(create, join, stopped):
    writer = create(queue_steps=3, when_full="discard_oldest")
    with stopped():
        assert all(write_step(writer, 0) for _ in range(10))
        assert writer.statistics.steps_dropped == 7
    reader = join()
    for t in (0, 8, 9):  # 0 was announced to the pool, which may read it
        read_step(reader, t)


def test_deadlines(context, create, join, stopped):
    with pytest.raises(penstock.TimeoutError):
        context.open("absent", timeout=0.03)
    writer = create(queue_steps=1)
    reader = join()
    assert reader.try_step() is None
    with pytest.raises(penstock.TimeoutError):
        reader.step(timeout=0.001)
    with stopped():
        write_step(writer)  # nobody is waited for
        with pytest.raises(penstock.TimeoutError, match="pool"):
            writer.step(timeout=0.001)  # no room
        with pytest.raises(penstock.TimeoutError):
            reader.step(timeout=0.001)
        with pytest.raises(penstock.TimeoutError):
            context.create("other", timeout=0.03)
        with pytest.raises(penstock.TimeoutError, match="before every step was in pool"):
            writer.close(timeout=0.001)
    with pytest.raises(penstock.WriterLost):
        read_step(reader, 0)  # which is there if the pool had its memory when the writer left
        reader.step()


def test_registration(context, create, tmp_path):
    """The pool's record of a stream is its registration: no file says who writes it."""
    writer = create()
    with pytest.raises(penstock.WrongState):
        context.create("s")
    with pytest.raises(penstock.InvalidArgument):
        context.create("../s")
    assert not (tmp_path / "streams" / "s.json").exists()
    with penstock.Pool(context=context, ns="penstock.streams") as inside:
        with pytest.raises(penstock.Forbidden):
            inside.get("stream/s", "stream")
    assert context.inspect("s", TIMEOUT_S)["state"] == "open"
    with pytest.raises(ZeroDivisionError):
        with writer:
            raise ZeroDivisionError("the simulation diverged")
    assert context.inspect("s", TIMEOUT_S)["state"] == "lost"
    again = create()
    assert context.inspect("s", TIMEOUT_S)["state"] == "open"
    again.close()
    assert context.inspect("s", TIMEOUT_S)["state"] == "ended"


def test_address_and_wrong_token(create, plane, tmp_path, monkeypatch):
    """The address is that of the pool's directory: with it a stream is opened from anywhere."""
    writer = create()
    elsewhere = penstock.Context(directory=str(tmp_path / "elsewhere"), listen="127.0.0.1")
    address = os.environ["PENSTOCK_DIRECTORY_SERVICE"]
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", address[:-1] + ("1" if address[-1] == "0" else "0"))
    with pytest.raises(penstock.AuthenticationError):
        elsewhere.open("s", timeout=TIMEOUT_S)
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", address)
    with elsewhere.open("s", timeout=TIMEOUT_S, data_plane=plane) as reader:
        write_step(writer)
        read_step(reader, 0)


def test_inspection_joins_nothing(context, create, join):
    writer = create()
    for _ in range(3):
        write_step(writer)
    reader = join()
    while len(reader.steps) < 3:  # a pool has a step a moment after its end
        pass
    found = context.inspect("s", timeout=TIMEOUT_S)
    assert (found["steps"], found["readers"]) == (3, 0)  # none has asked for a step
    read_step(reader, 0)
    assert context.inspect("s", timeout=TIMEOUT_S)["readers"] == 1
    with pytest.raises(penstock.NotFound):
        context.inspect("absent", timeout=TIMEOUT_S)
