"""The study "links" of `penstock bench pool`: a writer, then a reader, against servers with a slow link each.

On one machine a reader is as fast as its thread copies, and steps are taken as fast as the machine's memory allows,
whatever the servers. Here each server has a network of its own (a namespace), joined to theirs by a cable that carries
no more than RATE_MB in either direction: what they gain from a second server is seen. Needs root, ip, tc, unshare and
nsenter.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ..workflow.servers import PoolServers
from ..workflow.study import PoolPlan
from .runner import run_programs
from .studies import Claim, Column, Figures, Row, Run, Sheet

STUDY = "links"
RATE_MB = 200
TEXT = f"a writer, then a reader, against servers that each have a link of {RATE_MB} MB/s of their own, over TCP"
SERVERS = (1, 2, 4)
TOOLS = ("ip", "tc", "unshare", "nsenter")
ADMIN_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, env=os.environ | {"PATH": ADMIN_PATH})


@contextlib.contextmanager
def networks(count: int) -> Iterator[list[int]]:
    """Processes, each with a network of its own: 10.78.0.1 and so on; this process's (10.78.0.254) is joined to all."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "hub", "type", "bridge")
    run("ip", "address", "add", "10.78.0.254/24", "dev", "hub")
    run("ip", "link", "set", "hub", "up")
    keepers: list[subprocess.Popen[Any]] = []
    try:
        for number in range(1, count + 1):
            words = ["unshare", "--net", "sh", "-c", "echo up; exec cat"]
            keeper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            keepers.append(keeper)
            assert keeper.stdout and keeper.stdout.readline() == b"up\n"
            end, inside = f"link{number}", ("nsenter", "--net", "--target", keeper.pid)
            run("ip", "link", "add", end, "type", "veth", "peer", "name", "cable", "netns", keeper.pid)
            run("ip", "link", "set", end, "master", "hub", "up")
            run(*inside, "ip", "address", "add", f"10.78.0.{number}/24", "dev", "cable")
            run(*inside, "ip", "link", "set", "lo", "up")
            run(*inside, "ip", "link", "set", "cable", "up")
            shape = ("rate", f"{8 * RATE_MB}mbit", "burst", "4mb", "latency", "100ms")
            run(*inside, "tc", "qdisc", "add", "dev", "cable", "root", "tbf", *shape)
            run("tc", "qdisc", "add", "dev", end, "root", "tbf", *shape)
        yield [keeper.pid for keeper in keepers]
    finally:
        for keeper in keepers:
            keeper.kill()
            keeper.wait()


def measure(servers: int, programs: Path, folder: Path, steps: int, deadline_s: float) -> Figures:
    """In a network of its own already."""
    plan = PoolPlan(name="bench", memory="1GiB", options={"http": "off"})  # begins with one; the others come by address
    started = PoolServers(plan, logs=folder, folder=folder / "own")
    with networks(servers) as networks_of:
        try:
            started.prepare()
            program = started.program
            for number, keeper in enumerate(networks_of, start=1):
                started.program = str(folder / f"server-{number}")
                Path(started.program).write_text(
                    f'#!/bin/sh\nexec {shutil.which("nsenter")} --net --target {keeper} {program} "$@"\n'
                )
                Path(started.program).chmod(0o700)
                directory = {"directory": started.directory} if number > 1 else {}
                started.start_one(number, listen=f"10.78.0.{number}", **directory)
                started.wait_ready()
            options = ["--study", "io", "--ranks", "2", "--steps", str(steps)]
            environment = started.environment() | {"PENSTOCK_LISTEN": "10.78.0.254"}
            figures: Figures = {}
            for role in ("writer", "reader"):
                command = [str(programs / "pool_steps"), "--role", role, *options]
                for line in run_programs([command], environment, folder, deadline_s):
                    figures |= json.loads(line)
        finally:
            started.stop()
    rates = {"write_mb_per_s": 1e3 * figures["gb_per_s"], "read_mb_per_s": 1e3 * figures["read_gb_per_s"]}
    return rates | {"links_mb_per_s": servers * RATE_MB}


def in_own_network(servers: int, steps: int, run: Run) -> Figures:
    words = (sys.executable, "-m", __name__, servers, run.programs.absolute(), run.folder, steps, run.deadline_s)
    figures = run.figures(["unshare", "--net", *(str(word) for word in words)])
    shares = {f"{way}_share": figures[f"{way}_mb_per_s"] / figures["links_mb_per_s"] for way in ("write", "read")}
    return figures | shares


def possible() -> str:
    """Why not; "": it is."""
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=ADMIN_PATH)]
    if os.geteuid() != 0 or missing:
        return f"no {', '.join(missing)}" if missing else "only root makes networks"
    words = "ip link add va type veth peer name vb && tc qdisc add dev va root tbf rate 1mbit burst 1mb latency 1ms"
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", words], capture_output=True, check=False, env=os.environ | {"PATH": ADMIN_PATH}
    )
    return "" if tried.returncode == 0 else "the kernel makes no networks, or shapes none"


def rows_of(programs: Path, quick: bool) -> tuple[list[Row], list[str]]:
    if not (programs / "pool_steps").exists():
        return [], []
    if why := possible():
        return [], [f"links: {why}"]
    steps = 3 if quick else 9
    return [
        Row(
            STUDY,
            "penstock",
            f"servers_{servers}",
            f"{servers} server{'s' if servers > 1 else ''}",
            partial(in_own_network, servers, steps),
        )
        for servers in SERVERS
    ], []


def claims_of() -> list[Claim]:
    return [
        Claim(
            f"{who} at least {bound}× {way} {servers} servers, each with a slow link of its own",
            (STUDY, "penstock", f"servers_{servers}"),
            (figure,),
            bound,
            theirs=((STUDY, "penstock", "servers_1"),),
            answers=answers,
        )
        for who, way, figure, answers in (
            ("one reader has", "from", "read_mb_per_s", "one server"),
            ("steps are safe", "as fast in", "write_mb_per_s", "plateau"),
        )
        for servers, bound in ((2, 1.7), (4, 3))
    ]


def sheets() -> list[Sheet]:
    columns = (
        Column("write_mb_per_s", "written\nMB/s"),
        Column("read_mb_per_s", "read\nMB/s"),
        Column("links_mb_per_s", "all links\nMB/s"),
        Column("write_share", "of that,\nwritten"),
        Column("read_share", "read"),
    )
    return [Sheet(STUDY, f"links: {TEXT}", columns)]


if __name__ == "__main__":
    given = sys.argv[1:]
    found = measure(int(given[0]), Path(given[1]), Path(given[2]), int(given[3]), float(given[4]))
    print(json.dumps(found))
