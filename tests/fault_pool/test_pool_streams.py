"""A stream in a pool whose writer is killed in mid-step, while a reader is killed and another goes on."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

DEADLINE_S = 60
PEER = Path(__file__).parent / "stream_peer.py"
SEEDS = range(1, 21 if os.environ.get("PENSTOCK_SOAK") else 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_writer_and_a_reader_are_killed(pools, report, seed):
    chance = random.Random(seed)
    pool = pools(servers=2, replication=2, tier="disk")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    environment["PENSTOCK_DIRECTORY"] = str(pool.stage.registration)

    def start(*words):
        command = [sys.executable, PEER, *map(str, words)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)

    processes, said = [], []
    guard = threading.Timer(DEADLINE_S, lambda: [p.kill() for p in processes])
    guard.start()
    last, filled = chance.randrange(15, 60), chance.randrange(4)
    try:
        processes.append(writer := start("write", "heat", last, filled))
        processes += [dying := start("read", "heat"), living := start("read", "heat")]
        for _ in range(chance.randrange(1, 5)):
            assert dying.stdout.readline().endswith("whole\n")
        dying.kill()
        assert writer.stdout.readline() == "here\n"
        writer.kill()
        said = living.stdout.read().splitlines()
        living.wait(DEADLINE_S)
    finally:
        guard.cancel()
        for process in processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
    steps = [line for line in said if line.startswith("read")]
    wrong = [line for line in said if "PARTIAL" in line or line.startswith("error")]
    if not steps:
        wrong.append("the other reader read nothing")
    if not said or not said[-1].startswith("lost"):
        wrong.append(f"the stream did not end as writer_lost: {said[-1:]}")
    if any(int(line.split()[1]) >= last for line in steps):
        wrong.append(f"step {last}, which never ended, was read")
    figures = {"killed in step": last, "steps read": len(steps)}
    report("a stream's writer is killed in mid-step, and a reader", seed, wrong, figures)
