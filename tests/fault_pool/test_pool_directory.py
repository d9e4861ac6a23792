"""The embedded directory under faults: a pool of three servers whose first one has started the directory's process.

Objects and a stream go on meanwhile; nothing that was acknowledged is lost, and no server is declared lost for it.
Moments are drawn from the seed as numbers of acknowledgements, not as times. PENSTOCK_SOAK=1: 20 seeds of each.
"""

import random
import subprocess
import threading
import time

import pytest
from pool_load import History, Load, seeds
from test_pool_streams import Peers, check_kept, check_reader

CALL_S = 20.0
READY_S = 60.0
STEPS = 60
BACK_S = 2.0


class Busy:
    """A with block: a pool whose first server started the directory, under objects and a stream. Then check()."""

    def __init__(self, pools, context, seed, **options):
        self.context, self.seed, self.history = context, seed, History()
        self.pool = pools(directory="embedded", servers=3, replication=2, **options)
        self.address = self.pool.stage.directory

    def __enter__(self):
        ways = iter(["embedded", self.address] * 2)  # found registered, and by its address
        self.peers = Peers(self.pool)
        self.load = Load(lambda: self.pool.open(directory=next(ways)), self.history, self.seed, CALL_S)
        self.load.__enter__()
        self.writer = self.peers.start("write", "heat", STEPS, 3, "replicated")
        self.reader = self.peers.start("read", "heat", "plots")
        self.reader.until("read", 1)
        return self

    def __exit__(self, failed, *_):
        if not failed:
            self.history.more(200)
            self.writer.end()
            self.reader.end()
        self.load.__exit__()
        self.peers.__exit__()

    def check(self, members):
        client = self.pool.open(directory=self.address)
        self.pool.settled(client, members)
        wrong = self.history.wrong + self.history.failed + self.history.verify(client)
        wrong += check_reader(self.reader, STEPS, STEPS, "end") + check_kept(self.context, STEPS, STEPS, "end")
        if self.writer.lines[-1] != "closed":
            wrong.append(f"the writer ended otherwise: {self.writer.lines[-1:]}")
        return wrong


def directory_back(pool, dead, begun):
    """Waits for another process of the directory that answers; seconds since `begun`."""
    while pool.directory_pid() == dead:
        assert time.monotonic() < begun + READY_S, "no other directory is registered"
        threading.Event().wait(0.01)  # nothing tells
    pool.open().close()
    return time.monotonic() - begun


@pytest.mark.parametrize("seed, dying", [(seed, dying) for seed in seeds(1) for dying in (1, 2, 3)])
def test_any_one_server_is_killed(pools, report, context, seed, dying):
    with Busy(pools, context, f"{seed}/{dying}") as busy:
        directory = busy.pool.directory_pid()
        busy.history.until(moment := random.Random(seed).randrange(50, 500))
        busy.pool.kill(dying)
        busy.history.more(200)
    wrong = busy.check(busy.pool.members())
    if busy.pool.directory_pid() != directory:
        wrong.append("the directory went with the server")
    figures = {"killed": f"{dying} after {moment}"} | busy.history.summary()
    report("one server of three is killed; the first has started the directory", seed * 10 + dying, wrong, figures)


@pytest.mark.parametrize("seed", seeds(1))
def test_the_directory_is_killed_again_and_again(pools, report, context, seed):
    """Some know its address, some find it registered. A server comes while it is dead."""
    chance, back = random.Random(seed), []
    with Busy(pools, context, seed) as busy:
        client = busy.pool.open()
        view = busy.pool.settled(client, busy.pool.members())["view"]
        begun = time.monotonic()
        subprocess.run([busy.pool.stage.program, "--print-config"], check=True, stdout=subprocess.DEVNULL)
        allowed = BACK_S + 10 * (time.monotonic() - begun)  # as slow as this machine is now
        for _ in range(3):
            busy.history.more(chance.randrange(50, 150))
            dead, begun = busy.pool.directory_pid(), time.monotonic()
            busy.pool.kill_directory()
            back.append(directory_back(busy.pool, dead, begun))
        busy.history.more(200)
        after = client.status()["view"]
        busy.pool.kill_directory()
        busy.pool.stage.start_one(4, directory=busy.address)
        busy.pool.stage.wait_ready(READY_S)
    wrong = busy.check(busy.pool.members())
    if after != view:
        wrong.append(f"view {view} became {after} because the directory was away")
    if max(back) > allowed:
        wrong.append(f"the directory was back after {back} s, {allowed:.1f} s allowed")
    if any(server.ready["directory"] != busy.address for server in busy.pool.stage.servers):
        wrong.append("the directory has another address")
    figures = {"back after": [f"{s:.2f} s" for s in back]} | busy.history.summary()
    report("the directory is killed, four times", seed, wrong, figures)


@pytest.mark.parametrize("seed", seeds(1))
def test_the_directory_and_its_server_are_killed_at_once(pools, report, context, seed):
    with Busy(pools, context, seed) as busy:
        busy.history.until(moment := random.Random(seed).randrange(50, 500))
        dead, begun = busy.pool.directory_pid(), time.monotonic()
        busy.pool.server(1).process.kill()
        busy.pool.kill_directory()
        busy.pool.kill(1)
        back = directory_back(busy.pool, dead, begun)
    wrong = busy.check(busy.pool.members())
    # As it was started first: it joins the directory that runs. What was dropped meanwhile may come back with its disk.
    busy.pool.stage.start_one(1)
    busy.pool.stage.wait_ready(READY_S)
    busy.pool.settled(busy.pool.open(), busy.pool.members())
    figures = {"killed after": moment, "back after": f"{back:.2f} s"} | busy.history.summary()
    report("the first server and the directory are killed at once", seed, wrong, figures)


@pytest.mark.parametrize("seed", seeds(1))
def test_the_server_that_started_the_directory_is_drained(pools, report, context, seed):
    with Busy(pools, context, seed, drain_timeout_ms=60_000) as busy:
        directory = busy.pool.directory_pid()
        busy.history.until(moment := random.Random(seed).randrange(50, 500))
        busy.pool.drain(1)
        code = busy.pool.drained(1)
        busy.history.more(200)
    wrong = busy.check(busy.pool.members())
    if code != 0:
        wrong.append(f"the drained server ended with {code}")
    if busy.pool.directory_pid() != directory:
        wrong.append("the directory went with the server")
    report("the server that started the directory is drained", seed, wrong, {"after": moment} | busy.history.summary())
