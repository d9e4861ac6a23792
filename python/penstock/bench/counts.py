"""Studies of `penstock bench pool` that count: messages of a step, calls under way, consumers of one stream, objects on
each server, and clocks of traces."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import mean, median

from ..workflow.servers import PoolServers
from .runner import RunFailed, run_programs
from .stores import pool
from .studies import Claim, Column, Figures, Panel, Row, Run, Sheet

STUDIES = {
    "messages": "what all processes send over sockets for a step and rank, counted, against the number of variables",
    "depth": "calls on single objects against how many are under way",
    "consumers": "several readers of one stream, and one that comes late, while it is written",
    "balance": "100,000 keys of ranks on 4 and 16 servers",
    "client": "what a program is that uses a pool: its libraries, and how soon it has asked and ended",
    "clocks": "two programs that answer each other, recorded: whether an effect comes before its cause in the trace",
}
RANKS = 4
DEPTHS = (1, 2, 4, 8, 16, 32, 64)


class Plan:
    """How much is counted."""

    def __init__(self, quick: bool):
        self.few_steps, self.many_steps = (4, 12) if quick else (20, 120)
        self.depth_counts = {1 << 10: 400, 1 << 20: 64} if quick else {1 << 10: 8000, 1 << 20: 512}
        self.consumer_steps = 6 if quick else 20
        self.keys = 5_000 if quick else 100_000
        self.answers = 100 if quick else 1000


# ------------------------------------------------------------------------------------------------------------- messages


@contextlib.contextmanager
def counting(run: Run) -> Iterator[tuple[dict[str, str], mmap.mmap]]:
    """The environment of programs whose sends are counted, servers that start meanwhile among them; and the counts."""
    path = run.folder / "messages"
    path.write_bytes(bytes(16))
    environment = {
        "LD_PRELOAD": str(run.programs / "libmessages_preload.so"),
        "PENSTOCK_BENCH_MESSAGES": str(path),
    }
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 16) as counts:
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        try:
            yield environment, counts
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def settle(servers: PoolServers, timeout_s: float) -> None:
    """Returns once the servers have told each other of themselves."""
    import penstock

    deadline = time.monotonic() + timeout_s
    with penstock.Pool(directory=servers.directory) as client:
        while not client.status()["settled"]:
            if time.monotonic() > deadline:
                raise RunFailed("the pool did not settle")
            time.sleep(0.01)


def messages(plan: Plan, variables: int, run: Run) -> Figures:
    """Of a long stream less a short one, so that opening and closing do not count."""
    sent: dict[int, tuple[float, float]] = {}
    figures: Figures = {}
    for steps in (plan.few_steps, plan.many_steps):
        with counting(run) as (environment, counts), pool(run, 2, "1GiB") as started:
            settle(started, run.deadline_s)
            before = struct.unpack("QQ", counts[:])
            options = ("--ranks", RANKS, "--many", variables, "--side", RANKS, "--steps", steps, "--retain", 4)
            program = run.program("pool_steps", "--role", "writer", "--study", "io", *options)
            figures = run.figures(program, environment=environment | started.environment())
            after = struct.unpack("QQ", counts[:])
            sent[steps] = (after[0] - before[0], after[1] - before[1])
    steps = plan.many_steps - plan.few_steps
    calls, sizes = ((sent[plan.many_steps][n] - sent[plan.few_steps][n]) / steps for n in (0, 1))
    return {
        "blocks": variables,
        "messages": calls / RANKS,
        "message_bytes": sizes / RANKS,
        "announced_bytes": figures["announced_bytes"],
        "payload_bytes": variables * 1024,
        "per_block": calls / RANKS / variables,
    }


# ---------------------------------------------------------------------------------------------------------------- depth


def depth(plan: Plan, size: int, run: Run) -> Figures:
    with pool(run, 2, "2GiB") as started:
        words = ("--study", "depth", "--bytes", size, "--count", plan.depth_counts[size])
        figures = run.figures(run.program("pool_objects", *words), environment=started.environment())
    for verb in ("put", "get"):
        one = figures[f"{verb}_per_s_1"]
        best = max(DEPTHS, key=lambda under_way: figures[f"{verb}_per_s_{under_way}"])
        figures |= {f"{verb}_gain": figures[f"{verb}_per_s_{best}"] / one, f"{verb}_best": best}
    return figures


# ------------------------------------------------------------------------------------------------------------ consumers


def pairs_of(spans: list[float]) -> Iterator[tuple[float, float]]:
    return zip(spans[::2], spans[1::2], strict=True)


def consumers(plan: Plan, readers: int, late: bool, run: Run) -> Figures:
    """Each reader ends with an error unless it saw every step, checked."""
    words = ("--origin", time.monotonic(), "--compute-ms", 40)
    shape = ("--ranks", 2, "--side", 64, "--queue", 4, "--steps", plan.consumer_steps)
    options = ("--study", "overlap", *shape, *words)
    half_ms = 1000 + plan.consumer_steps * 40 // 2
    with pool(run, 2, "2GiB") as started:
        commands = [run.program("pool_steps", "--role", "writer", *options)]
        reader = run.program("pool_steps", "--role", "reader", *options[:-1], 0)
        commands += [reader] * readers
        if late:
            commands.append([*reader, "--late-ms", str(half_ms)])
        lines = run_programs(commands, started.environment(), run.folder, run.deadline_s)
    writer, *spans = (json.loads(line) for line in lines)
    ends = writer["writing_s"][1::2]
    steps_ms = [1e3 * (end - begin) for begin, end in pairs_of(writer["writing_s"])]
    on_time = spans[:readers]
    behind = [one["reading_s"][2 * n] - ends[n] for one in on_time for n in range(2, plan.consumer_steps)]
    reading = [end - begin for one in on_time for begin, end in pairs_of(one["reading_s"])]
    figures: Figures = {
        "readers": readers + late,
        "stall_ms": median(steps_ms[2:]),
        "visible_ms": 1e3 * median(behind),
        "read_ms": 1e3 * median(reading),
        "whole_percent": 100 * mean(len(one["reading_s"]) == 2 * plan.consumer_steps for one in spans),
    }
    if late:
        begun = spans[-1]["reading_s"][::2]
        caught = next((n for n in range(plan.consumer_steps) if begun[n] < ends[n] + 0.02), plan.consumer_steps - 1)
        figures |= {"missed_steps": sum(end < begun[0] for end in ends), "caught_ms": 1e3 * (begun[caught] - begun[0])}
    return figures


# -------------------------------------------------------------------------------------------------------------- balance


def balance(plan: Plan, servers: int, run: Run) -> Figures:
    import penstock

    with pool(run, servers, "512MiB") as started:
        words = ("--study", "small", "--count", plan.keys, "--columns", 1)
        run.figures(run.program("pool_objects", *words), environment=started.environment())
        with penstock.Pool(directory=started.directory) as client:
            held = [server["objects"] for server in client.status()["servers"]]
    if len(held) != servers or sum(held) != plan.keys:
        raise RunFailed(f"{sum(held)} objects on {len(held)} servers")
    return {"imbalance": max(held) / mean(held), "most": max(held), "least": min(held), "held": held}


# --------------------------------------------------------------------------------------------------------------- client


def client(run: Run) -> Figures:
    """A program that connects, lists an empty pool and ends; the median of some."""
    command = run.program("pool_objects", "--study", "census", "--namespace", "empty")
    lines = subprocess.run(["ldd", command[0]], capture_output=True, text=True, check=False).stdout.splitlines()
    libraries = [Path(line.split("=>")[1].split()[0]) for line in lines if "=> /" in line]
    times = []
    with pool(run, 1) as started:
        for _ in range(11):
            began = time.monotonic()
            figures = run.figures(command, environment=started.environment())
            times.append(time.monotonic() - began)
    ours = [path for path in libraries if "penstock" in path.name]
    return {
        "start_ms": 1e3 * median(times),
        "rss_mib": figures["client_rss_mb"],
        "libraries": len(libraries),
        "ours_mib": sum(path.stat().st_size for path in ours) / 2**20,
        "others_mib": sum(path.stat().st_size for path in libraries if path not in ours) / 2**20,
    }


# --------------------------------------------------------------------------------------------------------------- clocks


def answer(side: str, count: int) -> None:
    """One of two programs: puts its object, and waits for the other's."""
    import penstock

    with penstock.Pool() as client:
        for number in range(count):
            mine, theirs = f"{side}/{number}", f"{'b' if side == 'a' else 'a'}/{number}"
            if side == "a":
                client.put(mine, "x", b"ask")
                client.need(theirs, "x", timeout=60)
            else:
                client.need(theirs, "x", timeout=60)
                client.put(mine, "x", b"answer")


