"""The data plane ucx between programs: links both ways, peers that die, stop, or leave without a word."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress

import numpy as np
import penstock
import pytest
from refusals import without_refusals

TIMEOUT_S = 30.0
SIZE = 400_000  # elements of 8 bytes: several of UCX's messages
PROGRAM = """
import sys
import numpy as np
import penstock
me, other, folder = sys.argv[1:4]
context = penstock.Context(directory=folder, listen="127.0.0.1")
size = 400_000


def create(name):
    return context.create(name, data_plane="ucx", timeout=30)


def put(stream, t):
    with stream.step() as step:
        step["x"] = np.full(size, t, "f8")


def take(stream, t):
    with stream.step() as step:
        values = step["x"][:]
    assert values.shape == (size,) and (values == t).all()


"""
BOTH_WAYS = """
for turn in range(6):
    out, into = create(f"{me}{turn}"), context.open(f"{other}{turn}", data_plane="ucx", timeout=30)
    for t in range(3):
        put(out, t)
        take(into, t)
    goes_on = (me == "a") == (turn % 2 == 0)  # the other direction ends first
    (into if goes_on else out).close()
    for t in range(3, 6):
        put(out, t) if goes_on else take(into, t)
    (out if goes_on else into).close()
"""
WRITE = """
stream = create(me)
print("ready", flush=True)
for t in range(1_000_000):
    put(stream, t)
"""
READ = """
reader = context.open(me, data_plane="ucx", timeout=30)
for t in range(1_000_000):
    take(reader, t)
    print("took", t, flush=True)
"""
THREE_STEPS = """
stream = create(me)
for t in range(3):
    put(stream, t)
sys.stdin.readline()
"""
ALONE = """
writer = create(me)
reader = context.open(me, data_plane="ucx", timeout=30)
"""
SIZES = (
    ALONE
    + """
for t in range(20):
    sizes = [20_000, 60_000, 150_000, 400_000, 1_000_000, 5_000_000]
    with writer.step() as step:
        for size in sizes:
            step[f"x{size}"] = np.full(size, t, "u1")
    with reader.step() as step:
        for size in sizes:
            assert (step[f"x{size}"][:] == t).all()
"""
)
AT_ONCE = """
import threading
count = 150  # more than UCX's listener lets in of strangers
together = threading.Barrier(count)
failures = []


def read():
    try:
        with context.open(me, data_plane="ucx", timeout=30) as reader, reader.step(timeout=30) as step:
            together.wait(30)
            assert (step["x"].read(timeout=30) == 1).all()
    except Exception as error:
        failures.append(repr(error))


readers = [threading.Thread(target=read) for _ in range(count)]
for each in readers:
    each.start()
for each in readers:
    each.join()
