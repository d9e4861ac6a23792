"""Ctrl-C while a call waits: KeyboardInterrupt at once, in a process of its own, and what holds afterwards."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest

TIMEOUT_S = 60  # of the calls that are interrupted, too
SOON_S = 5  # far less than that; what was seen is printed

CHILD = """
import signal, sys, time
import numpy as np
import penstock

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
directory, name = sys.argv[1:]
context = penstock.Context(listen="127.0.0.1")
pool = penstock.Pool(context=context, directory=directory, timeout=60) if directory else None
OPTIONS = {"engine": "pool", "timeout": 60} if directory else {"engine": "direct", "timeout": 60, "data_plane": "tcp"}


def say(*words):
    print(*words, flush=True)


def works():
    pool.put("after", name, b"x", if_exists="overwrite")
    assert pool.need("after", name).bytes() == b"x"
    assert [info.column for info in pool.wait_row("after", 1)]


def interrupted(call):
    say("ready")
    sys.stdin.readline()
    try:
        call()
    except KeyboardInterrupt:
        say("interrupted", time.monotonic())
    else:
        say("it returned")
        sys.exit(1)


def waits():
    calls = {
        "need": lambda: pool.need("never", "x"),
        "want": lambda: pool.want("never", "x").wait(),
        "get_many": lambda: pool.get_many([("never", "x"), ("never", "y")], wait=True),
        "wait_row": lambda: pool.wait_row("never", 3),
        "compute": lambda: pool.compute("sum", [("never", "x")], wait=True),
    }
    interrupted(calls[name])
    works()


def puts():
    large = bytes(10 << 20)
    pool.put("large", "first", large)
    second = bytes(range(256)) * (40 << 10)
    if name == "put":
        interrupted(lambda: pool.put("large", "second", second))
    else:
        interrupted(lambda: pool.put_many([(("large", "second"), second)]))
    kept = bytes(second)
    del second
    # It goes on until its own deadline, with its bytes.
    pool.drop("large", "first")
    assert pool.need("large", "second").bytes() == kept
    pool.drop("large", "second")
    works()


def reads():
    with context.open("heat", **OPTIONS) as stream:
        if name != "begin_step":
            with stream.step() as step:
                assert step.number == 0
        interrupted(stream.step)
        say("go on")
        for number in range(name != "begin_step", 3):
            with stream.step() as step:
                assert step.number == number and np.all(step["T"][:] == number), (step.number, number)


def fetches():
    with context.open("heat", **OPTIONS) as stream:
        step = stream.step()
        interrupted(lambda: step["T"][:])
        say("go on")
        assert np.all(step["T"][:] == 0), "the step is still there"
        step.end()
        with stream.step() as step:
            assert np.all(step["T"][:] == 1)


def looks():
    calls = {
        "inspect": lambda: context.inspect("heat", timeout=60),
        "open": lambda: context.open("heat", timeout=60),
        "open_absent": lambda: context.open("absent", timeout=60),
    }
    interrupted(calls[name])
    say("go on")
    sys.stdin.readline()
    assert context.inspect("heat", timeout=60)["peers"] == []
    with context.open("heat", **OPTIONS) as stream, stream.step() as step:
        assert np.all(step["T"][:] == 0)


looking = dict.fromkeys(("inspect", "open", "open_absent"), looks)
{"put": puts, "put_many": puts, "begin_step": reads, "silent": reads, "fetch": fetches, **looking}.get(name, waits)()
say("done")
"""

WRITER = """
import sys
import numpy as np
import penstock

with penstock.create("heat", engine="direct", data_plane="tcp", timeout=60, queue_steps=4) as stream:
    for number in range(2):
        with stream.step() as step:
            step["T"] = np.full(1_000_000, float(number))
    print("written", flush=True)
    sys.stdin.readline()
