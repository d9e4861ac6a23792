"""Array spaces over real servers, beside NumPy."""

import itertools
import os
import random
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PLACES = ("at_reader", "on_request", "in_advance", "automatic")
TYPES = ("float32", "float64", "int8", "uint8", "int32", "int64", "uint64", "float16")
_names = itertools.count()


def test_boxes_come_from_whoever_put_them(space):
    values = np.arange(6 * 8, dtype=np.float64).reshape(6, 8)
    T = space.define("T", "float64", (6, 8))
    assert (T.name, T.dtype, T.shape) == ("T", np.float64, (6, 8))
    T[7][:4] = values[:4]
    with pytest.raises(penstock.TimeoutError, match=r"\[4, 6\) x \[0, 8\)"):
        space["T", 7].get(timeout=1)
    T[7][4:] = np.asfortranarray(values[4:])
    np.testing.assert_array_equal(space["T", 7][...], values)
    np.testing.assert_array_equal(T[7][::-2, 3], values[::-2, 3])
    assert T[7][2, 3] == values[2, 3] and T[7][2, None, 3].shape == (1,)
    turned = T[7].get((slice(1, 5), ...), dtype="int16", order="F")
    assert turned.dtype == np.int16 and turned.flags.f_contiguous
    np.testing.assert_array_equal(turned, values[1:5])
    out = np.zeros((8, 6), np.float32).T
    assert T[7].get(out=out) is out
    np.testing.assert_array_equal(out, values)
    assert np.asarray(T[7]).sum() == values.sum() and np.asarray(T[7], np.int8).dtype == np.int8
    assert T.versions == [7] and T.latest == 7 and "T" in space and "U" not in space
    blocks = T[7].blocks
    assert sum(np.prod(block.count) for block in blocks) == 48
    assert {block.writer for block in blocks} == {f"{socket.gethostname()}:{os.getpid()}"}
    assert all(abs(block.put_time - time.time()) < 3600 for block in blocks)
    T[8][...] = 1.5  # broadcast
    assert (T[8][...] == 1.5).all() and T.versions == [7, 8]
    T[9][...] = 300
    assert (np.asarray(T[9], np.int8) == T[9].get(dtype=np.int8)).all() and T[9].get(dtype=np.int8).max() == 127
    T[9].drop()
    assert T[7].drop() and not T[7].drop() and T.versions == [8]
    assert space.drop("T") and not space.drop("T") and not list(space)


def test_what_is_wrong_is_said(space):
    with pytest.raises(penstock.NotFound, match="no array 'T'"):
        space["T"]
    with pytest.raises(penstock.TimeoutError, match="not defined in time"):
        space.wait("T", timeout=0.05)
    T = space.define("T", np.int32, (4, 4))
    with pytest.raises(penstock.AlreadyExists, match="int32 of shape 4x4"):
        space.define("T", np.int32, (4, 5))
    T[0][:2] = 3
    T[0][:2] = 3
    with pytest.raises(penstock.AlreadyExists, match="other values"):
        T[0][1:3] = 4
    with pytest.raises(penstock.InvalidArgument, match="without steps"):
        T[0][::2] = 3
    with pytest.raises(penstock.InvalidArgument, match="version"):
        T[-1]
    with pytest.raises(IndexError):
        T[0][4]
    with pytest.raises(ValueError):
        T[0][...] = np.zeros(3)
    with pytest.raises(penstock.Unsupported):
        T[0].get(slice(2), dtype="complex64")
    with pytest.raises(penstock.InvalidArgument, match="has shape"):
        T[0].get(out=np.zeros(3))
    with pytest.raises(penstock.InvalidArgument, match="masked"):
        T[0][...] = np.ma.masked_equal([1, 2, 3, 4], 2)
    space.close()
    with pytest.raises(penstock.WrongState):
        T[0][...]


def test_a_waiting_get_ends_with_ctrl_c_and_with_a_drop(space):
    T = space.define("T", "float64", (4,))
    T[1][:2] = 0
    main = threading.main_thread().ident
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        T[1][...]
    timer.join()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(T[1].get)
        while not waits.done():  # a drop that comes before the wait does not end it
            T[1][:2] = 0
            assert T[1].drop()
        with pytest.raises(penstock.NotFound, match="dropped"):
            waits.result()


