#!/usr/bin/env python3
"""Kills, stops and confuses one side of a stream at every fault point and looks at what the other side makes of it.

A first round without faults records which points each program passes, and how often; from that the cases are made:
point x phase x {SIGKILL, SIGSTOP, garbage} x side x plane. The report goes to a file; a line sums up. Exits with 1 when
an expectation failed, a program crashed or hung, or a fault point was never reached and nobody explained why.
"""

import argparse
import asyncio
import collections
import dataclasses
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import attacks
import checks
from peers import STEPS, Stage, deadlines, stream_options

PLANES = ("shm", "tcp")
# What a writer and its readers do. hold: readers keep their first step until everything was written.
SCENARIOS = {
    "plain": {},
    "cohort": {"ranks": 2},
    "discard": {"when_full": "discard_newest", "hold": True},
    "demand": {"when_full": "discard_oldest", "hold": True},
    "diverged": {"throw_at": 3},
    "cohort-diverged": {"ranks": 2, "throw_at": 3},
    "cohort-voided": {"ranks": 2, "void_at": 3},
    "refused": {"intruder": True},
}
NOT_IN_RING = "only announce, dropped, goodbye, want and release go through the ring; all else is on the connection"


@dataclasses.dataclass(frozen=True)
class Case:
    scenario: str
    side: str  # who is at fault: writer or reader
    rank: int
    plane: str
    point: str = ""
    phase: str = "before"
    occurrence: int = 1
    action: str = "none"

    @property
    def settings(self):
        return SCENARIOS.get(self.scenario, {})  # an attack has none

    @property
    def ranks(self):
        return self.settings.get("ranks", 1)

    def fault(self):
        if not self.point:
            return {"record": 1}
        return {"fault": self.point, "phase": self.phase, "occurrence": self.occurrence, "action": self.action}

    def __str__(self):
        rank = f" rank {self.rank}" if self.ranks > 1 else ""
        return (
            f"{self.scenario}: {self.side}{rank} {self.action} at {self.point} {self.phase} #{self.occurrence}, "
            f"{self.plane}"
        )


class Play:
    """One case on the stage."""

    def __init__(self, case, stage):
        self.case, self.stage = case, stage
        self.writers, self.readers, self.others = [], [], []
        self.timed_out = False  # somebody waited in vain for who is stopped

    async def start_writer(self):
        s = self.case.settings
        options = stream_options(self.case.plane, when_full=s.get("when_full", "block"), rendezvous_readers=1)
        options |= {name: s[name] for name in ("throw_at", "void_at") if name in s}
        faulty = {self.case.rank: self.case.fault()} if self.case.side == "writer" else {}
        self.writers = await self.stage.start_ranks("writer", "writer", self.case.ranks, faulty, **options)

    async def start_reader(self, name, ranks, faulty=None):
        hold = int(self.case.settings.get("hold", False))
        return await self.stage.start_ranks(name, "reader", ranks, faulty, hold=hold, **stream_options(self.case.plane))

    @property
    def faulty(self):
        return (self.writers if self.case.side == "writer" else self.readers)[self.case.rank]

    @property
    def stopped(self):
        return self.case.action == "stop" and self.faulty.faulted and not self.faulty.over

    def settled(self, peer, *words):
        """It has said one of the words, has ended, or will say nothing any more."""
        silent = self.faulty.faulted and (peer is self.faulty) and self.case.action == "stop"
        return peer.over or silent or any(peer.said(word) for word in words)

    async def run(self):
        await self.start_writer()
        if self.case.side == "writer":
            self.readers = await self.start_reader("reader", self.case.ranks)
            self.others = await self.start_reader("second reader", 1)
        else:
            await self.stage.until(
                lambda: (
                    all(self.settled(w, "ready", "open-failed") for w in self.writers)
                    if self.readers
                    else all(w.over or w.said("ready") for w in self.writers)
                )
            )
            self.readers = await self.start_reader("reader", self.case.ranks, {self.case.rank: self.case.fault()})
            self.others = await self.start_reader("second reader", 1)
        if self.case.settings.get("intruder"):
            await self.stage.until(lambda: all(self.settled(w, "ready", "open-failed") for w in self.writers))
            self.others.append(await self.stage.start("intruder", "intruder"))
        everybody = self.readers + self.others
        await self.until(lambda: all(self.settled(r, "opened", "open-failed", "intruder") for r in everybody))
        for writer in self.writers:
            writer.go()
        if self.case.settings.get("hold"):
            await self.until(lambda: all(self.settled(w, "written", "ended") for w in self.writers))
            for reader in everybody:
                reader.go()
        await self.until(lambda: all(peer.over for peer in self.stage.peers))

    async def until(self, ready):
        """Waits, and meanwhile ends who is stopped once the others have shown that they do not wait for ever."""
        await self.stage.until(lambda: ready() or self.must_end_stopped())
        if self.must_end_stopped():
            self.faulty.kill()
            await self.stage.until(ready)

    def must_end_stopped(self):
        if not self.stopped:
            return False
        if self.case.side == "reader":
            return any(w.said("timeout") or w.said("written") or w.said("ended") or w.over for w in self.writers)
        healthy = self.readers + [r for r in self.others if r.name != "intruder"]
        return all(r.over or r.said("timeout") or r.said("open-failed") or r.said("ended") for r in healthy)


