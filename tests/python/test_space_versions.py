"""Versions of arrays: which are kept, who has read them, and subscriptions to those that come."""

import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest


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
    versions = T.subscribe(np.s_[2:4], timeout=1)
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
        list(T.subscribe(start=1, step=3, timeout=1))
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
        list(T.subscribe(start=1, stop=20, timeout=1))


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