assert not failures, (len(failures), failures[0])
"""


@pytest.fixture(autouse=True)
def ucx(context):
    try:
        context.create("probe", data_plane="ucx", rendezvous_readers=0, timeout=TIMEOUT_S).close()
    except penstock.Unsupported as missing:
        pytest.skip(str(missing))


@contextmanager
def program(tmp_path, text, *words):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + text, *words, str(tmp_path / "streams")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def test_links_both_ways_end_one_by_one(tmp_path):
    with program(tmp_path, BOTH_WAYS, "a", "b") as first, program(tmp_path, BOTH_WAYS, "b", "a") as second:
        for process in (first, second):
            _, errors = process.communicate(timeout=2 * TIMEOUT_S)
            assert process.returncode == 0 and without_refusals(errors) == "", errors


def test_an_answer_may_come_before_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("UCX_MAX_EAGER_RAILS", "2")  # UCX keeps no order among the parts of a message
    monkeypatch.setenv("UCX_RNDV_THRESH", "64M")
    with program(tmp_path, SIZES, "heat", "-") as alone:
        _, errors = alone.communicate(timeout=2 * TIMEOUT_S)
        assert alone.returncode == 0 and without_refusals(errors) == "", errors


def test_why_ucx_does_not_start_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("UCX_TLS", "nosuch")
    with program(tmp_path, ALONE + "put(writer, 1)\ntake(reader, 1)\n", "heat", "-") as alone:
        _, errors = alone.communicate(timeout=2 * TIMEOUT_S)
    # A traceback's last line is written in pieces: a line of the log may come in between.
    assert "Unsupported" in errors and ": writer rank 0: UCX does not start: No such device" in errors


def test_many_readers_begin_at_once(context, tmp_path):
    writer = context.create("heat", data_plane="ucx", rendezvous_readers=150, timeout=TIMEOUT_S)
    with writer, program(tmp_path, AT_ONCE, "heat", "-") as readers:
        with writer.step() as step:
            step["x"] = np.ones(SIZE // 20)
        _, errors = readers.communicate(timeout=2 * TIMEOUT_S)
        assert readers.returncode == 0 and without_refusals(errors) == "", errors


def take(reader):
    with reader.step() as step:
        values = step["x"][:]
    assert values.shape == (SIZE,) and (values == values[0]).all()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_writer_that_dies_is_lost(context, tmp_path, end):
    with (
        program(tmp_path, WRITE, "heat", "-") as writer,
        context.open("heat", data_plane="ucx", timeout=TIMEOUT_S) as reader,
    ):
        for _ in range(5):
            take(reader)
        os.kill(writer.pid, end)
        with pytest.raises((penstock.WriterLost, penstock.PeerLost)):
            while True:
                take(reader)


def test_a_writer_that_stands_still_is_a_timeout_and_goes_on(context, tmp_path):
    with (
        program(tmp_path, WRITE, "heat", "-") as writer,
        context.open("heat", data_plane="ucx", timeout=TIMEOUT_S) as reader,
    ):
        take(reader)
        os.kill(writer.pid, signal.SIGSTOP)
        try:
            with pytest.raises(penstock.TimeoutError):
                for _ in range(20):  # what is announced already can be begun
                    with reader.step(timeout=1) as step:
                        step["x"].read(timeout=1)
        finally:
            os.kill(writer.pid, signal.SIGCONT)
        take(reader)


def test_the_writer_survives_readers_that_die(context, tmp_path):
    room = {"queue_steps": 5, "when_full": "discard_oldest"}  # for each step before the death
    for _ in range(3):
        with context.create("heat", data_plane="ucx", **room, timeout=TIMEOUT_S) as writer:
            with program(tmp_path, READ, "heat", "-") as reader:
                for t in range(5):
                    with writer.step() as step:
                        step["x"] = np.full(SIZE, t, "f8")
                assert reader.stdout.readline() == "took 0\n"
                reader.kill()
                for t in range(5, 10):
                    with writer.step() as step:
                        step["x"] = np.full(SIZE, t, "f8")


def test_links_that_wait_take_no_processor(context):
    writer = context.create("heat", data_plane="ucx", timeout=TIMEOUT_S)
    with writer, context.open("heat", data_plane="ucx", timeout=TIMEOUT_S) as reader:
        with writer.step() as step:
            step["x"] = np.zeros(SIZE)
        take(reader)
        before = time.process_time()
        threading.Event().wait(2.0)
        assert time.process_time() - before < 0.5


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "stream.close()"])
def test_a_program_leaves_without_a_crash(context, tmp_path, end):
    for _ in range(3):
        with program(tmp_path, THREE_STEPS + end, "heat", "-") as writer:
            with context.open("heat", data_plane="ucx", timeout=TIMEOUT_S) as reader:
                for _ in range(3):
                    take(reader)
                _, errors = writer.communicate(timeout=TIMEOUT_S)
            assert (writer.returncode, without_refusals(errors)) == (3 if "exit" in end else 0, "")


def test_strangers_at_its_ports_harm_nobody(context, tmp_path):
    """Some say nothing, too little or anything, and leave or stay; they go on until the writer has ended.

    UCX's listener would make it crash: it is open only while links begin.
    """

    def bother():
        held = deque()
        while writer.poll() is None:
            for where in ports:
                with suppress(OSError):
                    held.append(socket.create_connection(where, TIMEOUT_S))
                    held[-1].send(os.urandom(random.choice([0, 1, 8, 16, 100, 4096, 70_000])))
            while len(held) > 100:
                held.popleft().close()
        for stranger in held:
            stranger.close()

    with program(tmp_path, THREE_STEPS, "heat", "-") as writer:
        with context.open("heat", data_plane="ucx", timeout=TIMEOUT_S) as reader:
            take(reader)
            threading.Event().wait(0.5)
            ports = list(listening(writer.pid))
            strangers = threading.Thread(target=bother)
            strangers.start()
            threading.Event().wait(3.0)
            take(reader)
            take(reader)
            writer.communicate(timeout=TIMEOUT_S)
            strangers.join()
        assert writer.returncode == 0


def listening(pid):
    """The addresses at which a process listens on this host, by IPv4."""
    sockets = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    for local, state, inode in ((row[1], row[3], row[9]) for row in rows):
        if state == "0A" and f"socket:[{inode}]" in sockets:
            host, port = local.split(":")
            yield socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)


def test_a_pool_moves_objects_over_it_when_its_servers_offer_it(pool_servers):
    values = np.arange(SIZE, dtype="f8")
    offering = pool_servers(1, memory="256MiB", http="off", data_plane="ucx")
    with penstock.Pool(directory=offering.directory, data_plane="ucx", timeout=TIMEOUT_S) as pool:
        pool.put("row", "x", values)
        assert (np.frombuffer(pool.get("row", "x").bytes()) == values).all()


def test_a_pool_that_does_not_offer_it_says_so(pool_servers):
    servers = pool_servers(1, memory="256MiB", http="off")
    with pytest.raises(penstock.Unsupported, match="does not offer the data plane ucx; start it with data_plane=ucx"):
        penstock.Pool(directory=servers.directory, data_plane="ucx", timeout=5).put("row", "x", b"1")