async def play(program, case, folder, log):
    directory = tempfile.mkdtemp(dir=folder)
    stage = Stage(program, directory, log)
    result = Play(case, stage)
    try:
        await result.run()
    finally:
        await stage.end()
        shutil.rmtree(directory, ignore_errors=True)
    return result


# --------------------------------------------------------------------------------------------------------------- cases


def visits_of(peer):
    """{(point, phase): count} as the program recorded it."""
    result = {}
    for line in peer.said("visited "):
        _, point, phase, count = line.split()
        result[point, phase] = int(count)
    return result


HANDSHAKE = {"send:hello", "send:challenge", "send:proof", "send:welcome", "send:refused"}
SILENT = {"segment-send", "receive:segment", "data-request", "ring-pop"}  # nothing is sent there that could be garbage


def occurrences(point, count):
    if point in HANDSHAKE:
        return range(1, min(count, 4) + 1)
    return sorted({1, 1 + count // 2})


def cases_of(base, visits, known):
    """Every point of a recorded program; beyond the plain scenario only what that one does not have."""
    phases = collections.defaultdict(list)
    for (point, phase), count in visits.items():
        phases[point].append((phase, count))
    for point, found in sorted(phases.items()):
        if (base.side, base.plane, base.rank, point) in known:
            continue
        known.add((base.side, base.plane, base.rank, point))
        names = [phase for phase, _ in found]
        stop_at = "half" if "half" in names else "before"
        for phase, count in found:
            for n in occurrences(point, count):
                at = dataclasses.replace(base, point=point, phase=phase, occurrence=n)
                yield dataclasses.replace(at, action="kill")
                if phase == stop_at:
                    yield dataclasses.replace(at, action="stop")
                if phase == "before" and point not in SILENT:
                    yield dataclasses.replace(at, action="garbage")


# ----------------------------------------------------------------------------------------------------------------- run


class Run:
    def __init__(self, options, folder, log):
        self.options, self.folder = options, folder
        self.gate = asyncio.Semaphore(options.jobs)
        self.log = log  # what the library logged
        self.rows, self.failures = [], []
        self.reached = collections.defaultdict(set)

    async def one(self, case):
        async with self.gate:
            start = time.monotonic()
            result = await play(self.options.peer, case, self.folder, self.log)
            seen, wrong = checks.judge(result)
            self.rows.append((case, seen, time.monotonic() - start))
            if wrong:
                self.failures.append((case, wrong, [(p.name, p.code, p.lines) for p in result.stage.peers]))
            return result

    async def record(self):
        bases = [
            Case(name, side, rank, plane)
            for name, s in SCENARIOS.items()
            for side in ("writer", "reader")
            for rank in range(s.get("ranks", 1))
            for plane in PLANES
        ]
        results = await asyncio.gather(*(self.one(base) for base in bases))
        self.rows.clear()
        cases, known = [], set()
        for base, result in zip(bases, results, strict=True):
            visits = visits_of(result.faulty)
            for point, _ in visits:
                self.reached[point].add(f"{base.side} {base.plane}")
            cases += cases_of(base, visits, known)
        return cases

    async def all(self):
        cases = await self.record()
        if self.failures:  # nothing is to be learnt from faults where streams fail without them
            return
        if self.options.only:
            cases = [case for case in cases if self.options.only in str(case)]
        tried = [self.attack(attack, plane) for attack in attacks.ALL for plane in PLANES]
        await asyncio.gather(*(self.one(case) for case in cases), *tried)

    async def attack(self, attack, plane):
        async with self.gate:
            directory = tempfile.mkdtemp(dir=self.folder)
            stage = Stage(self.options.peer, directory, self.log)
            start = time.monotonic()
            try:
                seen, wrong = await attack(stage, plane)
            finally:
                await stage.end()
            name = Case(attack.__name__, "", 0, plane, action="attack")
            self.rows.append((name, seen, time.monotonic() - start))
            if wrong or stage.hung:
                wrong = wrong + [f"{name} hung" for name in stage.hung]
                self.failures.append((name, wrong, [(p.name, p.code, p.lines) for p in stage.peers]))


def unreached(program, reached):
    """(point, why) of every point that the schema has and nobody passed; why is empty when nobody knows."""
    listed = subprocess.run([program, "points"], check=True, capture_output=True, text=True).stdout.splitlines()
    for line in listed:
        point, _, kind = line.partition(" ")
        if point not in reached:
            yield f"{point} ({kind})" if kind else point, NOT_IN_RING if kind else ""


def write_report(run, missing, seconds):
    rows = sorted(run.rows, key=lambda row: dataclasses.astuple(row[0]))
    with open(run.options.report, "w") as out:
        print(f"# Faults\n\n{len(rows)} cases in {seconds:.0f} s; {len(run.failures)} failed.\n", file=out)
        print("| scenario | at fault | plane | point | phase | n | action | what the others saw |", file=out)
        print("|---|---|---|---|---|---|---|---|", file=out)
        for case, seen, _ in rows:
            side = f"{case.side} {case.rank}" if case.scenario in SCENARIOS and case.ranks > 1 else case.side
            print(
                f"| {case.scenario} | {side} | {case.plane} | {case.point} | {case.phase} | {case.occurrence} | "
                f"{case.action} | {seen} |",
                file=out,
            )
        print("\n## Reached by\n\n| point | programs |\n|---|---|", file=out)
        for point, programs in sorted(run.reached.items()):
            print(f"| {point} | {', '.join(sorted(programs))} |", file=out)
        print("\n## Never reached\n", file=out)
        for point, why in missing:
            print(f"- {point}: {why or 'NOBODY KNOWS WHY'}", file=out)
        for case, wrong, peers in run.failures:
            print(f"\n## Failed: {case}\n", file=out)
            for what in wrong:
                print(f"- {what}", file=out)
            for name, code, lines in peers:
                print(f"\n    {name}: exit {code}", file=out)
                for line in lines:
                    print(f"      {line}", file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, help="the program fault_peer")
    parser.add_argument("--report", default="fault-report.md")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--only", help="cases whose description contains this")
    parser.add_argument("--stretch", type=float, default=1, help="deadlines so many times as long")
    options = parser.parse_args()
    for key in deadlines:
        deadlines[key] *= options.stretch
    start = time.monotonic()
    log_file = pathlib.Path(options.report).with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, open(log_file, "wb") as log:
        run = Run(options, folder, log)
        asyncio.run(run.all())
    missing = list(unreached(options.peer, run.reached))
    seconds = time.monotonic() - start
    write_report(run, missing, seconds)
    unexplained = [point for point, why in missing if not why]
    for case, wrong, _ in run.failures:
        print(f"FAILED {case}: {'; '.join(wrong)}")
    for point in unexplained:
        print(f"FAILED never reached: {point}")
    not_hit = sum("not reached" in seen for _, seen, _ in run.rows)
    print(
        f"{len(run.rows)} faults ({STEPS} steps each) in {seconds:.0f} s, {not_hit} not reached in their run, "
        f"{len(run.failures)} failed; report: {options.report}"
    )
    return 1 if run.failures or unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
