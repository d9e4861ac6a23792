"""Objects of pools, over real servers: every verb, keys, batches and patterns, waiters, computing."""

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest

TIMEOUT_S = 20.0
SOON_S = 0.3  # within which what must not happen has not happened


@pytest.fixture
def other(two, open_pool, pool):
    """Another client, in the same namespace."""
    return open_pool(two, ns=pool._options["ns"])


def background(function, *arguments, **options):
    return ThreadPoolExecutor(1).submit(function, *arguments, **options)


# ---------------------------------------------------------------------------------------------------------- one object


def test_put_and_get(pool, other):
    assert pool.put("run 7", "a", b"some bytes") == 1
    found = other.get("run 7", "a")
    assert found.bytes() == b"some bytes"
    assert (found.info.row, found.info.column, found.info.bytes, found.info.version) == ("run 7", "a", 10, 1)
    assert found.info.in_memory and len(found) == 10
    assert abs(found.info.put_us / 1e6 - time.time()) < 60


def test_what_is_not_there(pool):
    for call in (pool.get, pool.info):
        with pytest.raises(penstock.NotFound, match="nothing"):
            call("nothing", "here")
    assert pool.drop("nothing", "here") is False
    assert list(pool.list("nothing")) == []


def test_write_once_overwrite_and_versions(pool):
    pool.put("r", "c", b"1")
    with pytest.raises(penstock.AlreadyExists):
        pool.put("r", "c", b"2")
    assert pool.get("r", "c").bytes() == b"1"
    assert pool.put("r", "c", b"22", if_exists="overwrite") == 2
    with pytest.raises(penstock.NotFound):
        pool.get("r", "c", version=1)
    assert pool.put("r", "c", b"333", if_exists="add_version") == 3
    assert [pool.get("r", "c", version=v).bytes() for v in (2, 3)] == [b"22", b"333"]
    assert pool.get("r", "c").bytes() == b"333"
    assert pool.drop("r", "c", version=2) is True
    assert pool.get("r", "c").bytes() == b"333"
    assert pool.drop("r", "c") is True
    assert pool.drop("r", "c") is False


@pytest.mark.parametrize("size", [0, 1, 100, 32 << 10, (32 << 10) + 1, 1 << 20, 9_000_001])
def test_sizes(pool, other, size):
    data = random.Random(size).randbytes(size)
    pool.put("size", str(size), data, acknowledge="replicated")
    assert other.get("size", str(size)).bytes() == data
    assert other.info("size", str(size)).bytes == size


def test_parts_of_an_object(pool):
    data = bytes(range(256)) * 1000
    pool.put("part", "", data)
    assert pool.get("part", offset=1000, size=24).bytes() == data[1000:1024]
    assert pool.get("part", offset=len(data) - 3).bytes() == data[-3:]


def test_arrays(pool):
    array = np.arange(24.0).reshape(2, 3, 4)
    pool.put("a", "array", array)
    back = pool.need("a", "array").array()
    assert back.dtype == array.dtype and np.array_equal(back, array)
    with pytest.raises(ValueError):
        back[0, 0, 0] = 1  # it may be the server's memory
    pool.put("a", "transposed", array.T)
    assert np.array_equal(pool.get("a", "transposed").array(), array.T)
    pool.put("a", "scalar", np.float32(2.5))
    assert pool.get("a", "scalar").array() == np.float32(2.5)
    pool.put("a", "text", "Häher")
    assert pool.get("a", "text").text() == "Häher"


def test_arrays_of_the_other_byte_order(pool, other):
    values = np.arange(6.0).reshape(2, 3)
    pool.put("a", "big", values.astype(">f4"))
    assert np.array_equal(other.get("a", "big").array(), values)


def test_bytes_that_do_not_lie_together(pool, other):
    values = np.arange(24.0).reshape(4, 6)
    strided = {"columns": values[:, ::2], "backwards": values[::-1], "turned": values.T}
    pool.put_many([(("a", name), array) for name, array in strided.items()])
    for name, array in strided.items():
        assert np.array_equal(other.get("a", name).array(), array)
    with pytest.raises(penstock.InvalidArgument, match="one after the other"):
        pool.put("a", "view", memoryview(b"abcdef")[::2])
    with pytest.raises(penstock.NotFound):
        other.get("a", "view")


