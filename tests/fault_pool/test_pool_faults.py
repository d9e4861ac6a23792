"""Servers killed, added, drained, cut off and out of space, under load: what was acknowledged is there.

Moments are drawn from the seed as numbers of acknowledgements, not as times. PENSTOCK_SOAK=1: 20 seeds of each.
"""

import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import penstock
import pytest
from pool_load import History, Load, checksum, seeds
from test_pool_streams import Peers, check_kept

CALL_S = 20.0
READY_S = 60.0


def load(pools, history, seed, **options):
    return Load(pools.open, history, seed, CALL_S, **options)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_server_is_killed_under_load(pools, report, seed):
    chance, history = random.Random(seed), History()
    pool = pools(servers=3, replication=2)
    with load(pool, history, seed):
        history.until(moment := chance.randrange(50, 1500))
        pool.kill(dying := chance.randrange(1, 4))
        history.more(300)
    reader = pool.open()
    pool.settled(reader, pool.members())
    wrong = history.wrong + history.failed + history.verify(reader)
    report("a server of three is killed", seed, wrong, {"killed": f"{dying} after {moment}"} | history.summary())


@pytest.mark.parametrize("seed", seeds(2))
def test_a_server_stands_still_longer_than_its_lease(pools, report, seed):
    chance, history = random.Random(seed), History()
    pool = pools(servers=3, replication=2)
    client = pool.open()
    client.put_many([(("old", str(n)), b"old") for n in range(200)], acknowledge="replicated")
    still = pool.server(chance.randrange(1, 4))
    with load(pool, history, seed, levels=("replicated", "durable")):
        history.until(moment := chance.randrange(50, 500))
        still.process.send_signal(signal.SIGSTOP)
        try:
            pool.settled(client, pool.members() - {still.ready["id"]})
            dropped = client.drop_matching("old", "*")
            history.more(100)
        finally:
            still.process.send_signal(signal.SIGCONT)
        pool.settled(client, pool.members())
        history.more(100)
    wrong = history.wrong + history.failed + history.verify(client)
    back = sorted(key.column for key in client.list("old", "*"))
    report("a server stands still", seed, wrong, {"still": f"{still.number} after {moment}"} | history.summary())
    assert dropped == 200 and back == []


def test_what_was_put_since_stays_without_replicas(pools):
    pool = pools(servers=2, replication=1)
    client = pool.open()
    keys = [(f"row {n}", "c") for n in range(40)]
    client.put_many([(key, b"old") for key in keys], acknowledge="replicated")
    still = pool.server(2)
    still.process.send_signal(signal.SIGSTOP)
    try:
        pool.settled(client, pool.members() - {still.ready["id"]})
        written = [client.put(*key, b"new", acknowledge="replicated", if_exists="overwrite") for key in keys]
    finally:
        still.process.send_signal(signal.SIGCONT)
    pool.settled(client, pool.members())
    assert {client.get(*key).bytes() for key in keys} == {b"new"}
    assert min(written) > 1 << 40, "also of the keys that were there: a lost server may have newer ones than this one"


@pytest.mark.parametrize("seed", seeds(1))
def test_one_is_killed_one_added_and_one_drained(pools, report, seed):
    chance, history = random.Random(seed), History()
    pool = pools(servers=3, replication=2, drain_timeout_ms=30_000)
    leaving, dying = chance.sample([1, 2, 3], 2)
    steps = ["add", "drain", "kill"]
    chance.shuffle(steps)
    with load(pool, history, seed):
        for step in steps:
            history.more(chance.randrange(30, 250))
            if step == "add":
                pool.stage.start_one(4)
            elif step == "drain":
                pool.drain(leaving)
            else:
                pool.kill(dying)
        history.more(50)
        pool.stage.wait_ready(READY_S)
        code = pool.drained(leaving)
    reader = pool.open()
    pool.settled(reader, pool.members())
    wrong = history.wrong + history.failed + history.verify(reader)
    if code != 0:
        wrong.append(f"the drained server ended with {code}")
    report("one killed, one added, one drained", seed, wrong, {"order": "-".join(steps)} | history.summary())


