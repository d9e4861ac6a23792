"""Array spaces over real servers, beside NumPy."""

import itertools
import os
import random
import re
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
        space["T", 7].get(timeout=0.2)
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


def test_versions_go_when_their_readers_have_read_them(pool_servers, open_space):
    servers = pool_servers(2)
    space, other = open_space(servers), open_space(servers)
    T = space.define("T", "int64", (64, 64), keep=3, readers=["viz", "stats"])
    for version in range(3):
        T[version][...] = version
    with pytest.raises(penstock.TimeoutError, match=r"version 3.*version 0, which was not read by 'viz', 'stats'"):
        T[3].put(3, timeout=1.0)
    assert T.versions == [0, 1, 2]
    T[1].done("viz")
    with ThreadPoolExecutor(3) as threads:
        # Whoever comes first begins a version; the ranks of a program put their parts of it at once.
        puts = [
            threads.submit(other["T", version].put, version, slice(32 * half, 32 * half + 32))
            for version in (3, 4)
            for half in (0, 1)
        ]
        assert not any(put.done() for put in puts) and T.versions == [0, 1, 2]
        with pytest.raises(penstock.TimeoutError, match="not read by 'stats'"):
            T[5].put(5, timeout=1.0)
        T[1].done("stats")
        for put in puts:
            put.result(20)
    assert T.versions == [2, 3, 4] and all((T[version][...] == version).all() for version in T.versions)
    with pytest.raises(penstock.WrongState, match="older than the 3 versions"):
        open_space(servers)["T"][1][...] = 1
    with pytest.raises(penstock.NotFound, match="was dropped"):
        T[1][...] = 1  # as it knows, this version has begun
    with pytest.raises(penstock.InvalidArgument, match="no reader 'film'"):
        T[4].done("film")
    T[3][:1] = 3  # what has begun goes on
    with pytest.raises(penstock.AlreadyExists, match="other versions"):
        space.define("T", "int64", (64, 64), keep=4, readers=["viz", "stats"])
    with pytest.raises(penstock.InvalidArgument, match="set keep, keep_bytes or keep_ms"):
        space.define("U", "int64", (3,), readers=["viz"])
    assert space.drop("T") and not list(space)


def test_versions_go_because_of_bytes_and_age(pool_servers, open_space):
    space = open_space(pool_servers(2))
    T = space.define("T", "int64", (8,), keep_bytes=200)  # 64 bytes each
    U = space.define("U", "int64", (8,), keep_seconds=0.001)
    R = space.define("R", "int64", (8,), keep_seconds=0.001, readers=["viz"])
    young = space.define("young", "int64", (8,), keep_seconds=3600)
    space.define("T", "int64", (8,), keep=3)
    with pytest.raises(penstock.AlreadyExists, match="other versions"):
        space.define("T", "int64", (8,), keep_bytes=300)
    with pytest.raises(penstock.InvalidArgument, match="not negative"):
        space.define("U", "int64", (8,), keep_seconds=-1)
    space.define("one", "int64", (8,), keep_bytes=1)
    space.define("one", "int64", (8,), keep=1)
    for version in range(5):
        for array in (T, U, R, young):
            array[version][...] = version
        while time.time() < U[version].blocks[0].put_time + 0.01:
            pass
    assert (T.versions, U.versions, young.versions) == ([2, 3, 4], [4], list(range(5)))
    assert R.versions == list(range(5))  # nobody has read them
    R[2].done("viz")
    R[5][...] = 5
    assert R.versions == [3, 4, 5]
    for version in range(6, 18):
        R[version][...] = version
    R[17].done("viz")
    while time.time() < R[17].blocks[0].put_time + 0.01:
        pass
    R[18][...] = 18
    assert R.versions == list(range(11, 19))  # a put waits for the drops of eight, not of all
    R[19][...] = 19
    assert R.versions == [18, 19]
    U[2][...] = 2  # lower than all that are there: nothing goes for it
    assert U.versions == [2, 4]


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
        T[0].get(np.s_[35:45], timeout=0.2)
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