def test_an_object_outlives_its_drop_while_it_is_used(pool, other):
    data = os.urandom(4 << 20)
    pool.put("big", "", data)
    held = other.get("big")
    pool.drop("big")
    pool.put("big", "", os.urandom(4 << 20), if_exists="overwrite")
    assert held.bytes() == data


def test_tags_place_objects(pool):
    for tag in range(8):
        pool.put("tagged", str(tag), str(tag).encode(), tag=tag)
    for tag in range(8):
        assert pool.get("tagged", str(tag), tag=tag).bytes() == str(tag).encode()
        assert pool.drop("tagged", str(tag), tag=tag)


def test_acknowledgement_without_a_tier(pool):
    pool.put("safe", "memory", b"x", acknowledge="memory")
    pool.put("safe", "replicated", b"x", acknowledge="replicated")
    with pytest.raises(penstock.Unsupported):
        pool.put("safe", "durable", b"x", acknowledge="durable")


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda p: p.put("", "c", b""), penstock.InvalidArgument, "row"),
        (lambda p: p.put("r" * 4097, "c", b""), penstock.InvalidArgument, "4096"),
        (lambda p: p.put("r", "c", b"", if_exists="maybe"), penstock.InvalidArgument, "refuse, overwrite"),
        (lambda p: p.put("r", "c", b"", acknowledge="soon"), penstock.InvalidArgument, "memory, replicated"),
        (lambda p: p.put("r", "c", b"", metadata="m" * 65537), penstock.InvalidArgument, "at most 64KiB"),
        (lambda p: next(p.list("[a")), penstock.InvalidArgument, r"pattern '\[a'"),
        (lambda p: p.need("never", timeout=0.3), penstock.TimeoutError, "never|no answer in time"),
        (lambda p: p.put("huge", "", bytes(300 << 20), timeout=5), penstock.InvalidArgument, "memory"),
    ],
)
def test_errors_name_what_is_wrong(pool, call, error, message):
    with pytest.raises(error, match=message):
        call(pool)


# --------------------------------------------------------------------------------------------------------------- keys


def test_binary_keys_and_long_keys(pool):
    keys = [
        (b"\x00", b"\xff"),
        (b"\x00\x00", b""),
        (b"a\x00b", b"a"),
        (b"a", b"\x00b"),
        (b"\xff" * 4096, b"\x00" * 4096),
        ("Ünïcode", "ключ"),
        (b"*", b"?"),
        (b"[x]", b"\\"),
    ]
    for number, (row, column) in enumerate(keys):
        pool.put(row, column, str(number).encode())
    for number, (row, column) in enumerate(keys):
        assert pool.get(row, column).bytes() == str(number).encode()
        info = pool.info(row, column)
        as_bytes = tuple(k.encode() if isinstance(k, str) else k for k in (info.row, info.column))
        assert as_bytes == tuple(k.encode() if isinstance(k, str) else k for k in (row, column))
    assert len(list(pool.list())) == len(keys)
    assert [pool.drop(row, column) for row, column in keys] == [True] * len(keys)


def test_what_is_no_key_is_refused(pool):
    for key in (7, ["a", "b"], ("a", 7), ("a", "b", "c")):
        with pytest.raises(
            penstock.InvalidArgument, match=r"a key is a row, or|a row or a column is str or bytes, not"
        ):
            pool.get_many([key])
        with pytest.raises(penstock.InvalidArgument):
            pool.put_many([(key, b"data")])
    with pytest.raises(penstock.InvalidArgument, match="not int"):
        pool.put(7, "b", b"data")
    for item in (("a", "b", b"data"), "ab", 7):
        with pytest.raises(penstock.InvalidArgument, match="pairs of a key and data"):
            pool.put_many([item])
    assert list(pool.list()) == []


def test_namespaces_keep_apart(two, open_pool, pool):
    pool.put("same", "key", b"1")
    elsewhere = open_pool(two, ns="elsewhere")
    with pytest.raises(penstock.NotFound):
        elsewhere.get("same", "key")
    elsewhere.put("same", "key", b"2")
    assert pool.get("same", "key").bytes() == b"1"
    assert elsewhere.drop_matching("*") == 1


# ------------------------------------------------------------------------------------------------- batches and patterns