@pytest.mark.parametrize("seed", seeds(1))
def test_all_servers_are_killed_at_once(pools, report, seed):
    chance, history = random.Random(seed), History()
    pool = pools(servers=3, replication=2)
    with load(pool, history, seed, levels=("durable",)):
        history.until(moment := chance.randrange(50, 800))
        everyone = [*pool.stage.servers, *pool.names.servers]
        for server in everyone:
            server.process.kill()
        pool.kill_directory()
        for group in (pool.stage, pool.names):
            for server in list(group.servers):
                group.stop_one(server)
        pool.names.start_one(1)
        pool.names.wait_ready(READY_S)
        for number in (1, 2, 3):
            pool.stage.start_one(number)
        pool.stage.wait_ready(READY_S)
        history.more(100)
    reader = pool.open()
    pool.settled(reader, pool.members())
    wrong = history.wrong + history.verify(reader)
    report("all servers are killed and restarted (durable)", seed, wrong, {"killed after": moment} | history.summary())


# ---------------------------------------------------------------------------------------------------- a disk that fills

USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


def with_sbin():
    return {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A folder of 64 MiB, in a namespace of mounts of its own, where penstock-server finds itself started. Gives the
    folder, grow(size), fill(), which leaves not a byte, and free(), which takes that back."""
    if any(shutil.which(tool, path=with_sbin()["PATH"]) is None for tool in ("unshare", "nsenter", "mount")):
        pytest.skip("needs unshare, nsenter and mount")
    folder = tmp_path / "disk" / "server-1"
    folder.mkdir(parents=True)
    script = f"mount -t tmpfs -o size=64m tmpfs '{folder}' && echo up && exec cat"
    holder = subprocess.Popen(
        ["unshare", *USER, "--mount", "sh", "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=with_sbin(), text=True,
    )  # fmt: skip
    try:
        if holder.stdout.readline() != "up\n":
            holder.stdin.close()
            pytest.skip(f"needs namespaces of users and mounts: {holder.stderr.read().strip()}")
        user = ["--user", "--preserve-credentials"] if USER else []
        enter = ["nsenter", *user, "--mount", "--target", str(holder.pid)]
        programs = tmp_path / "bin"
        programs.mkdir()
        build = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build"))
        real = Path(os.environ.get("PENSTOCK_BIN", build / "bin")) / "penstock-server"
        (programs / "penstock-server").write_text(f'#!/bin/sh\nexec {" ".join(enter)} "{real.resolve()}" "$@"\n')
        (programs / "penstock-server").chmod(0o755)
        monkeypatch.setenv("PENSTOCK_BIN", str(programs))
        monkeypatch.setenv("PATH", with_sbin()["PATH"])

        def grow(size):
            words = [*enter, "mount", "-o", f"remount,size={size}", str(folder)]
            subprocess.run(words, check=True, timeout=READY_S)

        def fill():
            # The server may free space meanwhile: until there is none.
            script = f"""
                while [ "$(df --output=avail -B1 '{folder}' | tail -n 1)" -gt 0 ]; do
                  dd if=/dev/zero bs=4096 oflag=append conv=notrunc of='{folder}/filler' 2>/dev/null || :
                done"""
            subprocess.run([*enter, "sh", "-c", script], check=True, timeout=READY_S)

        def free():
            subprocess.run([*enter, "rm", f"{folder}/filler"], check=True, timeout=READY_S)

        yield folder, grow, fill, free
    finally:
        holder.stdin.close()
        holder.wait(READY_S)
        holder.stdout.close()
        holder.stderr.close()


def test_a_disk_fills(pools, report, small_disk):
    folder, grow, *_ = small_disk
    chance, history = random.Random(1), History()
    pool = pools(servers=1, replication=1, memory="256MiB", write_behind="off")
    client = pool.open()
    refused = None
    for n in range(100):
        data = chance.randbytes(1 << 20)
        change = history.begin(("durable", f"{n}"), "durable", checksum(data))
        try:
            client.put("durable", f"{n}", data, acknowledge="durable")
        except penstock.Error as error:
            refused = error
            break
        history.acknowledge(("durable", f"{n}"), change)
    wrong = []
    if refused is None:
        wrong.append("a disk of 64 MiB took 100 MiB")
    elif "no space" not in str(refused).lower() or str(folder) not in str(refused):
        wrong.append(f"the error does not name the disk and what is wrong: {type(refused).__name__}: {refused}")
    memory = History()
    for n in range(20):
        data = chance.randbytes(1 << 20)
        change = memory.begin(("memory", f"{n}"), "memory", checksum(data))
        try:
            client.put("memory", f"{n}", data, acknowledge="memory")
            memory.acknowledge(("memory", f"{n}"), change)
        except penstock.Error as error:
            wrong.append(f"memory: {type(error).__name__}: {error}")
            break
    wrong += memory.verify(client) + history.verify(client)
    pool.kill(1)
    grow("256m")
    pool.stage.start_one(1)
    pool.stage.wait_ready(READY_S)
    wrong += history.verify(pool.open())
    client = pool.open()
    client.put("after", "x", b"there is room again", acknowledge="durable")
    figures = {"durable": history.acknowledged, "memory": memory.acknowledged, "error": refused}
    report("a disk fills (64 MiB)", 1, wrong, figures)


@pytest.mark.parametrize("tier", ["rocksdb", "disk"])
def test_a_disk_fills_and_is_freed(pools, report, context, small_disk, tier):
    """Others fill the disk and free it again, over and over, under a load of objects and a stream. Calls fail in
    time, with an error that names the disk; with space they work again. What was acknowledged stays.
    PENSTOCK_SOAK=1: 20 times.
    """
    folder, grow, fill, free = small_disk
    grow("512m")
    history = History()
    pool = pools(servers=1, replication=1, memory="256MiB", tier=tier, write_behind="off")
    times, steps = 20 if "PENSTOCK_SOAK" in os.environ else 2, 12
    with Peers(pool) as peers, load(pool, history, 1, levels=("durable", "durable", "memory"), needs=False):
        client = pool.open()
        for n in range(times):
            client.put("to drop", f"{n}", b"x" * 100_000, acknowledge="durable")
            writer = peers.start("write", f"heat{n}", steps, 3, "durable")
            writer.until("ended", 1)
            fill()
            failed = len(history.failed)
            history.wait(lambda failed=failed: len(history.failed) >= failed + 5, "errors on a full disk")
            there, refused = True, False
            try:
                there = client.drop("to drop", f"{n}")
            except penstock.SystemFailure as error:  # the disk has no room to note that it is gone
                refused = "no space" in str(error) and str(folder) in str(error)
                there = refused
            if not there:
                history.must_not_be("a drop on the full disk: no such object, or an unclear error")
            free()
            history.more(20)
            if refused:
                client.drop("to drop", f"{n}")
            if writer.end().lines[-1] != "closed":
                history.must_not_be(f"a writer ended otherwise: {writer.lines[-1:]}")
    unclear = [e for e in history.failed if "no space" not in e.lower() or str(folder) not in e]
    wrong = history.wrong + unclear[:3] + history.verify(pool.open())
    pool.kill(1)
    pool.stage.start_one(1)
    pool.stage.wait_ready(READY_S)
    history.levels = ("durable",)
    wrong += history.verify(pool.open())
    for n in range(times):
        wrong += check_kept(context, steps, steps, "end", f"heat{n}")
    report(f"a disk fills and is freed, {times} times ({tier})", 1, wrong, history.summary())


def test_a_server_starts_on_a_full_disk(pools, report, small_disk):
    """Others have filled the disk while it was away: it serves what it has, and says what it cannot take."""
    _, grow, fill, _ = small_disk
    chance, history = random.Random(1), History()
    pool = pools(servers=1, replication=1, memory="256MiB", write_behind="off")
    client = pool.open()

    def put(row, bytes_each):
        data = chance.randbytes(bytes_each)
        change = history.begin((row, "x"), "durable", checksum(data))
        client.put(row, "x", data, acknowledge="durable")
        history.acknowledge((row, "x"), change)

    for n in range(200):
        put(f"small {n}", 500)
    put("large", 1 << 20)
    wrong = []
    for _ in range(2):
        pool.kill(1)
        fill()
        pool.stage.start_one(1)
        pool.stage.wait_ready(READY_S)
        client = pool.open()
        wrong += history.verify(client)
        try:
            client.put("refused", "x", b"there is no room", acknowledge="durable")
            wrong.append("a full disk took an object")
        except penstock.Error as error:
            if "no space" not in str(error).lower():
                wrong.append(f"the error does not say what is wrong: {type(error).__name__}: {error}")
    grow("256m")
    put("after", 1000)
    pool.kill(1)
    pool.stage.start_one(1)
    pool.stage.wait_ready(READY_S)
    wrong += history.verify(pool.open())
    report("a server starts on a full disk", 1, wrong, {"durable": history.acknowledged})