def test_close_ends_the_calls_of_other_threads(pool_servers, open_space):
    space = open_space(pool_servers(1))
    T, long = space.define("T", "float64", (4,)), 60
    T[1][:2] = 0
    versions = T.subscribe(start=2, timeout=long)
    calls = [
        lambda: space.wait("later", timeout=long),
        lambda: T[1].wait(timeout=long),
        lambda: T[1].get(timeout=long),
        lambda: next(versions),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        tasks = [pool.submit(call) for call in calls]
        with pytest.raises(TimeoutError):
            tasks[0].result(0.3)
        begun = time.monotonic()
        space.close()
        for task in tasks:
            with pytest.raises(penstock.WrongState, match="the space is closed"):
                task.result()
        assert time.monotonic() - begun < long / 3


def objects_of(open_pool, servers):
    return len(list(open_pool(servers, ns="penstock.arrays").list()))


def test_an_array_that_is_dropped_while_versions_begin_leaves_nothing(pool_servers, open_space, open_pool):
    servers = pool_servers(2)
    writer, dropper = open_space(servers), open_space(servers)
    ended = threading.Event()

    def write():
        for version in itertools.count():
            if ended.is_set():
                return
            try:
                writer["T"][version][...] = version
            except penstock.NotFound:
                writer.define("T", "float64", (300, 300))

    with ThreadPoolExecutor(1) as pool:
        writes = pool.submit(write)
        for _ in range(20):
            while not dropper.drop("T"):
                assert not writes.done(), writes.exception()
        ended.set()
        writes.result(30)
    dropper.drop("T")
    assert objects_of(open_pool, servers) == 0


def test_a_drop_that_was_cut_short_is_done_again(pool_servers, open_space, open_pool):
    servers = pool_servers(2, lease_ms=20_000)
    space = open_space(servers)
    T = space.define("T", "float64", (1024, 1024))
    T[1][...] = T[2][...] = 1
    hasty = open_space(servers, timeout=0.5)
    stopped = servers.servers[1].process
    stopped.send_signal(signal.SIGSTOP)
    try:
        for drop in (lambda: hasty["T", 1].drop(), lambda: hasty.drop("T")):
            with pytest.raises(penstock.TimeoutError):
                drop()
    finally:
        stopped.send_signal(signal.SIGCONT)
    assert space.drop("T") and not list(space)
    assert objects_of(open_pool, servers) == 0


def test_a_redefined_array_is_seen_through_old_names(pool_servers, open_space):
    servers = pool_servers(2)
    one, two = open_space(servers), open_space(servers)
    old = two.define("T", "float64", (4, 5))
    old[0][...] = 1
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(old[3].get)
        assert one.drop("T")
        new = one.define("T", "int32", (10, 5))
        new[0][...] = 2
        assert (old[0].get(timeout=10) == 2).all()
        new[3][:4] = 3
        assert (waits.result(30) == 3).all()
    assert one.drop("T")
    one.define("T", "float64", (3,))
    for call in (old[0].get, lambda: old[0].put(0), lambda: old[0].wait(timeout=5)):
        with pytest.raises(penstock.InvalidArgument, match="not within array 'T' of shape 3"):
            call()


def test_ctrl_c_ends_a_put_that_waits_for_room(pool_servers, open_space):
    servers = pool_servers(1, memory="16MiB")
    T = open_space(servers).define("T", "float64", (4, 1024, 1024))
    timer = threading.Timer(1.0, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        T[0].put(np.ones((4, 1024, 1024)), timeout=60)
    timer.join()


def test_others_cannot_put_what_breaks_arrays(pool_servers, open_space, open_pool):
    servers = pool_servers(1)
    space = open_space(servers)
    T = space.define("T", "float64", (4,))
    T[0][...] = 1
    raw = open_pool(servers, ns="penstock.arrays")
    for row, column, data, more in (
        ("array/evil", "array", b"junk", {}),
        ("version/0000000000000001", "0" * 20, b"", {}),
        ("anything", "", b"", {}),
        ("array/T", "array", b"", {"if_exists": "overwrite"}),
    ):
        with pytest.raises((penstock.InvalidArgument, penstock.ProtocolError, penstock.NotFound)):
            raw.put(row, column, data, **more)
    (block,) = (info for info in raw.list() if info.bytes == 32)
    with pytest.raises(penstock.InvalidArgument, match="a Space puts it"):
        raw.put(block.row, block.column, bytes(32), if_exists="overwrite", tag=0)
    assert [array.name for array in space] == ["T"] and (T[0][...] == 1).all()


@st.composite
def scenarios(draw):
    """A shape, types, cuts of the array in two dimensions at most, and boxes that are asked for."""
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=5)))
    cuts = [sorted(draw(st.sets(st.integers(1, size), max_size=3)) | {size}) for size in shape[:2]]
    boxes = []
    for _ in range(draw(st.integers(1, 4))):
        ends = [sorted((draw(st.integers(0, size)), draw(st.integers(0, size)))) for size in shape]
        boxes.append(tuple(slice(a, b) for a, b in ends))
    return shape, draw(st.sampled_from(TYPES)), draw(st.sampled_from(TYPES)), cuts, boxes, draw(st.randoms())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scenario=scenarios())