def clocks(plan: Plan, run: Run) -> Figures:
    """An object is had no earlier than its put began. The least time from the one to the other in each direction bounds
    by how much the two clocks may differ."""
    from ..trace import Recording

    folder = run.folder / "traces"
    folder.mkdir()
    with pool(run, 1) as started:
        environment = os.environ | started.environment() | {"PENSTOCK_TRACE": str(folder)}
        words = [sys.executable, "-m", "penstock.bench.counts"]
        programs = [subprocess.Popen([*words, side, str(plan.answers)], env=environment) for side in ("a", "b")]
        try:
            if any(program.wait(run.deadline_s) for program in programs):
                raise RunFailed("a program that was recorded failed")
        finally:
            for program in programs:
                program.kill()
                program.wait()
    put: dict[str, float] = {}
    had: dict[str, float] = {}
    for one in Recording(folder):
        row = one["keys"][0][0]
        if one["verb"] == "put":
            put[row] = one["at_s"]
        elif one["verb"] == "want":  # as need waits
            had[row] = one["at_s"] + one["us"] / 1e6
    ways = {side: [had[row] - put[row] for row in put if row[0] == side and row in had] for side in "ab"}
    if min(len(times) for times in ways.values()) < plan.answers:
        raise RunFailed("the recording lacks operations")
    there, back = min(ways["a"]), min(ways["b"])
    return {
        "operations": len(put) + len(had),
        "reversed": sum(time < 0 for times in ways.values() for time in times),
        "skew_us": 1e6 * abs(there - back) / 2,
        "bound_us": 1e6 * (there + back) / 2,
    }