def test_batches_fail_one_by_one(pool):
    pool.put("b", "1", b"there")
    results = pool.put_many([(("b", str(i)), f"value {i}") for i in range(4)])
    assert results[0] == 1 and results[2:] == [1, 1]
    assert isinstance(results[1], penstock.AlreadyExists)
    got = pool.get_many([("b", "0"), ("b", "9"), ("b", "1")])
    assert (got[0].bytes(), got[2].bytes()) == (b"value 0", b"there")
    assert isinstance(got[1], penstock.NotFound)
    infos = pool.info_many([("b", "2"), ("b", "9")])
    assert infos[0].bytes == 7 and isinstance(infos[1], penstock.NotFound)
    assert pool.drop_many([("b", "0"), ("b", "9")]) == [True, False]


def test_a_batch_keeps_dtypes_and_shapes(pool, other):
    arrays = [
        np.arange(6.0).reshape(2, 3),
        np.arange(4, dtype=np.int16),
        np.ones((2, 3)),
        np.float32(2.5),
        np.empty((0, 3)),
    ]
    pool.put("b", "1", b"there")
    results = pool.put_many([(("b", str(i)), array) for i, array in enumerate(arrays)] + [(("b", "text"), "Häher")])
    assert results[0] == 1 and isinstance(results[1], penstock.AlreadyExists) and results[2:] == [1] * 4
    for i in (0, 2, 3, 4):
        found = other.get("b", str(i)).array()
        assert (found.dtype, found.shape) == (arrays[i].dtype, arrays[i].shape) and np.array_equal(found, arrays[i])
    assert other.get("b", "text").text() == "Häher"


def test_a_batch_from_a_dict(pool):
    assert pool.put_many({("r2", "c2"): b"5", "r3": b"6"}) == [1, 1]
    assert (pool.get("r2", "c2").bytes(), pool.get("r3").bytes()) == (b"5", b"6")


def test_a_batch_lets_go_of_its_bytes(pool):
    data = bytearray(1000)
    assert pool.put_many([(("b", "1"), data)]) == [1]
    data.append(0)  # a BufferError while somebody holds them
    assert isinstance(pool.put_many([(("b", "1"), data)])[0], penstock.AlreadyExists)
    data.append(0)


def test_a_large_batch_comes_back_in_order(pool):
    keys = [(f"row {i % 97}", f"{i:06d}") for i in range(5000)]
    assert set(pool.put_many((key, f"{key}".encode()) for key in keys)) == {1}
    found = pool.get_many(keys)
    assert [one.bytes().decode() for one in found] == [f"{key}" for key in keys]
    listed = [(info.row, info.column) for info in pool.list()]
    assert listed == sorted(keys, key=lambda key: (key[0].encode(), key[1].encode()))
    assert sum(pool.drop_many(keys)) == len(keys)


def test_patterns(pool):
    for row in ("heat 1", "heat 2", "wake 1"):
        for column in ("T", "U", "p"):
            pool.put(row, column, b"x")
    assert len(list(pool.list("heat*"))) == 6
    assert [i.row for i in pool.list("heat*", "T")] == ["heat 1", "heat 2"]
    assert {(i.row, i.column) for i in pool.list("*1", "[T-U]")} == {
        (row, column) for row in ("heat 1", "wake 1") for column in "TU"
    }
    assert len(list(pool.list(limit=4))) == 4
    assert pool.drop_matching("heat ?", "p") == 2
    assert pool.drop_matching("*") == 7
    assert list(pool.list()) == []


# ------------------------------------------------------------------------------------------------------------- waiting


def test_need_waits_until_the_object_comes(pool, other):
    waiting = background(other.need, "late", "x", timeout=TIMEOUT_S)
    want = other.want("late", "x", timeout=TIMEOUT_S)
    with pytest.raises(TimeoutError):
        waiting.result(SOON_S)
    assert not want.done()
    pool.put("late", "x", b"came")
    assert waiting.result(TIMEOUT_S).bytes() == b"came"
    assert want.wait().bytes() == b"came"


def test_two_waiters_on_one_key(two, open_pool, pool):
    clients = [open_pool(two, ns=pool._options["ns"]) for _ in range(2)]
    waiting = [background(client.need, "one", "key", timeout=TIMEOUT_S) for client in clients for _ in range(2)]
    pool.put("one", "key", b"for all")
    assert [task.result(TIMEOUT_S).bytes() for task in waiting] == [b"for all"] * 4