def test_gets_are_what_numpy_gives(space, scenario):
    shape, kept, asked, cuts, boxes, draw = scenario
    values = np.array([draw.randrange(100) for _ in range(int(np.prod(shape)))], kept).reshape(shape)
    layouts = [(asked, "F"), (asked, "C")]
    array = space.define(f"array {next(_names)}", kept, shape, convert=draw.choice(PLACES), layouts=layouts)
    edges = [[0, *ends] for ends in cuts]
    parts = list(itertools.product(*(list(itertools.pairwise(ends)) for ends in edges)))
    draw.shuffle(parts)
    for part in parts:
        index = tuple(slice(*ends) for ends in part)
        block = values[index].astype(draw.choice(TYPES))
        array[5][index] = np.asfortranarray(block) if draw.random() < 0.5 else block
    every_second = (slice(None, None, 2),) * len(shape)
    for box in boxes:
        found = array[5].get(box, dtype=asked, order=draw.choice("CF"))
        np.testing.assert_array_equal(found, values[box].astype(asked))
        steps = tuple(slice(s.start, s.stop, 2) for s in box)
        np.testing.assert_array_equal(array[5][steps], values[box][every_second])


@pytest.mark.parametrize("convert", PLACES)
def test_servers_are_killed_and_join_while_boxes_come_and_go(pool_servers, open_space, convert):
    """Two copies of everything: each element that was put is got as it was put, whichever server dies."""
    servers = pool_servers(3, replication=2, lease_ms=1000)
    values = np.random.default_rng(3).random((96, 64, 24))
    space = open_space(servers, timeout=60.0)
    versions = range(12)
    space.define("T", "float64", values.shape, convert=convert, layouts=[("float32", "F")])
    behind = threading.Semaphore(0)

    def write():
        T = open_space(servers, timeout=60.0)["T"]
        for version in versions:
            cuts = sorted(random.Random(version).sample(range(1, 96), 5))
            for first, last in itertools.pairwise([0, *cuts, 96]):
                T[version][first:last] = values[first:last] + version
            behind.release()

    def read(seed):
        T, draw = open_space(servers, timeout=60.0)["T"], random.Random(seed)
        for version in versions:
            for _ in range(6):
                box = tuple(slice(*sorted(draw.sample(range(size + 1), 2))) for size in values.shape)
                dtype, order = draw.choice([("float64", "C"), ("float32", "F"), ("float32", "F")])
                found = T[version].get(box, dtype=dtype, order=order)
                np.testing.assert_array_equal(found, (values[box] + version).astype(dtype))

    with ThreadPoolExecutor(4) as pool:
        works = [pool.submit(write), *(pool.submit(read, seed) for seed in range(3))]
        for _ in range(3):
            assert behind.acquire(timeout=60)
        servers.stop_one(servers.servers[1], number=signal.SIGKILL)
        for _ in range(3):
            assert behind.acquire(timeout=60)
        servers.start_one(4)
        for work in works:
            work.result(120)
    for version in versions:
        np.testing.assert_array_equal(space["T", version][...], values + version)


