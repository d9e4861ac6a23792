"""Servers killed, added, drained, cut off and out of space, under load: what was acknowledged is there.

Moments are drawn from the seed as numbers of acknowledgements, not as times. PENSTOCK_SOAK=1: 20 seeds instead of 3.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import penstock
import pytest
from pool_load import History, Load

CALL_S = 20.0
READY_S = 60.0
SEEDS = range(1, 21 if os.environ.get("PENSTOCK_SOAK") else 4)
ONE_SEED = range(1, 6 if os.environ.get("PENSTOCK_SOAK") else 2)


def kill(pools, number):
    server = pools.server(number)
    assert pools.stage.stop_one(server, number=signal.SIGKILL) == -signal.SIGKILL
    return server


def load(pools, history, seed, **options):
    return Load(pools.open, history, seed, CALL_S, **options)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_server_is_killed_under_load(pools, report, seed):
    chance, history = random.Random(seed), History()
    pool = pools(servers=3, replication=2)
    with load(pool, history, seed):
        history.until(moment := chance.randrange(20, 200))
        kill(pool, chance.randrange(1, 4))
        history.until(len(history.acknowledged) + 100)
    reader = pool.open()
    pool.settled(reader, pool.members())
    wrong = history.wrong + history.failed + history.verify(reader)
    report("a server of three is killed (replication 2)", seed, wrong, {"killed after": moment} | history.summary())


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_one_is_killed_one_added_and_one_drained(pools, report, seed):
    chance, history = random.Random(seed), History()
    pool = pools(servers=3, replication=2, drain_timeout_ms=30_000)
    leaving, dying = chance.sample([1, 2, 3], 2)
    steps = ["add", "drain", "kill"]
    chance.shuffle(steps)
    with load(pool, history, seed):
        admin = pool.open()
        for step in steps:
            history.until(len(history.acknowledged) + chance.randrange(10, 80))
            if step == "add":
                pool.stage.start_one(4)
            elif step == "drain":
                admin.administer(pool.server(leaving).ready["id"], "drain")
            else:
                kill(pool, dying)
        history.until(len(history.acknowledged) + 50)
        pool.stage.wait_ready(READY_S)
        left = pool.server(leaving)
        code = left.process.wait(READY_S)
        pool.stage.stop_one(left)
    reader = pool.open()
    pool.settled(reader, pool.members())
    wrong = history.wrong + history.failed + history.verify(reader)
    if code != 0:
        wrong.append(f"the drained server ended with {code}")
    report("one killed, one added, one drained", seed, wrong, {"order": "-".join(steps)} | history.summary())


@pytest.mark.parametrize("seed", ONE_SEED)
def test_all_servers_are_killed_at_once(pools, report, seed):
    chance, history = random.Random(seed), History()
    pool = pools(servers=3, replication=2)
    with load(pool, history, seed, levels=("durable",)):
        history.until(moment := chance.randrange(20, 200))
        everyone = [*pool.stage.servers, *pool.names.servers]
        for server in everyone:
            server.process.kill()
        for group in (pool.stage, pool.names):
            for server in list(group.servers):
                group.stop_one(server)
        pool.names.start_one(1)
        pool.names.wait_ready(READY_S)
        for number in (1, 2, 3):
            pool.stage.start_one(number)
        pool.stage.wait_ready(READY_S)
        history.until(len(history.acknowledged) + 30)
    reader = pool.open()
    pool.settled(reader, pool.members())
    wrong = history.wrong + history.verify(reader)
    report("all servers are killed and restarted (durable)", seed, wrong, {"killed after": moment} | history.summary())


@pytest.mark.parametrize("seed", ONE_SEED)
def test_what_was_not_synced_is_lost(pools, report, seed, tmp_path, monkeypatch):
    build = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build"))
    preload = build / "tests" / "unsynced" / "libunsynced_preload.so"
    if not preload.exists():
        pytest.skip(f"{preload} is not built (sanitizers want to be the first library)")
    root, journal = tmp_path / "disk" / "server-1", tmp_path / "journal"
    root.mkdir(parents=True)
    chance, history = random.Random(seed), History()
    pool = pools(begin=False, servers=1, replication=1)
    pool.names.start()
    pool.names.wait_ready(READY_S)
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(preload))
        patch.setenv("PENSTOCK_UNSYNCED_ROOT", str(root))
        patch.setenv("PENSTOCK_UNSYNCED_JOURNAL", str(journal))
        pool.stage.start()
    pool.stage.wait_ready(READY_S)
    with load(pool, history, seed, levels=("memory", "durable")):
        history.until(moment := chance.randrange(20, 200))
        kill(pool, 1)
        durable = History()
        durable.acknowledged = {k: v for k, v in history.acknowledged.items() if v[0] == "durable"}
        roll_back = [sys.executable, Path(__file__).parents[1] / "unsynced" / "roll_back.py", root, journal]
        survive = ["--survive", str(seed)] if seed % 2 == 0 else []
        done = subprocess.run([*roll_back, *survive], capture_output=True, text=True, timeout=READY_S)
        assert done.returncode == 0, done.stderr
        pool.stage.start_one(1)
        pool.stage.wait_ready(READY_S)
    wrong = [text for text in history.wrong if "was acknowledged" not in text] + durable.verify(pool.open())
    figures = {"killed after": moment, "durable": len(durable.acknowledged), "lost": done.stdout.strip()}
    report("a server's disk loses what was not synced", seed, wrong, figures)


def test_the_directory_dies_and_comes_back(pools, report):
    history = History()
    pool = pools(servers=3, replication=2)
    watcher = pool.open()
    pool.settled(watcher, pool.members())
    with load(pool, history, 1):
        history.until(50)
        pool.names.stop_one(pool.names.servers[0], number=signal.SIGKILL)
        before = watcher.status()
        history.until(len(history.acknowledged) + 100)
        frozen = watcher.status()
        pool.names.start_one(1)
        pool.names.wait_ready(READY_S)
        pool.stage.start_one(4)
        pool.stage.wait_ready(READY_S)
        history.until(len(history.acknowledged) + 100)
    reader = pool.open()
    after = pool.settled(reader, pool.members())
    wrong = history.wrong + history.failed + history.verify(reader)
    if frozen["view"] != before["view"]:
        wrong.append(f"view {frozen['view']} without a directory, {before['view']} when it died")
    if after["view"] <= before["view"]:
        wrong.append("membership did not move again")
    report("the directory is killed and restarted", 1, wrong, history.summary())


# ---------------------------------------------------------------------------------------------------- a disk that fills

USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


def with_sbin():
    return {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A folder of 64 MiB, in a namespace of mounts of its own, where penstock-server finds itself started. Gives the
    folder and grow(size)."""
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
            pytest.skip(f"no mounts for us: {holder.stderr.read().strip()}")
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

        yield folder, grow
    finally:
        holder.stdin.close()
        holder.wait(READY_S)
        holder.stdout.close()
        holder.stderr.close()


