"""How streams behave over time: waiting, ending, failing, closing; several ranks; several processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest

TIMEOUT_S = 20.0
PROCESS_S = 60.0


def fill(writer, steps, start=0):
    for t in range(start, start + steps):
        with writer.step() as step:
            step["t"] = t


# ------------------------------------------------------------------------------------------------------ end and errors


def test_the_loop_ends_with_the_stream(pair):
    writer, reader = pair(queue_steps=2)
    with ThreadPoolExecutor() as pool:
        done = pool.submit(lambda: [fill(writer, 20), writer.close()])
        assert [step["t"].value for step in reader] == list(range(20))
        done.result(TIMEOUT_S)
    with pytest.raises(penstock.EndOfStream):
        reader.step()
    assert list(reader) == []
    assert reader.statistics.steps == 20 and writer.statistics.steps == 20
    assert reader.statistics.data_plane in ("shm", "tcp")


def test_timeouts(pair):
    writer, reader = pair(queue_steps=1)
    assert reader.try_step() is None
    for error in (penstock.TimeoutError, TimeoutError):
        with pytest.raises(error, match="heat"):
            reader.step(timeout=0.05)
    fill(writer, 1)
    with reader.step():
        assert writer.try_step() is None
        with pytest.raises(penstock.TimeoutError, match="held"):
            writer.step(timeout=0.05)
    for bad in (-1, float("nan")):
        with pytest.raises(ValueError):
            reader.step(timeout=bad)


def test_a_put_that_waits_for_memory_leaves_the_interpreter_to_others(pair):
    writer, reader = pair(queue_steps=2, queue_bytes="4MiB")
    fill(writer, 1)
    held = reader.step()

    def release():  # once the writer's thread is inside
        until = time.monotonic() + TIMEOUT_S
        while not writer._core.busy() and time.monotonic() < until:
            os.sched_yield()
        held.end()

    with ThreadPoolExecutor() as pool, writer.step(timeout=TIMEOUT_S) as step:
        step.span("large", count=(2 << 20,), dtype=np.uint8)[:] = 1
        done = pool.submit(release)
        step.put("small", np.arange(1000.0))
        done.result(TIMEOUT_S)
    with reader.step() as step:
        assert step["small"][-1] == 999 and step["large"][0] == 1


def test_opening_what_is_not_there(context):
    began = time.monotonic()
    with pytest.raises(penstock.TimeoutError, match=r"nothing.* within 400 ms"):
        context.open("nothing", timeout=0.4)
    assert 0.15 < time.monotonic() - began < TIMEOUT_S


def test_a_misspelt_name_is_answered_with_the_nearest(context):
    with context.create("heat"), pytest.raises(penstock.TimeoutError, match="did you mean 'heat'"):
        context.open("haet", timeout=0.2)


def test_an_empty_array_is_viewed_as_an_array(pair):
    writer, reader = pair()
    with writer.step() as step:
        step["T"] = np.zeros((0, 3), np.float32)
        step["U"] = np.zeros((2, 3))
    with reader.step() as step:
        view = step["T"].view()
        assert view.shape == (0, 3) and view.dtype == np.float32 and not view.flags.writeable
        assert step["T"].view((slice(None), 1)).shape == (0,)
        assert step["U"].view((slice(1, 1), slice(None))).shape == (0, 3)


def test_a_live_stream_has_no_earlier_steps(pair):
    writer, reader = pair()
    fill(writer, 1)
    if reader.options["engine"] in ("direct", "insitu"):
        for index in (0, -1, slice(5, 10)):
            with pytest.raises(
                penstock.Unsupported, match="does not keep steps; steps needs engine=pool, file or space"
            ):
                reader[index]
    with reader.step() as step:
        assert step["t"].value == 0


def test_options(context):
    with pytest.raises(penstock.UnknownOption, match="queue_steps"):
        context.create("heat", queue_step=2)
    with pytest.raises(penstock.InvalidArgument):
        context.create("heat", when_full="sometimes")
    with context.create("heat", queue_steps=3, min_max=True, rendezvous_readers=0, timeout=1.5) as writer:
        assert writer.options["queue_steps"] == "3" and writer.options["min_max"] == "true"
        assert writer.options["step_timeout_ms"] == "1500"
        assert context.options_for("heat", when_full="discard_oldest")["when_full"] == "discard_oldest"
        with pytest.raises(penstock.Error, match="heat"):
            context.create("heat")
        entry = context.list_streams()[0]
        assert (entry.name, entry.alive, entry.pid, entry.ranks) == ("heat", True, os.getpid(), 1)
        assert writer.address.startswith("tcp://") and "heat" in writer.address
        assert isinstance(context.inspect("heat"), dict)
        with pytest.raises(penstock.NotFound):
            context.inspect("cold", timeout=1)


def test_opening_by_address(context):
    with context.create("heat") as writer, context.open(writer.address, data_plane="tcp") as reader:
        assert reader.name == "heat"
        fill(writer, 1)
        with reader.step() as step:
            assert step["t"].value == 0
        wrong = writer.address.replace("token=", "token=0")[: len(writer.address)]
        with pytest.raises(penstock.Error):
            context.open(wrong, timeout=1)


@pytest.mark.parametrize(("wrote", "read"), [("tcp", "shm"), ("shm", "tcp")])
def test_a_data_plane_that_the_writer_was_not_opened_with(context, wrote, read):
    with (
        context.create("heat", data_plane=wrote),
        pytest.raises(penstock.Error, match=f"data_plane={read}, but .*opened with another data_plane") as error,
    ):
        context.open("heat", data_plane=read, timeout=TIMEOUT_S)
    assert error.value.code == "unsupported"


def test_missing_variables_are_key_errors(pair):
    writer, reader = pair()
    with writer.step() as step:
        step["temperature"] = 1
    with reader.step() as step:
        with pytest.raises(KeyError, match="temperature") as error:
            step["temperatur"]
        assert isinstance(error.value, penstock.NotFound) and error.value.code == "not_found"
        assert "temperature" in step and "x" not in step and step.get("x") is None
        assert "temperature" in repr(step)


def test_use_after_the_end(pair):
    writer, reader = pair()
    with writer.step() as written:
        written["T"] = np.arange(3)
        with pytest.raises(penstock.WrongState, match=r"step 0 of stream 'heat' is open: .*end\(\)"):
            writer.step()
    for use in (lambda: written.__setitem__("T", 1), written.end, written.abandon,
                lambda: written.span("T"), lambda: written.attributes.update(a=1)):  # fmt: skip
        with pytest.raises(penstock.WrongState):
            use()
    with reader.step() as step:
        variable = step["T"]
        with pytest.raises(penstock.WrongState, match=r"step 0 of stream 'heat' is open: .*end\(\)"):
            reader.step()
    for use in (lambda: step["T"], lambda: variable[...], lambda: variable.view(), lambda: variable.blocks, step.end,
                step.wait, lambda: list(step), lambda: dict(step.attributes)):  # fmt: skip
        with pytest.raises(penstock.WrongState):
            use()
    assert variable.shape == (3,) and variable.name == "T" and "over" in repr(step) and "over" in repr(written)
    reader.close()
    writer.close()
    reader.close()
    writer.close()
    for use in (writer.step, reader.step, lambda: writer.define("x", "int8")):
        with pytest.raises(penstock.WrongState):
            use()
    assert "closed" in repr(writer) and writer.statistics.steps == 1


def test_an_exception_gives_the_step_up(pair):
    writer, reader = pair()
    with pytest.raises(ZeroDivisionError):
        with writer.step() as step:
            step["t"] = -1
            raise ZeroDivisionError
    fill(writer, 1)
    with reader.step() as step:
        assert step.number == 1 and step["t"].value == 0
    assert writer.statistics.steps_voided == 1


def test_an_exception_loses_the_stream(context, plane):
    with contextlib.ExitStack() as stack:
        with pytest.raises(ZeroDivisionError):
            with context.create("heat", timeout=TIMEOUT_S) as writer:
                reader = stack.enter_context(context.open("heat", timeout=TIMEOUT_S, data_plane=plane))
                fill(writer, 1)
                raise ZeroDivisionError
        # Over tcp what was not fetched went with the writer.
        with pytest.raises(penstock.WriterLost if plane == "shm" else (penstock.WriterLost, penstock.PeerLost)):
            for step in reader:
                assert step["t"].value == 0


def test_a_step_too_large_is_void_and_the_stream_goes_on(pair):
    writer, reader = pair(queue_bytes="1MiB")
    with pytest.raises(penstock.StepTooLarge):
        with writer.step() as step:
            step["T"] = np.zeros(1 << 18)
    fill(writer, 1)
    with reader.step() as step:
        assert step.number == 1


def test_discarding_and_the_latest(pair):
    writer, reader = pair(queue_steps=2, when_full="discard_oldest")
    fill(writer, 10)
    with reader.step() as step:
        assert step["t"].value == step.number == 8
    assert writer.statistics.steps_dropped == 8 == writer.statistics.peers[0].steps_dropped


def test_the_latest(pair):
    writer, reader = pair(queue_steps=4, delivery="latest")
    fill(writer, 3)
    with reader.step() as step:
        assert step["t"].value == step.number == 2


def test_dropped_steps_cost_nothing(pair):
    writer, reader = pair(queue_steps=1, when_full="discard_newest")
    fill(writer, 1)
    with writer.step() as step:
        assert step.dropped
        step["T"] = np.zeros(5)
        step.span("S", count=(4,), shape=(4,), dtype="f8")[:] = 1
    with reader.step() as step:
        assert step["t"].value == 0


# ------------------------------------------------------------------------------------------------- threads and signals


class Interrupt:
    """Raises KeyboardInterrupt in the main thread soon: what Ctrl-C does."""

    def __enter__(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        self.before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        self.began = time.monotonic()

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)
        assert time.monotonic() - self.began < TIMEOUT_S / 2


def test_ctrl_c_ends_every_wait(context):
    with pytest.raises(KeyboardInterrupt), Interrupt():
        context.open("heat", timeout=TIMEOUT_S)
    writer = context.create("heat", queue_steps=1, timeout=TIMEOUT_S)
    with pytest.raises(KeyboardInterrupt), Interrupt():
        writer.step()  # no reader yet
    with context.open("heat", timeout=TIMEOUT_S) as reader:
        with pytest.raises(KeyboardInterrupt), Interrupt():
            next(iter(reader))
        fill(writer, 1)
        with reader.step():
            with pytest.raises(KeyboardInterrupt), Interrupt():
                writer.step()
            with pytest.raises(KeyboardInterrupt), Interrupt():
                writer.close()
    assert writer.closed


def test_other_threads_run_while_one_waits(pair):
    """Another thread ends the wait, once it has seen it begin."""
    writer, reader = pair()

    def write():
        until = time.monotonic() + TIMEOUT_S
        while not reader._core.busy() and time.monotonic() < until:
            os.sched_yield()
        fill(writer, 1)

    with ThreadPoolExecutor() as pool:
        done = pool.submit(write)
        with reader.step(timeout=TIMEOUT_S) as step:
            assert step["t"].value == 0
        done.result(TIMEOUT_S)


def test_threads_that_share_a_stream_take_turns(pair):
    writer, reader = pair()
    with writer.step() as step:
        step["T"] = np.arange(1000)
    with reader.step() as step, ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda _: step["T"][::3], range(200)):
            assert got.sum() == np.arange(0, 1000, 3).sum()
    with ThreadPoolExecutor(2) as pool:  # statistics while another thread waits
        waiting = pool.submit(reader.try_step, 0.3)
        assert reader.statistics.steps == 1
        assert waiting.result(TIMEOUT_S) is None


# --------------------------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize(("writers", "readers"), [(3, 2), (1, 3), (4, 1)])
def test_writers_and_readers_of_several_ranks(context, plane, writers, readers):
    rows, steps = 12, 3
    whole = np.arange(rows * 5.0).reshape(rows, 5)

    def write(cohort):
        low, high = (rows * r // writers for r in (cohort.rank, cohort.rank + 1))
        with context.create("wide", comm=cohort, timeout=TIMEOUT_S) as writer:
            assert (writer.rank, writer.size) == (cohort.rank, writers)
            for t in range(steps):
                with writer.step() as step:
                    step.put("T", whole[low:high] + t, start=(low, 0), shape=whole.shape)
                    step.put_value("rank", np.int32(10 * cohort.rank + t), local=True)
                    step.put_value("host", f"node{cohort.rank}", local=True)
                    step.put_local("part", np.full(cohort.rank + 1, t))
                    if writers > 1:
                        with pytest.raises(penstock.InvalidArgument):
                            step["T"] = whole

    def read(cohort):
        seen = []
        with context.open("wide", comm=cohort, timeout=TIMEOUT_S, data_plane=plane) as reader:
            for step in reader:
                t = step.number
                np.testing.assert_array_equal(step["T"][cohort.rank :: readers], whole[cohort.rank :: readers] + t)
                assert step["rank"].value == [10 * r + t for r in range(writers)]
                assert step["rank"].shape == (writers,) and step["rank"][-1] == 10 * (writers - 1) + t
                assert step["host"].value == [f"node{r}" for r in range(writers)]
                assert [block.count for block in step["part"].blocks] == [(r + 1,) for r in range(writers)]
                assert step["part"].block(writers - 1).tolist() == [t] * writers
                assert [block.writer_rank for block in step["T"].blocks] == list(range(writers))
                seen.append(t)
        return seen

    with ThreadPoolExecutor(writers + readers) as pool:
        tasks = [pool.submit(write, cohort) for cohort in penstock.thread_cohort(writers)]
        reads = [pool.submit(read, cohort) for cohort in penstock.thread_cohort(readers)]
        assert [task.result(60) for task in reads] == [[0, 1, 2]] * readers
        for task in tasks:
            task.result(60)


def test_a_cohort_that_fails_is_an_error(context):
    class Broken:
        rank, size = 0, 2

        def __init__(self, error):
            self.error = error

        def broadcast(self, data, root):
            raise self.error

        gather = broadcast

    with pytest.raises(penstock.SystemFailure, match="no network"):
        context.create("heat", comm=Broken(RuntimeError("no network")))
    with pytest.raises(penstock.PeerLost) as caught:
        context.create("heat", comm=Broken(penstock.PeerLost("rank 1 is lost")))
    assert "rank 1 is lost" in str(caught.value) and "Traceback" not in str(caught.value)
    with pytest.raises(penstock.InvalidArgument):
        context.create("heat", comm=5)


MPI = """
import sys
import numpy as np
import penstock
from mpi4py import MPI