def test_a_drop_while_servers_pass_blocks_on_is_complete(pool_servers, open_space):
    """What another server had not passed on yet came back after a drop: the version could not be put anew."""
    servers = pool_servers(3, replication=2, lease_ms=1000)
    space = open_space(servers, timeout=60.0)
    T, versions = space.define("T", "int64", (64, 4096)), range(16)
    for version in versions:
        for row in range(64):
            T[version][row] = row
    servers.stop_one(servers.servers[1], number=signal.SIGKILL)
    for version in versions:
        T[version].drop()
        T[version][...] = -version
        assert (T[version][...] == -version).all()
    for version in versions:
        assert (T[version][...] == -version).all()


def test_servers_convert_and_say_so(space):
    values = np.arange(64 * 64 * 64, dtype=np.float64).reshape(64, 64, 64)
    T = space.define("T", "float64", values.shape, convert="on_request")
    T[0][...] = values
    for _ in range(3):
        np.testing.assert_array_equal(T[0].get(order="F", dtype="float32"), values)
    total = {name: sum(server[name] for server in space.status) for name in space.status[0] if name != "server"}
    once = values.size * 4
    assert total["converted_bytes"] == once and total["given_bytes"] == 3 * once and total["shared_bytes"] == 2 * once
    assert once <= total["replica_bytes"] <= total["replica_peak"] <= total["replica_limit"]
    assert T.convert == "on_request" and space.define("T", "float64", values.shape).convert == "on_request"
    assert all("converted already" in line for line in T[0].explain(order="F", dtype="float32"))
    assert all("on_request: the array was defined so" in line for line in T[0].explain(order="F"))
    assert T[0].explain() == ["nothing is converted: the elements are asked for as the array has them"]
    with pytest.raises(penstock.AlreadyExists, match="on_request"):
        space.define("T", "float64", values.shape, convert="at_reader")
    with pytest.raises(penstock.InvalidArgument, match="at_reader, on_request, in_advance or automatic"):
        space.define("U", "float64", (3,), convert="sometimes")
    with pytest.raises(penstock.InvalidArgument, match="at most 16"):
        space.define("U", "float64", (3,), convert="in_advance", layouts=[("float32", "F")] * 17)


def test_what_was_found_is_looked_for_again_once_it_was_dropped(pool_servers, open_space):
    servers = pool_servers(2)
    space, other = open_space(servers), open_space(servers)
    T, theirs = space.define("T", "int64", (64, 64)), other.wait("T")
    theirs[0][:40], theirs[0][40:] = 1, 2
    for order in "CF":
        assert (T[0][30:50, 7:9] == [[1, 1]] * 10 + [[2, 2]] * 10).all()
        assert (T[0].get(np.s_[35:45], order=order) == [[1] * 64] * 5 + [[2] * 64] * 5).all()  # within what was found
    theirs[0].drop()
    with pytest.raises(penstock.TimeoutError, match=r"\[35, 45\)"):
        T[0].get(np.s_[35:45], timeout=1)
    theirs[0][:10], theirs[0][10:] = 3, 4  # in other blocks
    assert (T[0][35:45] == 4).all() and (T[0][:40] == [[3] * 64] * 10 + [[4] * 64] * 30).all()
    other.drop("T")
    other.define("T", "int64", (64, 64))[0][...] = 5
    assert (T[0][...] == 5).all() and (T[0][35:45] == 5).all()


def test_a_put_that_goes_on(pool_servers, open_space):
    servers = pool_servers(2)
    space = open_space(servers)
    T = space.define("T", "float64", (64, 64))
    values = np.arange(4096.0).reshape(64, 64)
    puts = [T[0].start_put(values[32:], np.s_[32:]), T[0].start_put(np.asfortranarray(values[:32]), np.s_[:32])]
    for put in puts:
        put.wait()
        put.wait()  # nothing is left to do
    np.testing.assert_array_equal(T[0][...], values)
    other = T[0].start_put(values[:16] + 1, np.s_[:16])
    with pytest.raises(penstock.AlreadyExists):
        other.wait()
    T[0].start_put(values + 1)  # waits, and says nothing
    with pytest.raises(penstock.InvalidArgument, match="without steps"):
        T[0].start_put(values[::2], np.s_[::2])
    np.testing.assert_array_equal(T[0][...], values)