def test_a_disk_fills(pools, report, small_disk):
    folder, grow = small_disk
    chance, history = random.Random(1), History()
    pool = pools(servers=1, replication=1, memory="256MiB", write_behind="off")
    client = pool.open()
    refused = None
    for n in range(100):
        data = chance.randbytes(1 << 20)
        try:
            client.put("durable", f"{n}", data, acknowledge="durable")
        except penstock.Error as error:
            refused = error
            break
        history.acknowledge(("durable", f"{n}"), "durable", data)
    wrong = []
    if refused is None:
        wrong.append("a disk of 64 MiB took 100 MiB")
    elif "no space" not in str(refused).lower() or str(folder) not in str(refused):
        wrong.append(f"the error does not name the disk and what is wrong: {type(refused).__name__}: {refused}")
    memory = History()
    for n in range(20):
        data = chance.randbytes(1 << 20)
        try:
            client.put("memory", f"{n}", data, acknowledge="memory")
            memory.acknowledge(("memory", f"{n}"), "memory", data)
        except penstock.Error as error:
            wrong.append(f"memory: {type(error).__name__}: {error}")
            break
    wrong += memory.verify(client) + history.verify(client)
    kill(pool, 1)
    grow("256m")
    pool.stage.start_one(1)
    pool.stage.wait_ready(READY_S)
    wrong += history.verify(pool.open())
    client = pool.open()
    client.put("after", "x", b"there is room again", acknowledge="durable")
    figures = {"durable": len(history.acknowledged), "memory": len(memory.acknowledged), "error": refused}
    report("a disk fills (64 MiB)", 1, wrong, figures)