"""


class Child:
    def __init__(self, code, *words, cwd):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        environment["PENSTOCK_DIRECTORY"] = str(cwd / "registration")
        if words and words[0]:
            environment["PENSTOCK_DIRECTORY_SERVICE"] = words[0]
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words], cwd=cwd, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def hear(self, word):
        line = self.process.stdout.readline().split()
        assert line and line[0] == word, (line, self.process.stderr.read() if not line else "")
        return line[1:]

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def waits(self, looks=10):
        """Returns once its main thread sleeps, for a while: then it is inside the call."""
        asleep, until = 0, time.monotonic() + TIMEOUT_S
        while asleep < looks:
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            asleep = asleep + 1 if state == "S" else asleep // 2  # it looks for signals now and then
            assert state != "Z", self.process.communicate()
            assert time.monotonic() < until
            threading.Event().wait(0.01)  # /proc has no waiting form

    def interrupt(self, looks=10):
        """Ctrl-C; how long it took, in seconds."""
        self.waits(looks)
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        (ended,) = self.hear("interrupted")
        return float(ended) - began

    def end(self):
        _, messages = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, messages


@pytest.fixture
def child(tmp_path):
    started = []

    def start(code, *words):
        started.append(Child(code, *words, cwd=tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


@contextmanager
def silent(process):
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # until its last thread has stopped
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@pytest.fixture
def soon():
    def check(seconds):
        assert seconds < SOON_S

    return check


@pytest.mark.parametrize("call", ["need", "want", "get_many", "wait_row", "compute", "put", "put_many"])
def test_a_pools_call(pool_servers, child, soon, call):
    servers = pool_servers(1, memory="16MiB", http="off")
    one = child(CHILD, servers.directory, call)
    one.hear("ready")
    one.go()
    soon(one.interrupt())
    one.hear("done")
    one.end()


@pytest.mark.parametrize("call", ["begin_step", "silent"])
def test_a_step_of_a_stream_in_a_pool(pool_servers, child, soon, context, monkeypatch, call):
    """begin_step: none is there; silent: the server has stopped, and does not even say that."""
    servers = pool_servers(1, memory="64MiB", http="off", lease_ms="60000")
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    with context.create("heat", engine="pool", timeout=TIMEOUT_S) as writer:

        def write(number):
            with writer.step() as step:
                step["T"] = np.full(1000, float(number))

        if call == "silent":
            write(0)
        one = child(CHILD, servers.directory, call)
        one.hear("ready")
        with silent(servers.servers[0].process) if call == "silent" else nullcontext():
            one.go()
            soon(one.interrupt())
        one.hear("go")
        for number in range(call == "silent", 3):
            write(number)
        one.hear("done")
        one.end()


def test_bytes_of_a_writer_that_has_stopped(child, soon):
    writer = child(WRITER)
    one = child(CHILD, "", "fetch")
    writer.hear("written")
    one.hear("ready")
    with silent(writer.process):
        one.go()
        soon(one.interrupt())
    one.hear("go")
    one.hear("done")
    one.end()
    writer.go()
    writer.end()


ALONE = WRITER.replace("queue_steps=4", "queue_steps=4, rendezvous_readers=0, reserve_steps=2")


@pytest.mark.parametrize("call", ["inspect", "open", "open_absent"])
def test_a_stream_whose_writer_has_stopped(child, soon, call):
    writer = child(ALONE)
    writer.hear("written")
    one = child(CHILD, "", call)
    one.hear("ready")
    with silent(writer.process):
        one.go()
        soon(one.interrupt())
        one.hear("go")
    one.go()
    one.hear("done")
    one.end()
    writer.go()
    writer.end()


def test_open_ends_about_100_ms_after(child):
    """The fastest of a few: the machine may be slow, but not each time. After a second: all early tries are short."""
    writer = child(ALONE)
    writer.hear("written")
    took = []
    with silent(writer.process):
        for _ in range(4):
            one = child(CHILD, "", "open")
            one.hear("ready")
            one.go()
            took.append(one.interrupt(looks=100))
    assert min(took) < 0.4, took


HANDLER = """
import signal, sys
import penstock

with penstock.Pool(directory=sys.argv[1], timeout=60) as pool:
    heard = []

    def handler(*_):
        pool.put("row", "from the handler", b"x")
        heard.append(1)

    signal.signal(signal.SIGINT, handler)
    print("ready", flush=True)
    assert pool.need("row", "x").bytes() == b"x", "a handler that raises nothing ends no wait"
    assert heard
    print("done", flush=True)
