"""After fork: what a child has of Penstock is its parent's. Calls on it say so, and nothing of it harms the parent."""

import os
import signal
import subprocess
import sys

import numpy as np
import penstock
import pytest

PROCESS_S = 120.0

CHILD = """
import gc, json, os, signal, sys, warnings
warnings.simplefilter("ignore")  # of forking with threads
import numpy as np
import penstock
signal.alarm(60)

def in_a_child(calls, then=lambda: None):
    # What each call comes to there, as text.
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        came = {}
        for name, call in calls.items():
            try:
                came[name] = f"returned {call()!r}"
            except Exception as error:
                came[name] = f"{type(error).__name__}: {error}"
        del calls, call
        then()
        gc.collect()
        os.write(write_end, json.dumps(came).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        came = json.load(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for name, what in came.items():
        print(name, what, flush=True)
"""

STREAMS = (
    CHILD
    + """
context = penstock.Context(directory=sys.argv[1], listen="127.0.0.1")
with context.create("heat", timeout=30, queue_steps=1, data_plane=sys.argv[2]) as writer:
    with context.open("heat", timeout=30, data_plane=sys.argv[2]) as reader:
        with writer.step() as step:
            step["T"] = np.arange(3.0)
        read = reader.step()
        variable, held = read["T"], [read["T"].view()]
        calls = {
            "writer.statistics": lambda: writer.statistics,
            "writer.step": writer.step,
            "writer.try_step": writer.try_step,
            "writer.define": lambda: writer.define("x", "f8", (1,)),
            "writer.attributes": lambda: writer.attributes.__setitem__("a", 1),
            "reader.statistics": lambda: reader.statistics,
            "reader.step": reader.step,
            "reader.try_step": reader.try_step,
            "reader.steps": lambda: reader.steps,
            "reader.seek": lambda: reader.seek(0),
            "step.list": lambda: list(read),
            "step.attributes": lambda: dict(read.attributes),
            "step.end": read.end,
            "variable.read": lambda: variable[:],
            "variable.view": variable.view,
            "variable.blocks": lambda: variable.blocks,
            "variable.min_max": lambda: variable.min_max,
            "context.create": lambda: context.create("other"),
            "context.open": lambda: context.open("heat"),
            "context.list_streams": context.list_streams,
            "context.inspect": lambda: context.inspect("heat"),
        }
        in_a_child(calls, held.clear)
        # The parent has its step still: the child's view has given nothing back.
        assert writer.try_step(0.2) is None and held[0].sum() == 3 and variable[:].sum() == 3
        read.end()
        held.clear()
        with writer.step() as step:
            step["T"] = np.arange(3.0)
        with reader.step() as step:
            assert step["T"][:].sum() == 3
        written = writer.step()
        calls = {
            "step.put": lambda: written.put("T", np.zeros(3)),
            "step.span": lambda: written.span("T"),
            "step.end": written.end,
        }
        in_a_child(calls)
        calls = {"writer.close": writer.close, "reader.close": reader.close}
        in_a_child(calls)
        written["T"] = np.arange(3.0)
        written.end()
        with reader.step() as step:
            assert step["T"][:].sum() == 3
assert writer.statistics.steps == 3
in_a_child({"closed.statistics": lambda: writer.statistics})
print("done")
"""
)

POOLS = (
    CHILD
    + """
pool = penstock.Pool(directory=sys.argv[1], timeout=30)
pool.put("row", "x", np.arange(1 << 18))
context = penstock.Context(directory=sys.argv[1], listen="127.0.0.1", fixed="directory")
with context.create("heat", engine="pool", timeout=30) as writer, writer.step() as step:
    step["T"] = np.arange(1 << 18)
reader = context.open("heat", engine="pool", timeout=30)
read = reader.step()
held = [pool.get("row", "x"), read["T"].view()]
events, want = pool.subscribe("row"), pool.want("row", "late")
pending = pool.start_put("row", "y", b"y")
calls = {
    "put": lambda: pool.put("row", "z", b""), "get": lambda: pool.get("row", "x"), "list": lambda: list(pool.list()),
    "need": lambda: pool.need("row", "x"), "info": lambda: pool.info("row", "x"), "drop": lambda: pool.drop("row", "x"),
    "put_many": lambda: pool.put_many([(("row", "z"), b"")]), "wait_row": lambda: pool.wait_row("row", 1),
    "subscribe": pool.subscribe, "status": pool.status, "streams": pool.streams, "name": lambda: pool.name,
    "events.next": lambda: events.next(1), "events.lost": lambda: events.lost, "want.wait": want.wait,
    "want.done": want.done, "reader.step": reader.step, "step.end": read.end,
    "pending.wait": pending.wait, "pending.done": pending.done,
}
in_a_child(calls, held.clear)
assert pending.wait() == 1 and held[0].array()[-1] == held[1][-1] == (1 << 18) - 1
held.clear()
read.end()
reader.close()
pool.put("row", "late", b"late")
assert want.wait().bytes() == b"late" and events.next(30).what == "put"
in_a_child({"pool.close": pool.close, "events.close": events.close})
assert pool.get("row", "late").bytes() == b"late"
pool.close()
print("done")
"""
)