def test_what_was_read_stays_read(pool_servers, open_space, open_pool):
    servers = pool_servers(2)
    space, other = open_space(servers), open_space(servers)
    T = space.define("T", "int64", (8,), keep=2, readers=["viz"])
    T[0][...], T[1][...] = 0, 1
    T[1].done("viz")
    other["T", 0].done("viz")  # the slower half of the group
    T[2][...] = 2
    T[3].put(3, timeout=5)
    assert T.versions == [2, 3]
    raw = open_pool(servers, ns="penstock.arrays")
    row = next(info.row for info in raw.list() if info.column == "open")
    for reader in ("film", "", "x" * 201):
        with pytest.raises(penstock.InvalidArgument):
            raw.put(row, f"read/{reader}", b"0" * 20, if_exists="overwrite")
    with pytest.raises(penstock.WrongState, match="'viz' has read version 1 before"):
        raw.put(row, "read/viz", b"0" * 20, if_exists="overwrite")
    with pytest.raises(penstock.InvalidArgument, match="distinct names"):
        space.define("U", "int64", (8,), keep=1, readers=["viz", "viz"])
    assert space.drop("T") and not list(raw.list())
    with pytest.raises(penstock.NotFound):
        raw.put(row, "read/viz", b"0" * 20, if_exists="overwrite")
    assert not list(raw.list())


def test_a_run_that_begins_again_waits_for_its_readers_again(pool_servers, open_space):
    space = open_space(pool_servers(2))
    T = space.define("T", "int64", (8,), keep=1, readers=["viz"])
    for _ in range(2):
        for version in range(3):
            T[version][...] = version
            with pytest.raises(penstock.TimeoutError):
                T[version + 1].put(0, timeout=0.1)
            T[version].done("viz")
        T[2].drop()
    assert T.versions == []


def test_a_put_of_a_new_version_ends_by_its_deadline(pool_servers, open_space):
    servers = pool_servers(2, lease_ms=60_000)
    space = open_space(servers, timeout=300.0)
    T = space.define("T", "int64", (8,), keep=1)
    T[0][...] = 0
    for server in servers.servers:
        server.process.send_signal(signal.SIGSTOP)
    try:
        for number in (1, 2**63):
            with pytest.raises((penstock.TimeoutError, penstock.PeerLost)):
                T[number].put(1, timeout=0.5)
        with pytest.raises((penstock.TimeoutError, penstock.PeerLost)):
            T[0].get(timeout=0.5)
    finally:
        for server in servers.servers:
            server.process.send_signal(signal.SIGCONT)
    T[1].put(1)
    assert (T[1][...] == 1).all()


def test_a_space_never_keeps_more_versions_than_it_should(pool_servers, open_space):
    """Two programs write versions of their own, as fast as they can; the pool has room for six."""
    servers = pool_servers(2, memory="16MiB")
    space = open_space(servers)
    T = space.define("T", "float64", (128, 1024), keep=4)  # 1 MiB
    seen = []

    def write(first):
        array = open_space(servers)["T"]
        for version in range(first, 40, 2):
            try:
                array[version][...] = version
            except (penstock.WrongState, penstock.NotFound) as error:  # the other one is ahead
                assert re.search("older than|was dropped", str(error)), error
            seen.append(len(T.versions))

    with ThreadPoolExecutor(2) as threads:
        for work in [threads.submit(write, first) for first in (0, 1)]:
            work.result(60)
    assert max(seen) <= 4 and T.latest in (38, 39) and len(seen) == 40
    for version in T.versions[1:]:
        assert (T[version].get(timeout=5) == version).all()


def test_a_version_whose_drop_was_cut_short_goes_for_the_next_one(pool_servers, open_space, open_pool):
    servers = pool_servers(1)
    space = open_space(servers)
    T = space.define("T", "int8", (8,), keep=1)
    T[0][...] = 0
    raw = open_pool(servers, ns="penstock.arrays")
    (version,) = (info for info in raw.list() if info.column.isdigit())
    raw.put(version.row, version.column, b"going", if_exists="overwrite")
    T[1][...] = 1
    assert T.versions == [1] and (T[1][...] == 1).all()


def test_versions_come_in_order_once_their_box_is_there(space):
    T = space.define("T", "int64", (6, 8))
    versions = T.subscribe(np.s_[2:4], timeout=0.3)
    with pytest.raises(penstock.TimeoutError, match=r"array 'T': no version from 0 on began in time"):
        next(versions)
    T[3][:3] = 3
    T[4][...] = 4
    with pytest.raises(penstock.TimeoutError, match=r"version 3: not there in time: \[3, 4\) x \[0, 8\)"):
        next(versions)
    T[3][3:4] = 3
    assert [next(versions).number, next(versions).number] == [3, 4]
    T[1][...] = 1  # too late
    with pytest.raises(penstock.TimeoutError, match="no version after 4 began"):
        next(versions)
    T[6][0] = T[7][0] = 7
    T[8][...] = 8
    assert T[6].drop() and T[7].drop()
    assert next(versions).number == 8 and versions.skipped == 0  # gone before anybody looked
    # A pattern, and versions that are there already.
    assert [version.number for version in T.subscribe(start=2, step=2, stop=8, index=np.s_[3])] == [4]
    assert [version.number for version in T.subscribe(start=1, stop=2)] == [1]
    assert list(T.subscribe(start=9, stop=9)) == []
    with pytest.raises(penstock.TimeoutError, match="no version after 4, in steps of 3, began"):
        list(T.subscribe(start=1, step=3, timeout=0.2))
    for wrong in ({"start": -1}, {"step": 0}, {"stop": 1 << 64}):
        with pytest.raises(penstock.InvalidArgument, match=f"{next(iter(wrong))} is a number"):
            T.subscribe(**wrong)
    last = (1 << 64) - 1
    T[last][...] = 0
    assert [version.number for version in T.subscribe(start=last)] == [last]
    waits = T.subscribe(start=20)
    space.close()
    with pytest.raises(penstock.WrongState, match="is closed"):
        next(waits)