"""


def test_a_handler_that_raises_nothing_ends_no_wait(pool_servers, open_pool, child):
    servers = pool_servers(1, http="off")
    one = child(HANDLER, servers.directory)
    one.hear("ready")
    one.waits()
    one.process.send_signal(signal.SIGINT)
    pool = open_pool(servers)
    pool.need("row", "from the handler")
    pool.put("row", "x", b"x")
    one.hear("done")
    one.end()


NESTED = """
import faulthandler, signal
import penstock

faulthandler.dump_traceback_later(30, exit=True)
context = penstock.Context(listen="127.0.0.1")
options = {"engine": "pool", "timeout": 60}
with context.create("heat", **options), context.open("heat", **options) as a, context.open("heat", **options) as b:
    heard = []

    def first(*_):
        print("first", flush=True)
        b._core.begin_step(60_000)

    def second(*_):
        for stream in (a, b):
            try:
                stream._core.begin_step(0)
            except penstock.WrongState:
                heard.append(stream)
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, first)
    signal.signal(signal.SIGUSR2, second)
    print("ready", flush=True)
    try:
        a._core.begin_step(60_000)  # in one piece: step() waits in many, and handlers run between them
    except KeyboardInterrupt:
        assert heard == [a, b]
        print("done", flush=True)
"""


def test_a_handler_within_a_handler_is_told_that_its_thread_is_inside(pool_servers, child):
    one = child(NESTED, pool_servers(1, http="off").directory)
    one.hear("ready")
    one.waits()
    one.process.send_signal(signal.SIGUSR1)
    one.hear("first")
    one.waits()
    one.process.send_signal(signal.SIGUSR2)
    one.hear("done")
    one.end()


@pytest.fixture
def alarm():
    """alarm() has KeyboardInterrupt raised in the main thread, soon: call it where that is expected already."""
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.05)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


def test_other_threads_are_not_interrupted(pool_servers, open_pool, alarm):
    """Signals are the main thread's; a call of another goes on."""
    pool, outcome = open_pool(pool_servers(1, http="off")), []
    thread = threading.Thread(target=lambda: outcome.append(pool.need("row", "x").bytes()))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        alarm()
        pool.wait_row("row", 2)
    pool.put("row", "x", b"x")
    thread.join(TIMEOUT_S)
    assert outcome == [b"x"]


def test_a_pool_that_does_not_come(pool_servers, context, monkeypatch, alarm):
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", pool_servers(1, http="off").directory)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        alarm()
        context.create("heat", engine="pool", pool="absent", timeout=TIMEOUT_S)
    assert time.monotonic() - began < SOON_S


def test_again_and_again(pool_servers, open_pool, alarm):
    pool = open_pool(pool_servers(1, http="off"))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            alarm()
            pool.wait_row("row", 1)
    assert list(pool.list("row")) == []


class InterruptedOnce:
    """A stream's core; a signal comes at the moment when a step has begun."""

    def __init__(self, core):
        self._core, self._signal = core, True

    def __getattr__(self, name):
        return getattr(self._core, name)

    def try_begin_step(self, timeout_ms):
        outcome = self._core.try_begin_step(timeout_ms)
        if outcome in (True, "ready") and self._signal:
            self._signal = False
            signal.raise_signal(signal.SIGINT)
        return outcome


def test_a_step_that_came_with_the_signal_is_given_by_the_next_call(context):
    with context.create("heat", timeout=TIMEOUT_S) as writer, context.open("heat", timeout=TIMEOUT_S) as reader:
        writer._core, reader._core = InterruptedOnce(writer._core), InterruptedOnce(reader._core)
        with pytest.raises(KeyboardInterrupt):
            writer.step()
        for t in range(3):
            with writer.step() as step:
                step["t"] = t
        with pytest.raises(KeyboardInterrupt):
            reader.step()
        for t in range(3):
            with reader.step() as step:
                assert step.number == t and step["t"].value == t


def test_a_step_that_came_with_the_signal_is_given_up_by_closing(context):
    with context.create("heat", timeout=TIMEOUT_S) as writer, context.open("heat", timeout=TIMEOUT_S) as reader:
        with writer.step() as step:
            step["t"] = 0
        with reader.step() as step:
            assert step["t"].value == 0
        writer._core = InterruptedOnce(writer._core)
        with pytest.raises(KeyboardInterrupt):
            writer.step()
        writer.close()
        assert list(reader) == []
