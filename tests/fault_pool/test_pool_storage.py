"""A whole pool over storage that discards what was not synced.

Servers and directory are killed under load, their folders are rolled back to what was synced (tests/unsynced), and they
are started again. What was acknowledged as durable is there, what was not may be gone, and nothing has other bytes. A
planted omission shows that the test would notice. PENSTOCK_SOAK=1: 20 seeds, and more losses of power.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from penstock.workflow.launch import LaunchError
from pool_load import History, Load, seeds
from test_pool_streams import Peers, check_kept

CALL_S = 30.0
READY_S = 60.0
HERE = Path(__file__).parent
TIERS = ("rocksdb", "files", "disk")
# What is left out, and with which kind of tier: the syncs of files whose names end so, or of folders ("/").
OMISSIONS = {"log": ("rocksdb", ".log"), "names": ("files", "/")}


def library(name):
    built = Path(os.environ.get("PENSTOCK_BUILD", HERE.parents[1] / "build")) / "tests" / "unsynced" / f"lib{name}.so"
    if not built.exists():
        pytest.skip(f"{built} is not built (sanitizers want to be the first library)")
    return str(built)


class Storage:
    """Starts servers whose folders are watched, and takes power from all of them at once."""

    def __init__(self, pool, journals, monkeypatch, omit=None):
        self.pool, self.journals, self.patch, self.omit = pool, journals, monkeypatch, omit
        self.lost = {"writes": 0, "names": 0}
        self.preload = library("unsynced_preload")
        if omit:
            self.preload = f"{library('unsynced_omission')}:{self.preload}"

    def places(self):
        """Of every server: its group, number, folder and journal. Of names: the folder of the directory, which is a
        process of its own: one process at a time may write in a folder that is watched."""
        for group in (self.pool.names, self.pool.stage):
            for number in range(1, group.plan.servers + 1):
                folder = group.plan.disk / f"server-{number}"
                folder = folder / "directory" if group is self.pool.names else folder
                yield group, number, folder, self.journals / f"{group.plan.name}-{number}"

    def start(self):
        for group, number, folder, journal in self.places():
            folder.mkdir(0o700, parents=True, exist_ok=True)
            journal.parent.mkdir(exist_ok=True)
            with self.patch.context() as patch:
                patch.setenv("LD_PRELOAD", self.preload)
                patch.setenv("PENSTOCK_UNSYNCED_ROOT", str(folder))
                patch.setenv("PENSTOCK_UNSYNCED_JOURNAL", str(journal))
                if self.omit and group is self.pool.stage:
                    patch.setenv("PENSTOCK_UNSYNCED_OMIT", self.omit)
                group.start_one(number)
            if group is self.pool.names:
                group.wait_ready(READY_S)
        self.pool.stage.wait_ready(READY_S)

    def lose_power(self, chance):
        for group, number, _, _ in self.places():
            next(s for s in group.servers if s.number == number).process.kill()
        self.pool.kill_directory()
        for group in (self.pool.names, self.pool.stage):
            for server in list(group.servers):
                group.stop_one(server)
        for _, _, folder, journal in self.places():
            survive = ["--survive", str(chance.randrange(1 << 30))] if chance.random() < 0.5 else []
            words = [sys.executable, HERE.parent / "unsynced" / "roll_back.py", folder, journal, *survive]
            done = subprocess.run(words, capture_output=True, text=True, timeout=READY_S)
            assert done.returncode == 0, done.stderr
            counts = json.loads(done.stdout)
            for what in self.lost:
                self.lost[what] += counts[f"lost_{what}"]


def break_storage(pools, tmp_path, monkeypatch, context, seed, tier, cycles, omit=None):
    """What is wrong after so many losses of power under load, and figures."""
    chance, history = random.Random(seed), History(levels=("durable",))
    servers = 1 + (omit is None and seed % 2)
    pool = pools(begin=False, servers=servers, replication=servers, tier=tier, memory="256MiB")
    storage = Storage(pool, tmp_path / "journals", monkeypatch, omit)
    pool.prepare()
    storage.start()
    load = Load(
        pool.open, history, seed, CALL_S, levels=("durable", "durable", "memory"), putters=5, getters=1, needs=False
    )
    moments = []
    with Peers(pool) as peers, load:
        writer = peers.start("write", "heat", 40 * cycles, 3, "durable")
        for cycle in range(cycles):
            writer.until("ended", 15 * (cycle + 1))
            moments.append(chance.randrange(30, 150))
            history.more(moments[-1])
            storage.lose_power(chance)
            try:
                storage.start()
            except LaunchError as error:
                return [f"not started again: {error}"], {}
        history.more(20)
        writer.end()
    wrong = history.wrong + history.failed + history.verify(pool.open())
    if writer.lines[-1] != "closed":
        wrong.append(f"the writer ended otherwise: {writer.lines[-1:]}")
    wrong += check_kept(context, 40 * cycles, 40 * cycles, "end")
    lost = f"{storage.lost['writes']} writes and {storage.lost['names']} names"
    figures = {"tier": tier, "servers": servers, "power lost after": moments, "discarded": lost, **history.summary()}
    return wrong, figures


@pytest.mark.parametrize("seed", seeds(1))
def test_what_was_not_synced_is_lost(pools, report, context, tmp_path, monkeypatch, seed):
    tier = TIERS[seed % len(TIERS)]
    wrong, figures = break_storage(
        pools, tmp_path, monkeypatch, context, seed, tier, 3 if "PENSTOCK_SOAK" in os.environ else 2
    )
    report("power is lost: what was not synced is discarded", seed, wrong, figures)


@pytest.mark.soak
@pytest.mark.parametrize("what", OMISSIONS)
def test_a_sync_left_out_is_noticed(pools, report, context, tmp_path, monkeypatch, what):
    tier, omit = OMISSIONS[what]
    wrong, figures = break_storage(pools, tmp_path, monkeypatch, context, 1, tier, 1, omit)
    found = [] if wrong else ["nobody noticed that syncs were left out"]
    report(f"the same, {what} not synced: noticed", 1, found, {**figures, "noticed": f"{len(wrong)}, e.g. {wrong[:1]}"})


@pytest.mark.parametrize("tier", TIERS)
def test_a_server_comes_back_after_the_pool_has_settled_without_it(pools, tier):
    pool = pools(servers=2, replication=1, tier=tier)
    client = pool.open()
    for number in range(16):
        client.put(f"row {number}", "x", bytes([number]) * 1000, acknowledge="durable")
    for lost in (2, 1):
        other = pool.server(3 - lost).ready["id"]
        pool.kill(lost)
        pool.settled(client, {other})
        pool.stage.start_one(lost)
        pool.stage.wait_ready(READY_S)
        status = pool.settled(client, pool.members())
        assert sum(server["objects"] for server in status["servers"]) == 16, status
    for number in range(16):
        assert client.get(f"row {number}", "x").bytes() == bytes([number]) * 1000
