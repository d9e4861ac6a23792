"""Streams, scenario by scenario, over every data plane (see test_scenarios.py): who comes when, queues, ends."""

import contextlib
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest

TIMEOUT_S = 20.0
PROCESS_S = 60.0


def eight(t):
    return np.arange(8.0) + 1000 * t


def write_step(writer, t=None, timeout=None):
    with writer.step(timeout) as step:
        step["v"] = eight(step.number if t is None else t)
    return step


def read_step(reader, t):
    with reader.step() as step:
        assert step.number == t
        np.testing.assert_array_equal(step["v"], eight(t))


@pytest.fixture
def create(context, plane):
    """create(name, **options); closed with the test, when its readers have gone."""
    with contextlib.ExitStack() as stack:
        yield lambda name="s", **options: stack.enter_context(
            context.create(name, **{"timeout": TIMEOUT_S, "data_plane": plane, **options})
        )


@pytest.fixture
def join(create, context, plane):  # create: so that readers leave first
    """join(name, **options); left with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda name="s", **options: stack.enter_context(
            context.open(name, **{"timeout": TIMEOUT_S, "data_plane": plane, **options})
        )


# ------------------------------------------------------------------------------------------------------ coming, leaving


def test_reader_starts_first(context, create, plane):
    with ThreadPoolExecutor() as pool:
        opening = threading.Event()

        def read():
            opening.set()
            with context.open("s", timeout=TIMEOUT_S, data_plane=plane) as reader:
                return [(step.number, step["v"][1]) for step in reader]

        reading = pool.submit(read)
        assert opening.wait(TIMEOUT_S)
        with pytest.raises(penstock.TimeoutError):
            context.open("s", timeout=0.03)
        writer = create()
        for t in range(5):
            write_step(writer, t)
        writer.close()
        assert reading.result(TIMEOUT_S) == [(t, 1 + 1000 * t) for t in range(5)]


def test_several_reader_cohorts(context, create, plane):
    writer = create(rendezvous_readers=3)

    def read(_):
        with context.open("s", timeout=TIMEOUT_S, data_plane=plane) as reader:
            return [step.number for step in reader if step["v"][0] == 1000 * step.number]

    with ThreadPoolExecutor(3) as pool:
        reading = pool.map(read, range(3), timeout=TIMEOUT_S)
        for t in range(20):
            write_step(writer, t)
        writer.close()
        assert list(reading) == [list(range(20))] * 3
    assert writer.statistics.steps == 20


def test_late_joiner_is_admitted_at_once(create, join, engine):
    writer = create(rendezvous_readers=0, reserve_steps=2)
    for t in range(5):
        write_step(writer, t)
    reader = join()  # from here on the writer does nothing
    for t in range(0 if engine == "pool" else 3, 5):  # the oldest of the reserve; a pool keeps every step
        read_step(reader, t)
    assert reader.try_step() is None


def test_early_leave(cohorts):
    def write(stream):
        for t in range(20):
            write_step(stream, t)

    def read(stream):
        for t in range(3):
            read_step(stream, t)

    cohorts(1, 1, write, read, queue_steps=1)


def test_rendezvous(create, join):
    with create("nobody", rendezvous_readers=0) as nobody:
        for t in range(10):
            write_step(nobody, t)
    writer = create(rendezvous_readers=2)
    assert writer.try_step() is None
    join()
    assert writer.try_step(timeout=0.01) is None
    with pytest.raises(penstock.TimeoutError, match="1 reader to join"):
        writer.step(timeout=0.001)
    join()
    writer.try_step(timeout=TIMEOUT_S).end()


# ---------------------------------------------------------------------------------------------------------- the queue


def test_queue_bounds_steps_and_names_who_holds_them(create, join):
    writer = create(queue_steps=2)
    reader = join()
    write_step(writer)
    write_step(writer)
    assert writer.try_step() is None
    with pytest.raises(penstock.TimeoutError, match="to release steps"):
        writer.step(timeout=0.001)
    read_step(reader, 0)
    writer.try_step(timeout=TIMEOUT_S).abandon()
    read_step(reader, 1)
    reader.close()
    writer.close()
    assert writer.statistics.steps_voided == 1


def test_queue_bounds_bytes(create, join):
    writer = create(queue_bytes="8MiB", queue_steps=4)
    reader = join()
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

    assert write(TIMEOUT_S) and write(TIMEOUT_S)
    assert not write(0.01)  # two steps of three MiB and a third do not fit in eight
    assert writer.statistics.memory_bytes <= 8 << 20
    reader.step().end()
    assert write(TIMEOUT_S)


def test_discard_newest(create, join):
    writer = create(queue_steps=2, when_full="discard_newest")
    reader = join()
    assert [write_dropped(writer) for _ in range(6)] == [False] * 2 + [True] * 4
    assert writer.statistics.steps_dropped == 4 == writer.statistics.peers[0].steps_dropped
    read_step(reader, 0)
    read_step(reader, 1)
    end = time.monotonic() + TIMEOUT_S
    while write_dropped(writer):  # until the releases have arrived
        assert time.monotonic() < end
    read_step(reader, writer.statistics.steps_dropped + 2)
    assert reader.statistics.steps_dropped == writer.statistics.steps_dropped


def write_dropped(writer):
    with writer.step(timeout=0) as step:
        step["v"] = eight(step.number)
        return step.dropped


def test_discard_oldest(create, join):
    writer = create(queue_steps=3, when_full="discard_oldest")
    reader = join()
    write_step(writer)
    with reader.step() as held:
        assert held.number == 0
        assert not any(write_dropped(writer) for _ in range(9))
        np.testing.assert_array_equal(held["v"], eight(0))  # a step being read is never dropped
    read_step(reader, 8)  # 1 to 7 gave way
    read_step(reader, 9)
    assert writer.statistics.steps_dropped == 7 == reader.statistics.steps_dropped


def test_dropped_steps_are_counted_on_both_sides(create, join):
    writer = create(queue_steps=2, when_full="discard_newest", rendezvous_readers=2)
    readers = [join(), join()]
    for t in range(5):
        write_step(writer, t)
    for reader in readers:
        read_step(reader, 0)
        read_step(reader, 1)
    assert (writer.statistics.steps, writer.statistics.steps_dropped) == (2, 3)
    assert [peer.steps_dropped for peer in writer.statistics.peers] == [3, 3]
    writer.close()
    for reader in readers:
        assert list(reader) == []
        assert (reader.statistics.steps, reader.statistics.steps_dropped) == (2, 3)


def test_first_step_kept_and_reserve(context, create, plane, engine):
    """In a pool, which keeps every step, the options that bound what is kept have no effect."""
    writer = create(rendezvous_readers=0, keep_first_step=True, reserve_steps=1, queue_steps=1)
    for t in range(7):
        write_step(writer, t)
    for _ in range(2):
        with context.open("s", timeout=TIMEOUT_S, data_plane=plane) as reader:
            for t in range(7) if engine == "pool" else (0, 6):
                read_step(reader, t)


def await_steps(writer, count, engine):
    """Until a pool has so many steps: it takes them a moment after their end. Elsewhere they are there at once."""
    end = time.monotonic() + TIMEOUT_S
    while engine == "pool" and writer.statistics.peers[0].steps_released < count:
        assert time.monotonic() < end


def test_delivery_latest(create, join, engine):
    writer = create(queue_steps=2)
    reader = join(delivery="latest")
    for t in range(5):
        write_step(writer, t)
    await_steps(writer, 5, engine)
    with reader.step() as step:
        assert step.number == 4
        for t in range(5, 9):  # while the reader holds one
            write_step(writer, t)
        await_steps(writer, 9, engine)
        np.testing.assert_array_equal(step["v"], eight(4))
    read_step(reader, 8)
    assert reader.try_step(timeout=0.001) is None
    write_step(writer, 9)
    read_step(reader, 9)


# --------------------------------------------------------------------------------------------- deadlines, registration


def test_deadlines(context, create, join):
    with pytest.raises(penstock.TimeoutError):
        context.open("absent", timeout=0.03)
    writer = create(queue_steps=1)
    with pytest.raises(penstock.TimeoutError):
        writer.step(timeout=0.001)  # no reader
    reader = join()
    assert reader.try_step() is None
    with pytest.raises(penstock.TimeoutError):
        reader.step(timeout=0.001)
    write_step(writer, 0)
    with pytest.raises(penstock.TimeoutError):
        writer.step(timeout=0.001)  # no room
    with reader.step() as step:
        np.testing.assert_array_equal(step["v"], eight(0))
        with pytest.raises(penstock.TimeoutError):
            writer.close(timeout=0.001)  # the reader holds the step
    with pytest.raises(penstock.EndOfStream):
        reader.step()


def test_registration(context, create, tmp_path):
    writer = create(rendezvous_readers=0)
    with pytest.raises(penstock.WrongState):
        context.create("s")
    with pytest.raises(penstock.InvalidArgument):
        context.create("../s")
    file = tmp_path / "streams" / "s.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [(entry.name, entry.alive) for entry in context.list_streams()] == [("s", True)]
    text = file.read_text()
    writer.close()
    assert not file.exists()
    # What a crash leaves behind is noticed, and gives way to a new writer.
    file.touch(0o600)
    file.write_text(text)
    del writer
    with pytest.raises(penstock.TimeoutError):
        context.open("s", timeout=0.05)
    assert not context.list_streams()[0].alive
    create(rendezvous_readers=0).close()


def test_address_and_wrong_token(create, tmp_path):
    writer = create()
    elsewhere = penstock.Context(directory=str(tmp_path / "elsewhere"), listen="127.0.0.1")
    wrong = writer.address[:-1] + ("1" if writer.address[-1] == "0" else "0")
    with pytest.raises(penstock.AuthenticationError):
        elsewhere.open(wrong, timeout=TIMEOUT_S)
    with elsewhere.open(writer.address, timeout=TIMEOUT_S) as reader:
        assert reader.name == "s"
        write_step(writer, 0)
        read_step(reader, 0)


# ---------------------------------------------------------------------------------------------------------------- ends


def test_writer_lost_is_not_the_end(context, plane, join):
    with pytest.raises(ZeroDivisionError):
        with context.create("s", timeout=TIMEOUT_S, data_plane=plane) as writer:
            reader = join()
            write_step(writer, 0)
            write_step(writer, 1)
            read_step(reader, 0)
            raise ZeroDivisionError("the simulation diverged")
    step = reader.step()
    assert step.number == 1  # announced
    if plane == "shm":  # mapped: still there
        np.testing.assert_array_equal(step["v"], eight(1))
    step.end()
    for _ in range(2):
        with pytest.raises(penstock.WriterLost) as lost:
            reader.step()
    assert isinstance(lost.value, ConnectionError)


def test_step_is_atomic_over_ranks(cohorts):
    def write(stream):
        for t in range(12):
            step = stream.step()
            step.put("v", np.array([float(t)]), start=(stream.rank,), shape=(3,))
            if t % 4 == 1 and stream.rank == 2:
                step.abandon()
            else:
                step.end()

    def read(stream):
        seen = []
        for step in stream:
            assert step["v"][...].tolist() == [step.number] * 3
            seen.append(step.number)
        assert seen == [t for t in range(12) if t % 4 != 1]  # one rank gave those up

    cohorts(3, 2, write, read)


# --------------------------------------------------------------------------------------- statistics, inspection, misuse


def test_statistics(create, join, plane, engine):
    reported = engine if plane == "automatic" else plane
    writer, reader = create(), join()
    for t in range(50):
        write_step(writer, t)
        read_step(reader, t)
    w, r = writer.statistics, reader.statistics
    copies = 0 if engine == "file" else 50  # it writes from the caller's array
    assert (w.steps, w.bytes, w.copies) == (50, 50 * 64, copies) and w.epochs <= 3
    assert [(peer.steps_delivered, peer.ranks) for peer in w.peers] == [(50, 1)]
    assert (r.steps, r.bytes, r.data_plane) == (50, 50 * 64, reported)
    assert r.plans_reused > r.plans_built
    if engine != "file":  # whose writer does not know its readers
        assert w.as_dict()["peers"][0]["data_plane"] == reported


def test_inspection_joins_nothing(context, create, join):
    writer = create(rendezvous_readers=0)
    for t in range(3):
        write_step(writer, t)
    found = context.inspect("s", timeout=TIMEOUT_S)
    assert found["steps"] == 3 and found["peers"] == [] and writer.statistics.peers == []
    reader = join()
    assert [peer["ranks"] for peer in context.inspect("s", timeout=TIMEOUT_S)["peers"]] == [1]
    reader.close()
    writer.close()
    with pytest.raises(penstock.NotFound):
        context.inspect("s", timeout=TIMEOUT_S)


def test_misuse_is_an_error_and_harms_nothing(context, create, join, engine):
    writer, reader = create(), join()
    writer.define("v", float, (8,))
    with pytest.raises(penstock.InvalidArgument):
        writer.define("v", float, (8,))
    with pytest.raises((penstock.Unsupported, penstock.InvalidArgument)):
        writer.define("names", str, (8,))
    with writer.step() as step:
        with pytest.raises(penstock.WrongState):
            writer.step()
        for array, place in (
            (np.zeros(5), {"start": (4,)}),
            (np.zeros((1, 1)), {"start": (0, 0)}),
            (np.zeros(8, np.int32), {}),
            (np.zeros(8, object), {}),
        ):
            with pytest.raises(penstock.InvalidArgument):
                step.put("v", array, **place)
        step["v"] = eight(0)
    with pytest.raises(penstock.WrongState):
        step.end()
    received = reader.step()
    with pytest.raises(penstock.WrongState):
        reader.step()
    np.testing.assert_array_equal(received["v"], eight(0))
    received.end()
    with pytest.raises(penstock.WrongState):
        received["v"]
    for stream in (reader, writer):
        stream.close()
        with pytest.raises(penstock.WrongState):
            stream.step()
    if engine == "direct":  # where configuration says which engine
        with pytest.raises(penstock.Unsupported):
            context.create("x", engine="dirct")
    with pytest.raises(penstock.UnknownOption, match="queue_steps"):
        context.create("x", queue_step=2)


# --------------------------------------------------------------------------------------------------- only Python's own


def test_gil_is_released_while_waiting(create, join):
    create()
    reader = join()
    ticks, stop = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not stop.is_set():
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        before = ticks
        assert reader.try_step(timeout=0.2) is None
        assert ticks - before > 1000
    finally:
        stop.set()
        thread.join(TIMEOUT_S)


# Says "waiting" once the main thread is in the library's wait.
INTERRUPTED = """
import sys, threading
import penstock

def watch(main):
    names = set()
    while "_wait_step" not in names:
        names, frame = set(), sys._current_frames()[main]
        while frame is not None:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
    print("waiting", flush=True)

plane, directory = sys.argv[1:]
context = penstock.Context(directory=directory, listen="127.0.0.1")
with context.create("s", timeout=50) as writer, context.open("s", timeout=50, data_plane=plane) as reader:
    threading.Thread(target=watch, args=[threading.get_ident()], daemon=True).start()
    try:
        reader.step()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    with writer.step() as step:  # nothing is harmed
        step["t"] = 7
    with reader.step() as step:
        print(step["t"].value, flush=True)
"""


def test_ctrl_c_interrupts_a_wait(plane, tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, plane, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "waiting\n"
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=PROCESS_S)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "interrupted\n7\n"), errors
    assert time.monotonic() - began < PROCESS_S / 2