def child_says(code, *words, cwd):
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=cwd, env=os.environ | {"PENSTOCK_DIRECTORY": str(cwd)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROCESS_S,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines()[:-1])


@pytest.mark.parametrize("plane", ["shm", "tcp"])
def test_streams(tmp_path, plane):
    said = child_says(STREAMS, str(tmp_path / "streams"), plane, cwd=tmp_path)
    closing = {name: said.pop(name) for name in ("writer.close", "reader.close")}
    assert closing == dict.fromkeys(closing, "returned None")  # so that a child may leave `with` blocks
    assert {name: what for name, what in said.items() if not what.startswith("WrongState")} == {}
    assert "made before a fork" in said["writer.statistics"] and "made before a fork" in said["reader.statistics"]


def test_pools(pool_servers, tmp_path):
    said = child_says(POOLS, pool_servers(1, http="off").directory, cwd=tmp_path)
    closing = {name: said.pop(name) for name in ("pool.close", "events.close")}
    assert closing == dict.fromkeys(closing, "returned None")
    assert {name: what for name, what in said.items() if not what.startswith("WrongState")} == {}


ORPHAN = """
import os, signal, sys
import numpy as np
import penstock
signal.alarm(60)
role, options = sys.argv[1], eval(sys.argv[3])
context = penstock.Context(directory=sys.argv[2], listen="127.0.0.1")
if role == "writer":
    stream = context.create("heat", timeout=30, **options)
    with stream.step() as step:
        step["T"] = np.arange(1 << 16)
else:
    stream = context.open("heat", timeout=30, **options)
    step = stream.step()
    held = step["T"].view()
child = os.fork()
if child == 0:
    signal.alarm(60)
    signal.pause()
print(child, flush=True)
signal.pause()
"""


class Orphan:
    """A process that writes or reads a stream and forks a child, which lives on when the process is killed."""

    def __init__(self, folder, role, directory, **options):
        self.process = subprocess.Popen(
            [sys.executable, "-c", ORPHAN, role, str(directory), repr(options)],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.child = 0

    def kill_parent(self):
        self.child = int(self.process.stdout.readline())
        self.process.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PROCESS_S)
        self.process.stdout.close()
        if self.child:
            os.kill(self.child, signal.SIGKILL)  # fails when it has not lived to the end


@pytest.mark.parametrize("options", [{"data_plane": "shm"}, {"data_plane": "tcp"}, {"engine": "pool"}], ids=str)
def test_a_writer_is_killed_and_its_child_lives(options, tmp_path, request):
    directory = tmp_path / "streams"
    if "engine" in options:
        directory = request.getfixturevalue("pool_servers")(1, http="off").directory
    context = penstock.Context(directory=str(directory), listen="127.0.0.1")
    with Orphan(tmp_path, "writer", directory, **options) as writer:
        with context.open("heat", timeout=30, **options) as reader:
            with reader.step() as step:
                assert step["T"][-1] == (1 << 16) - 1
            writer.kill_parent()
            with pytest.raises(penstock.WriterLost):
                reader.step(timeout=20)


@pytest.mark.parametrize("plane", ["shm", "tcp"])
def test_a_reader_is_killed_and_its_child_lives(plane, tmp_path):
    directory = tmp_path / "streams"
    context = penstock.Context(directory=str(directory), listen="127.0.0.1")
    with Orphan(tmp_path, "reader", directory, data_plane=plane) as reader:
        with context.create("heat", timeout=30, queue_steps=1, data_plane=plane) as writer:
            for n in range(4):
                with writer.step(timeout=20) as step:
                    step["T"] = np.arange(1 << 16) + n
                if n == 0:
                    reader.kill_parent()


WRITING_CHILD = """
import os, signal, sys
import numpy as np
import penstock
signal.alarm(60)
directory, plane = sys.argv[1:]
of_parent = penstock.Context(directory=directory, listen="127.0.0.1").create("parent", data_plane=plane, timeout=30)
reader = penstock.Context(directory=directory, listen="127.0.0.1").open("parent", data_plane=plane, timeout=30)
with of_parent.step() as step:
    step["T"] = np.arange(1 << 16)
with reader.step() as step:
    step["T"][:]
child = os.fork()
if child == 0:
    context = penstock.Context(directory=directory, listen="127.0.0.1")
    with context.create("child", data_plane=plane, timeout=30) as writer, writer.step() as step:
        step["T"] = np.arange(1 << 16)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
reader.close()
of_parent.close()
"""


@pytest.mark.parametrize("plane", ["shm", "tcp"])
def test_a_child_writes_a_stream_of_its_own(plane, tmp_path):
    directory = str(tmp_path / "streams")
    parent = subprocess.Popen([sys.executable, "-c", WRITING_CHILD, directory, plane], cwd=tmp_path)
    try:
        with penstock.Context(directory=directory, listen="127.0.0.1").open("child", timeout=30) as reader:
            with reader.step() as step:
                assert step["T"][-1] == (1 << 16) - 1
        assert parent.wait(PROCESS_S) == 0
    finally:
        parent.kill()
        parent.wait(PROCESS_S)