def test_drop_while_waited_on(pool, other):
    """A drop does not end a wait: the next put does."""
    wants = [other.want("again", str(i), timeout=TIMEOUT_S) for i in range(20)]
    for i in range(20):
        assert pool.drop("again", str(i)) is False
    assert not any(want.done() for want in wants)
    for i in range(20):
        pool.put("again", str(i), b"first")
    assert [want.wait().bytes() for want in wants] == [b"first"] * 20
    for i in range(20):
        assert pool.drop("again", str(i)) is True
    again = other.want("again", "0", timeout=TIMEOUT_S)
    pool.put("again", "0", b"second")
    assert again.wait().bytes() == b"second"


def test_put_and_drop_race_with_waiters(pool, other):
    """Whoever waits gets some version that was put, or goes on waiting; nobody gets anything else."""
    stop = threading.Event()

    def churn():
        for number in itertools.count():
            if stop.is_set():
                return
            pool.put("race", "x", f"{number}".encode())
            pool.drop("race", "x")

    churner = background(churn)
    try:
        for _ in range(50):
            assert other.need("race", "x", timeout=TIMEOUT_S).bytes().isdigit()
    finally:
        stop.set()
        churner.result(TIMEOUT_S)


def test_racing_puts(two, open_pool, pool):
    """One of them wins; the others hear so, and everybody reads the winner's bytes."""
    clients = [open_pool(two, ns=pool._options["ns"]) for _ in range(4)]
    for key in (f"key {i}" for i in range(20)):

        def put(number, key=key):
            try:
                return clients[number].put("racing", key, f"{number}".encode() * 1000)
            except penstock.AlreadyExists:
                return None

        with ThreadPoolExecutor(4) as threads:
            versions = list(threads.map(put, range(4)))
        winners = [number for number, version in enumerate(versions) if version is not None]
        assert len(winners) == 1 and versions[winners[0]] == 1
        assert {client.get("racing", key).bytes() for client in clients} == {f"{winners[0]}".encode() * 1000}


def test_racing_overwrites_number_their_versions(two, open_pool, pool):
    clients = [open_pool(two, ns=pool._options["ns"]) for _ in range(4)]

    def put(number):
        return clients[number].put("racing", "over", f"{number}".encode(), if_exists="overwrite")

    with ThreadPoolExecutor(4) as threads:
        versions = sorted(threads.map(put, range(4)))
    assert versions == [1, 2, 3, 4]


def test_wait_row(pool, other):
    task = background(other.wait_row, "complete", 3, "part *", timeout=TIMEOUT_S)
    pool.put("complete", "part 1", b"")
    pool.put("complete", "else", b"")
    pool.put("complete", "part 2", b"")
    with pytest.raises(TimeoutError):
        task.result(SOON_S)
    pool.put("complete", "part 3", b"")
    assert [info.column for info in task.result(TIMEOUT_S)] == ["part 1", "part 2", "part 3"]
    with pytest.raises(penstock.TimeoutError):
        pool.wait_row("complete", 9, timeout=0.05)


def test_a_count_of_objects_that_a_call_cannot_hold_is_refused(pool):
    for count in (-1, 2**32, 2**64):
        with pytest.raises(penstock.InvalidArgument, match=f"0 to 4294967295 objects, not {count}"):
            pool.wait_row("row", count)


def test_close_ends_the_calls_of_other_threads(two, open_pool, pool):
    open_pool(two).close()  # what a client leaves for the next one is there
    pool.status()  # connects to both servers
    held = len(os.listdir("/proc/self/fd"))
    closed = open_pool(two, ns=pool._options["ns"])
    never, long = [("never", str(number)) for number in range(3)], 3 * TIMEOUT_S
    want = closed.want("never", timeout=long)
    calls = [
        lambda: closed.wait_row("never", 3, timeout=long),
        lambda: closed.get_many(never, wait=True, timeout=long),
        lambda: closed.need("never", timeout=long),
        lambda: closed.compute("sum", never, wait=True, timeout=long),
    ]
    tasks = [background(call) for call in calls for _ in range(2)]
    with pytest.raises(TimeoutError):
        tasks[0].result(SOON_S)
    begun = time.monotonic()
    closed.close()
    for key in never:
        pool.put(*key, b"too late")
    for ends in [want.wait, *(lambda task=task: task.result(TIMEOUT_S) for task in tasks)]:
        with pytest.raises(penstock.WrongState, match="the pool is closed"):
            ends()
    assert time.monotonic() - begun < TIMEOUT_S
    while len(os.listdir("/proc/self/fd")) > held:  # connections end on the library's thread
        assert time.monotonic() - begun < TIMEOUT_S
        pool.status()