world = MPI.COMM_WORLD
writing = world.rank < 2
comm = world.Split(writing)
context = penstock.Context(directory=sys.argv[1], listen="127.0.0.1")
if writing:
    with context.create("heat", comm=comm, timeout=30) as stream:
        for t in range(3):
            with stream.step() as step:
                step.put("T", np.full(2, 10 * comm.rank + t), start=(2 * comm.rank,), shape=(4,))
else:
    with context.open("heat", comm=comm, timeout=30) as stream:
        for t, step in enumerate(stream):
            assert step["T"][...].tolist() == [t, t, 10 + t, 10 + t]
    print("read", t + 1)
"""


def test_mpi_communicators(tmp_path):
    pytest.importorskip("mpi4py")
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpiexec", "--oversubscribe", "-n", "3", sys.executable, "-c", MPI, str(tmp_path)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROCESS_S)
    except FileNotFoundError:
        pytest.skip("mpiexec is not installed")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["read", "3"]


# ----------------------------------------------------------------------------------------------------------- processes


def python(program, *arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


WRITER = """
import sys
import penstock
stream = penstock.Context(directory=sys.argv[1], listen="127.0.0.1").create("heat", timeout=30)
for t in range(2):
    with stream.step() as step:
        step["t"] = t
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_killed_writer_is_lost(context, plane, tmp_path):
    process = python(WRITER, tmp_path / "streams")
    try:
        with context.open("heat", timeout=TIMEOUT_S, data_plane=plane) as reader:
            step = reader.step()
            view = step["t"].view()
            assert process.stdout.readline() == "ready\n"
            process.kill()
            process.wait(PROCESS_S)
            step.end()
            with pytest.raises(penstock.WriterLost) as error:
                while True:
                    reader.step(timeout=TIMEOUT_S).end()
            assert isinstance(error.value, ConnectionError) and "heat" in str(error.value)
            assert view == 0
    finally:
        process.kill()
        process.communicate(timeout=PROCESS_S)