# ----------------------------------------------------------------------------------------------------------------- rows


def rows_of(programs: Path, quick: bool) -> tuple[list[Row], list[str]]:
    plan = Plan(quick)
    rows: list[Row] = []
    if not (programs / "pool_steps").exists() or not (programs / "pool_objects").exists():
        return [], []
    for variables in (10, 100, 500):
        label = f"{RANKS} ranks, {variables} variables of 1 KiB each, 2 servers"
        rows.append(Row("messages", "penstock", f"many_{variables}", label, partial(messages, plan, variables)))
    for size, words in ((1 << 10, "1 KiB"), (1 << 20, "1 MiB")):
        rows.append(Row("depth", "penstock", f"size_{size}", f"{words}, 2 servers", partial(depth, plan, size)))
    for readers, late, words in ((1, False, "1 reader"), (3, False, "3 readers"), (2, True, "2 readers, 1 late")):
        name = f"late_{readers}" if late else f"readers_{readers}"
        rows.append(Row("consumers", "penstock", name, words, partial(consumers, plan, readers, late)))
    for servers in (4, 16):
        label = f"{servers} servers"
        rows.append(Row("balance", "penstock", f"servers_{servers}", label, partial(balance, plan, servers)))
    rows.append(Row("client", "penstock", "objects", "C++, connects, lists, ends", client))
    rows.append(Row("clocks", "penstock", "one_host", "two processes of one host", partial(clocks, plan)))
    return rows, []


