#!/usr/bin/env python3
"""Kills a program that uses a tier, over and over, and checks what is left. A test; prints its seeds.

run_tiers.py --child tier_child --kind disk --mode kill      only the process dies
run_tiers.py --child tier_child --kind disk --mode loss --preload libunsynced_preload.so
                                                             and what was not synced is lost
run_tiers.py --child tier_child --kind disk --mode full      the disk fills
"""

import argparse
import os
import random
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from roll_back import roll_back

CYCLES = 3  # kills of one tier, one after the other
DEADLINE_S = 60


def run_until_killed(command, environment, done_before_kill):
    """Starts the child, kills it after so many operations; its complete lines. What it does meanwhile goes on."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    text, deadline = b"", time.monotonic() + DEADLINE_S
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while text.count(b"done") < done_before_kill:
            if not selector.select(deadline - time.monotonic()):
                child.kill()
                child.wait()
                sys.exit(f"the child did too little in {DEADLINE_S} s: {text.decode()[-200:]}")
            part = os.read(child.stdout.fileno(), 1 << 16)
            if not part:
                sys.exit(f"the child ended by itself with status {child.wait()}")
            text += part
    child.kill()
    text += child.stdout.read()
    child.wait()
    return text.decode().split("\n")[:-1]


def test_seed(arguments, folder, seed):
    """Kills, loses, verifies; what is found is where the next cycle begins. Returns counts for the summary."""
    tier, journal = folder / "tier", folder / "journal"
    environment = dict(os.environ)
    if arguments.mode == "loss":
        environment.update(
            LD_PRELOAD=arguments.preload, PENSTOCK_UNSYNCED_ROOT=str(tier), PENSTOCK_UNSYNCED_JOURNAL=str(journal)
        )
    chance = random.Random(seed)
    base, first, counts = [], 0, {"operations": 0, "lost_writes": 0, "lost_names": 0, "dropped": 0}
    for cycle in range(CYCLES):
        command = [arguments.child, "run", arguments.kind, str(tier), str(seed), str(first)]
        lines = run_until_killed(command, environment, chance.randrange(1, 40))
        if arguments.mode == "loss":
            # Every other time all is lost, else some survives.
            lost = roll_back(tier, journal, seed * CYCLES + cycle if chance.random() < 0.5 else None)
            counts["lost_writes"] += lost["lost_writes"]
            counts["lost_names"] += lost["lost_names"]
        check = subprocess.run(
            [arguments.child, "verify", arguments.kind, str(tier), str(seed), arguments.mode],
            input="\n".join(base + lines) + "\n", capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        if check.returncode != 0:
            what = check.stderr.strip() + "\n" + check.stdout
            sys.exit(f"seed {seed}, cycle {cycle}: {what}history:\n" + "\n".join(base + lines))
        states = [line.split() for line in check.stdout.splitlines()]
        base = [f"base {state[1]} {state[2]}" for state in states if state[0] == "state"]
        counts["dropped"] += sum(int(state[1]) for state in states if state[0] == "dropped")
        counts["operations"] += sum(line.startswith("done") for line in lines)
        first = 1 + max(int(line.split()[1]) for line in lines)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", required=True)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--mode", required=True, choices=["kill", "loss", "full"])
    parser.add_argument("--preload")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--stretch", type=int, default=1, help="of every wait, for slow builds")
    parser.add_argument("--first-seed", type=int, default=1)
    arguments = parser.parse_args()
    global DEADLINE_S
    DEADLINE_S *= arguments.stretch
    if arguments.mode == "full":
        with tempfile.TemporaryDirectory(prefix="penstock-tier-") as folder:
            for part in ("300000", "40000", "ballast"):
                command = [arguments.child, "full", arguments.kind, folder, part]
                if status := subprocess.run(command, timeout=DEADLINE_S).returncode:
                    return status
            return 0
    total = {}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        with tempfile.TemporaryDirectory(prefix="penstock-tier-") as folder:
            for name, count in test_seed(arguments, Path(folder), seed).items():
                total[name] = total.get(name, 0) + count
    seeds = f"{arguments.seeds} seeds from {arguments.first_seed}, {CYCLES} kills each"
    print(f"{arguments.kind} {arguments.mode}: {seeds}: {total}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