EXIT_WHILE_WAITING = """
import sys, threading
import penstock
context = penstock.Context(directory=sys.argv[1], listen="127.0.0.1")
writer = context.create("heat", timeout=30)
reader = context.open("heat", timeout=30)
waits = threading.Event()
def wait():
    waits.set()
    reader.step(timeout=1000)
threading.Thread(target=wait, daemon=True).start()
waits.wait()
spare = context.create("spare", rendezvous_readers=0)
step = spare.step()
step["T"] = [1.0]
span = step.span("S", count=(3,), shape=(3,), dtype="f8")
cycle = [step, span, context]
cycle.append(cycle)
"""


def test_exit_while_a_thread_waits(tmp_path):
    process = python(EXIT_WHILE_WAITING, tmp_path)
    out, errors = process.communicate(timeout=PROCESS_S)
    assert (process.returncode, out) == (0, ""), errors
    assert "Fatal" not in errors and "leak" not in errors, errors


FORK = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")  # of forking with threads
import numpy as np
import penstock
context = penstock.Context(directory=sys.argv[1], listen="127.0.0.1")
with context.create("heat", timeout=30) as writer, context.open("heat", timeout=30) as reader:
    with writer.step() as step:
        step["t"] = np.arange(3)
    step = reader.step()
    view = step["t"].view()
    waits = threading.Event()
    spare = context.create("spare", timeout=30)
    thread = threading.Thread(target=lambda: [waits.set(), spare.try_step(timeout=1)])
    thread.start()
    waits.wait()
    child = os.fork()
    if child == 0:
        for stream in (reader, spare, writer):
            try:
                stream.step()
            except penstock.WrongState:
                continue
            sys.exit(8)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert step["t"][...].tolist() == view.tolist() == [0, 1, 2]
    step.end()
    del view
    thread.join()
    with writer.step() as step:
        step["t"] = np.arange(3)
    with reader.step() as step:
        print(step.number)
"""


def test_fork_leaves_the_parent_alone(tmp_path):
    process = python(FORK, tmp_path)
    out, errors = process.communicate(timeout=PROCESS_S)
    assert (process.returncode, out) == (0, "1\n"), errors


def test_config_and_the_functions_of_the_module(tmp_path):
    before = penstock.config()
    try:
        assert penstock.config(directory=str(tmp_path), listen="127.0.0.1")["directory"] == str(tmp_path)
        with penstock.create("heat", timeout=TIMEOUT_S) as writer, penstock.open("heat", timeout=TIMEOUT_S) as reader:
            assert [entry.name for entry in penstock.list_streams()] == ["heat"]
            fill(writer, 1)
            assert reader.step()["t"].value == 0
            reader.close()
        with pytest.raises(penstock.InvalidArgument):
            penstock.config(directori="x")
    finally:
        penstock.config(**before)