def claims_of() -> list[Claim]:
    def at_most(text: str, study: str, variant: str, figure: str, bound: float, unit: str, answers: str) -> Claim:
        return Claim(text, (study, "penstock", variant), (figure,), bound, sense="at_most", unit=unit, answers=answers)

    claims = [
        Claim(
            "500 variables a rank take at most 1.2× the messages of 10",
            ("messages", "penstock", "many_500"),
            ("messages",),
            1.2,
            theirs=(("messages", "penstock", "many_10"),),
            sense="at_most",
            theirs_lower=True,
            answers="small objects",
        ),
        at_most(
            "10 messages for a step and rank, or fewer", "messages", "many_500", "messages", 10, "", "small objects"
        ),
    ]
    for size, words in ((1 << 10, "1 KiB"), (1 << 20, "1 MiB")):
        for verb, name in (("put", "puts"), ("get", "gets")):
            claims.append(
                Claim(
                    f"{name} of {words} with many under way are at least {2 if size < 1 << 20 else 1.2:g}× one by one",
                    ("depth", "penstock", f"size_{size}"),
                    (f"{verb}_gain",),
                    2 if size < 1 << 20 else 1.2,
                    answers="serial",
                )
            )
    for variant, words in (("readers_3", "3 readers"), ("late_2", "2 readers and a late one")):
        claims.append(
            Claim(
                f"{words} see every step",
                ("consumers", "penstock", variant),
                ("whole_percent",),
                100,
                unit=" %",
                answers="consumers",
            )
        )
    claims.append(
        Claim(
            "with 3 readers a step costs its writer at most 1.25× one with 1",
            ("consumers", "penstock", "readers_3"),
            ("stall_ms",),
            1.25,
            theirs=(("consumers", "penstock", "readers_1"),),
            sense="at_most",
            theirs_lower=True,
            answers="consumers",
        )
    )
    for servers in (4, 16):
        text = f"the fullest of {servers} servers has at most 1.1× the mean"
        claims.append(at_most(text, "balance", f"servers_{servers}", "imbalance", 1.1, "×", "balance"))
    claims += [
        at_most("a client has connected, asked and ended", "client", "objects", "start_ms", 100, " ms", "stack"),
        at_most("no effect before its cause", "clocks", "one_host", "reversed", 0, "", "clocks"),
        at_most("clocks of two recorded processes agree", "clocks", "one_host", "skew_us", 100, " µs", "clocks"),
    ]
    return claims


def sheets(quick: bool) -> list[Sheet]:
    plan = Plan(quick)
    return [
        Sheet(
            "messages",
            f"messages: {STUDIES['messages']}; long streams less short ones",
            (
                Column("blocks", "blocks/step\nand rank"),
                Column("messages", "messages/step\nand rank"),
                Column("message_bytes", "bytes in\nthem"),
                Column("payload_bytes", "payload\nbytes"),
                Column("announced_bytes", "announced,\nbytes/step"),
            ),
        ),
        *(
            Sheet(
                "depth",
                f"depth: {STUDIES['depth']}: {name}, 1000/s",
                (
                    *(Column(f"{verb}_per_s_{under_way}", str(under_way), 1e-3) for under_way in DEPTHS),
                    Column(f"{verb}_gain", "best ×\nthe first"),
                ),
            )
            for verb, name in (("put", "puts"), ("get", "gets"))
        ),
        Sheet(
            "consumers",
            f"consumers: {plan.consumer_steps} steps of 4 MB every 40 ms; {STUDIES['consumers']}",
            (
                Column("stall_ms", "a step costs\nits writer ms"),
                Column("visible_ms", "from end_step\nto begin_step ms"),
                Column("read_ms", "to read it\nms"),
                Column("whole_percent", "saw all\nsteps %"),
                Column("missed_steps", "the late one: steps\nbefore it came"),
                Column("caught_ms", "until it has\ncaught up ms"),
            ),
        ),
        Sheet(
            "balance",
            f"balance: {plan.keys} rows of one object; {STUDIES['balance']}",
            (Column("imbalance", "max / mean"), Column("most", "most"), Column("least", "least")),
        ),
        Sheet(
            "client",
            f"client: {STUDIES['client']}",
            (
                Column("start_ms", "from start to\nend ms"),
                Column("rss_mib", "RSS\nMiB"),
                Column("libraries", "libraries"),
                Column("ours_mib", "ours\nMiB"),
                Column("others_mib", "the system's\nMiB"),
            ),
        ),
        Sheet(
            "clocks",
            f"clocks: {STUDIES['clocks']}",
            (
                Column("operations", "operations"),
                Column("reversed", "effects before\ntheir cause"),
                Column("skew_us", "skew seen\nµs"),
                Column("bound_us", "can be seen\nfrom µs on"),
            ),
        ),
    ]


PANELS = (
    Panel("messages", "messages for a step and rank", (("messages", 0),)),
    *(
        Panel(
            "depth",
            f"{name} a second against how many are under way",
            tuple((f"{verb}_per_s_{under_way}", under_way) for under_way in DEPTHS),
            lines=True,
        )
        for verb, name in (("put", "puts"), ("get", "gets"))
    ),
    Panel("consumers", "what a step costs its writer, ms", (("stall_ms", 0),)),
)


if __name__ == "__main__":
    answer(sys.argv[1], int(sys.argv[2]))