def test_close_ends_calls_to_a_server_that_does_not_answer(pool_servers, open_pool):
    servers = pool_servers(2)
    closed = open_pool(servers, timeout=3 * TIMEOUT_S)
    stopped = servers.servers[1].process.pid
    os.kill(stopped, signal.SIGSTOP)
    try:
        puts = [((str(number), ""), b"") for number in range(32)]  # some of them to each server
        tasks = [background(lambda: list(closed.list())), background(closed.put_many, puts)]
        for task in tasks:
            with pytest.raises(TimeoutError):
                task.result(SOON_S)
        closed.close()
        for task in tasks:
            with pytest.raises(penstock.WrongState, match="the pool is closed"):
                task.result(TIMEOUT_S)
    finally:
        os.kill(stopped, signal.SIGCONT)


def test_close_ends_puts_of_other_threads(pool_servers, open_pool):
    servers = pool_servers(1, memory="8MiB")
    other, closed = open_pool(servers), open_pool(servers)
    other.put("full", "", bytes(6 << 20))
    puts = [
        background(closed.put_many, [(("late", "many"), bytes(6 << 20))], timeout=3 * TIMEOUT_S),
        background(closed.put, "late", "one", bytes(6 << 20), timeout=3 * TIMEOUT_S),
    ]
    with pytest.raises(TimeoutError):
        puts[0].result(SOON_S)
    closed.close()
    for put in puts:
        with pytest.raises(penstock.WrongState, match="the pool is closed"):
            put.result(TIMEOUT_S)
    other.drop("full")
    other.put("late", "other", bytes(6 << 20), timeout=TIMEOUT_S)  # nothing else takes the memory
    assert [info.column for info in other.list("late")] == ["other"]


def test_start_put(pool):
    pending = [pool.start_put("async", str(i), bytes(100_000)) for i in range(20)]
    assert [put.wait() for put in pending] == [1] * 20
    assert all(put.done() for put in pending)
    assert len(list(pool.list("async"))) == 20


def test_start_put_that_nobody_waits_for(pool, other):
    pool.start_put("a", "forgotten", np.full(1 << 20, 7, np.uint8))  # the only holder of these bytes
    assert other.need("a", "forgotten").array("uint8").min() == 7


def test_a_full_pool_waits_then_says_so(pool_servers, open_pool):
    servers = pool_servers(1, memory="8MiB")
    pool = open_pool(servers)
    with pytest.raises(penstock.PoolFull):
        for i in range(40):
            # A machine that stands still for a moment answers too late to say why.
            with contextlib.suppress(penstock.TimeoutError):
                pool.put("fill", str(i), bytes(1 << 20), timeout=1)
    filling = list(pool.list("fill"))
    assert 5 <= len(filling) <= 8
    waiting = background(pool.put, "fill", "more", bytes(1 << 20), timeout=TIMEOUT_S)
    with pytest.raises(TimeoutError):
        waiting.result(SOON_S)
    pool.drop("fill", filling[0].column)
    assert waiting.result(TIMEOUT_S) == 1


# ------------------------------------------------------------------------------------------------------------- compute


def test_compute_beside_the_data(pool):
    blocks = [np.arange(10.0) + 10 * i for i in range(5)]
    for i, block in enumerate(blocks):
        pool.put(f"block {i}", "T", block)
    keys = [(f"block {i}", "T") for i in range(5)]
    assert pool.compute("sum", keys) == sum(block.sum() for block in blocks)
    assert pool.compute("max", keys) == 49.0
    counts = pool.compute("histogram", keys, bins=5, range=[0, 50])
    assert counts.tolist() == [10] * 5
    with pytest.raises(penstock.NotFound, match="smu"):
        pool.compute("smu", keys)
    with pytest.raises(penstock.NotFound, match="block 9"):
        pool.compute("sum", [("block 9", "T")])
    waiting = background(pool.compute, "min", [("block 7", "T")], wait=True)
    pool.put("block 7", "T", np.array([3, 1, 2]))
    assert waiting.result(TIMEOUT_S) == 1