def test_a_subscription_ends_when_no_lower_version_can_come(space):
    """Versions begin in any order: one from stop on ends it once its box is there."""
    T = space.define("T", "int64", (4,))
    T[9][:2] = 9
    T[2][:2] = 2
    with ThreadPoolExecutor(1) as pool:
        given = pool.submit(lambda: [version.number for version in T.subscribe(start=1, stop=8, timeout=60.0)])
        T[3][...] = 3
        T[2][2:] = 2
        T[9][2:] = 9
        assert given.result(60) in ([2, 3], [3])  # where 3 was there before 2 was looked at
    with pytest.raises(penstock.TimeoutError, match="no version after 9 began"):
        list(T.subscribe(start=1, stop=20, timeout=0.2))


def test_a_subscription_notices_that_its_space_is_closed(pool_servers, open_space):
    space = open_space(pool_servers(1))
    waits = space.define("T", "int64", (4,)).subscribe()
    with ThreadPoolExecutor(1) as pool:
        given = pool.submit(next, waits)
        space.close()
        with pytest.raises((penstock.WrongState, penstock.Cancelled), match="closed"):
            given.result(60)


def test_a_subscription_skips_what_is_dropped_and_ends_with_its_array(pool_servers, open_space):
    servers = pool_servers(2)
    space, other = open_space(servers), open_space(servers)
    T = other.define("T", "float64", (64, 1024))
    T[0][:1] = 0
    versions = space["T"].subscribe()

    with ThreadPoolExecutor(1) as pool:
        given = pool.submit(next, versions)
        while not given.done():
            # It waits for the lowest version, which goes once the next one has begun.
            began = T.latest + 1
            T[began][:1] = 0
            assert T[began - 1].drop()
            if versions.skipped >= 3:
                T[began][1:] = 0
                break
        assert given.result(30).number == began
        waits = pool.submit(next, versions)
        assert not waits.done() and other.drop("T")
        with pytest.raises(penstock.NotFound, match=r"array 'T'.*dropped"):
            waits.result(30)


def test_a_subscription_goes_on_when_servers_die_and_join(pool_servers, open_space, open_pool):
    """Two copies of everything: every version is given once, whichever server dies, the versions' home among them."""
    servers = pool_servers(3, replication=2, lease_ms=1000)
    space = open_space(servers, timeout=60.0)
    arrays = [space.define(f"T{i}", "float64", (64, 64)) for i in range(6)]  # their homes: both that die, as a rule
    behind, go = threading.Semaphore(0), threading.Semaphore(0)
    raw = open_pool(servers, ns="penstock.arrays", timeout=60.0)

    def write():
        writer = open_space(servers, timeout=60.0)
        for version in range(12):
            if version in (4, 8):  # while a server dies, nothing has but one copy
                behind.release()
                assert go.acquire(timeout=60)
            for array in arrays:
                for half in (slice(0, 32), slice(32, 64)):
                    writer[array.name][version][half] = version

    def read(array):
        mine = open_space(servers, timeout=60.0)[array.name]
        for expected, version in enumerate(mine.subscribe(stop=12)):
            assert version.number == expected
            assert (version[...] == expected).all()
        return expected

    with ThreadPoolExecutor(7) as pool:
        works = [pool.submit(write), *(pool.submit(read, array) for array in arrays)]
        for number in (4, 5):
            assert behind.acquire(timeout=60)
            ends = time.monotonic() + 60
            while True:
                status = raw.status()
                copies = sum(server["objects"] for server in status["servers"])
                if status["settled"] and copies >= 2 * len(list(raw.list())):
                    break
                assert time.monotonic() < ends, "there are no copies"
            servers.stop_one(servers.servers[0], number=signal.SIGKILL)
            go.release()
            servers.start_one(number)
        assert [work.result(120) for work in works[1:]] == [11] * 6
        works[0].result(60)
