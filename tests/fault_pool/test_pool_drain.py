"""`penstock pool drain` and `stop` with real servers, as `penstock pool serve` starts them.

A drain hands every object on, or it fails and the server stays.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from pool_load import History, Load, seeds
from test_pool_streams import Peers, check_kept, check_reader

CALL_S = 20.0
DEADLINE_S = 120.0
MIB = 1 << 20
SLOW = {"rebalance_bytes_per_s": "1MiB"}  # so that a drain is in progress when something else happens


class Command:
    """`penstock pool ...` in a process of its own."""

    def __init__(self, pool, *words):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "pool", *map(str, words), "--pool", "stage", "--yes"],
            env=kept | {"PENSTOCK_DIRECTORY_SERVICE": pool.names.directory, "COLUMNS": "200"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def end(self):
        """Its exit code and what it said."""
        try:
            text, _ = self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            text, _ = self.process.communicate()
            return "killed", text
        return self.process.returncode, text


def name(pool, number):
    return pool.server(number).ready["name"]


def run(pool, *words):
    return Command(pool, *words).end()


def put_objects(client, count, bytes_each=100):
    chance = random.Random(count)
    values = {(f"row {n}", "x"): chance.randbytes(bytes_each) for n in range(count)}
    for at in range(0, count, 1000):
        part = list(values.items())[at : at + 1000]
        assert not [v for v in client.put_many(part) if isinstance(v, Exception)]
    return values


def lost(client, values):
    """Those that cannot be read as they were put."""
    keys, missing = list(values), []
    for at in range(0, len(keys), 1000):
        part = keys[at : at + 1000]
        for key, found in zip(part, client.get_many(part), strict=True):
            if isinstance(found, Exception) or found.bytes() != values[key]:
                missing.append(key)
    return missing


def wait_for(what, text):
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline, text
        threading.Event().wait(0.02)  # there is no call that waits for it


def states(client):
    return {server["id"]: server["state"] for server in client.status()["servers"]}


def hold(client, pool, number):
    """How many objects a server holds."""
    return next(s["objects"] for s in client.status()["servers"] if s["id"] == pool.server(number).ready["id"])


@pytest.mark.parametrize("count", [0, 6, 30_000])
def test_a_drain_hands_every_object_on(pools, count):
    pool = pools(servers=2)
    client = pool.open()
    values = put_objects(client, count)
    drained = pool.server(2)
    code, text = run(pool, "drain", name(pool, 2))
    assert not (gone := lost(client, values)), f"{len(gone)} of {count} objects are lost; exit code {code}: {text}"
    assert code == 0 and "has left the pool" in text, text
    assert drained.process.wait(DEADLINE_S) == 0
    assert set(states(client)) == {pool.server(1).ready["id"]}


def test_a_drain_without_room_fails_and_the_server_stays(pools):
    pool = pools(servers=2, memory="64MiB", disk=None)
    client = pool.open()
    values = put_objects(client, 80, MIB)  # many, for the hash of a key picks its server: neither gets nearly all
    assert hold(client, pool, 1) >= 17 and hold(client, pool, 2) >= 17
    code, text = run(pool, "drain", name(pool, 2), "--timeout", "2")
    assert not (gone := lost(client, values)), f"{len(gone)} objects are lost; exit code {code}: {text}"
    assert code == 124 and "could not be handed on" in text and "within 2 s" in text, text
    wait_for(lambda: set(states(client).values()) == {"active"}, "the server did not stay")
    code, text = run(pool, "drain", name(pool, 2))
    assert code == 1 and "no room for" in text and name(pool, 1) in text and "could not be handed on" in text, text
    assert pool.server(2).running
    pool.settled(client, pool.members())
    assert set(states(client).values()) == {"active"}
    assert not lost(client, values)
    client.put("after", "x", b"it serves")


def test_the_last_server_is_not_drained(pools):
    pool = pools(servers=1, disk=None)
    client = pool.open()
    values = put_objects(client, 20)
    code, text = run(pool, "drain", name(pool, 1))
    assert code == 1 and "the only active server" in text and "20 objects" in text, (code, text)
    assert not lost(client, values) and states(client) == {pool.server(1).ready["id"]: "active"}


@pytest.mark.parametrize("seed", seeds(1))
def test_a_drain_under_load(pools, report, context, seed):
    """Objects are put, replaced and dropped, two streams are written and read, without replicas."""
    history, steps = History(), 60
    pool = pools(servers=3)
    leaving = random.Random(seed).randrange(1, 4)
    with Peers(pool) as peers, Load(pool.open, history, seed, CALL_S, levels=("memory",), putters=2, getters=1):
        peers.start("write", "heat", steps, 3, "memory")
        reader = peers.start("read", "heat", "plots")
        reader.until("read", 5)
        drained = pool.server(leaving)
        code, text = run(pool, "drain", name(pool, leaving))
        history.more(50)
        for peer in peers.started:
            peer.end()
    wrong = history.wrong + history.failed + history.verify(pool.open())
    wrong += check_reader(reader, steps, steps, "end") + check_kept(context, steps, steps, "end")
    if code != 0 or drained.process.wait(DEADLINE_S) != 0:
        wrong.append(f"the drain ended with {code}, the server with {drained.process.returncode}: {text}")
    report("a server is drained under load, no replicas", seed, wrong, {"drained": leaving} | history.summary())


def test_two_servers_are_drained_at_once(pools):
    pool = pools(servers=3)
    client = pool.open()
    values = put_objects(client, 3000)
    commands = [Command(pool, "drain", name(pool, number)) for number in (1, 3)]
    ends = [command.end() for command in commands]
    assert not (gone := lost(client, values)), f"{len(gone)} of 3000 objects are lost: {ends}"
    assert [code for code, _ in ends] == [0, 0], ends
    assert set(states(client)) == {pool.server(2).ready["id"]}


def test_of_two_servers_that_are_drained_at_once_one_stays(pools):
    pool = pools(servers=2, **SLOW)
    client = pool.open()
    values = put_objects(client, 100, 50_000)
    commands = [Command(pool, "drain", name(pool, number)) for number in (1, 2)]
    ends = [command.end() for command in commands]
    assert not (gone := lost(client, values)), f"{len(gone)} of 100 objects are lost: {ends}"
    assert sorted(code for code, _ in ends) == [0, 1], ends
    assert any("active" in text for code, text in ends if code == 1), ends
    assert list(states(client).values()) == ["active"]


def draining(pool, client, number):
    """A drain that is in progress, and its command."""
    command = Command(pool, "drain", name(pool, number))
    while "is draining" not in (line := command.process.stdout.readline()):
        assert line, "the command has ended"
    there = pool.server(number).ready["id"]
    wait_for(lambda: states(client).get(there) == "draining", "no drain began")
    return command


def test_the_server_that_takes_over_dies(pools):
    """What the other server had is lost with it; what the draining one has is not."""
    pool = pools(servers=2, disk=None, **SLOW)
    client = pool.open()
    values = put_objects(client, 200, 100_000)
    owned = hold(client, pool, 2)
    command = draining(pool, client, 2)
    pool.kill(1)
    code, text = command.end()
    assert code == 1 and "no other server of the pool is active" in text, (code, text)
    assert pool.server(2).running
    pool.settled(client, pool.members())
    assert len(values) - len(lost(client, values)) >= owned > 50
    assert list(states(client).values()) == ["active"]


def test_a_drain_goes_on_when_another_server_dies(pools):
    pool = pools(servers=3, replication=2, disk=None, **SLOW)
    client = pool.open()
    chance = random.Random(1)
    values = {(f"row {n}", "x"): chance.randbytes(100_000) for n in range(300)}
    client.put_many(list(values.items()), acknowledge="replicated")
    command = draining(pool, client, 2)
    pool.kill(1)
    code, text = command.end()
    assert not (gone := lost(client, values)), f"{len(gone)} objects are lost: {code}, {text}"
    assert code == 0, text
    assert set(states(client)) == {pool.server(3).ready["id"]}


def test_the_draining_server_dies(pools):
    pool = pools(servers=2, disk=None, **SLOW)
    client = pool.open()
    put_objects(client, 200, 100_000)
    command, victim = draining(pool, client, 2), name(pool, 2)
    pool.kill(2)
    code, text = command.end()
    assert code == 1 and f"{victim} has ended before it had handed everything on" in text, (code, text)


def test_ctrl_c_leaves_the_drain_and_cancel_ends_it(pools):
    pool = pools(servers=2, disk=None, **SLOW)
    client = pool.open()
    values = put_objects(client, 400, 100_000)
    command = draining(pool, client, 2)
    command.process.send_signal(signal.SIGINT)
    code, text = command.end()
    assert code == 130 and "is still draining" in text and "--cancel" in text, (code, text)
    assert states(client)[pool.server(2).ready["id"]] == "draining"
    again = draining(pool, client, 2)
    code, text = run(pool, "drain", name(pool, 2), "--cancel")
    assert code == 0, text
    code, text = again.end()
    assert code == 1 and "was cancelled" in text, (code, text)
    pool.settled(client, pool.members())
    assert set(states(client).values()) == {"active"} and not lost(client, values)
    code, text = run(pool, "drain", name(pool, 2), "--cancel")
    assert code == 1 and "is not being drained" in text, (code, text)


def test_stop_needs_force_where_objects_would_be_lost(pools):
    pool = pools(servers=2, disk=None)
    client = pool.open()
    put_objects(client, 100)
    stopped = pool.server(2)
    code, text = run(pool, "stop", name(pool, 2))
    assert code == 1 and "--force" in text and stopped.running, (code, text)
    code, text = run(pool, "stop", name(pool, 2), "--force")
    assert code == 0 and stopped.process.wait(DEADLINE_S) == 0, (code, text)


def test_the_end_of_all_servers_hands_nothing_on(pools):
    """Ctrl-C of `penstock pool serve`."""
    pool = pools(servers=2, disk=None, **SLOW)
    client = pool.open()
    put_objects(client, 200, 100_000)  # to hand them on would take ten seconds
    client.close()
    servers = list(pool.stage.servers)
    assert pool.stage.stop()
    assert [server.process.returncode for server in servers] == [0, 0]
    assert all("handing objects on" not in server.log.read_text() for server in servers)


def test_an_administrators_drain_ends_with_the_pool(pools):
    pool = pools(servers=2, disk=None, **SLOW)
    client = pool.open()
    put_objects(client, 200, 100_000)
    command = draining(pool, client, 2)
    assert pool.stage.stop()
    code, text = command.end()
    assert code == 1 and "has ended before" in text, (code, text)
