"""UCX's own performance tool, ucx_perftest, beside which Penstock's data plane `ucx` is measured."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from typing import Any

from .runner import RunFailed
from .studies import Figures, Run

TOOL = "ucx_perftest"
# With error handling, which Penstock needs, UCX 1.13 does not use shared memory.
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "errors": ("with error handling, as ours", ("-e",)),
    "plain": ("without", ()),
}
TESTS = {"pull": "ucp_get", "push": "ucp_am_bw"}
UNDER_WAY = 4  # as of ours
FIRST_ITERATIONS = 20  # to see how many make a second
SECONDS = 1.0
STARTING_S = 10.0
# The last line with -f: iterations, three latencies, average and overall bandwidth, two rates.
LINE = re.compile(r"^\s*(?:Final:)?\s*\d+(?:\s+\S+){4}\s+(?P<megabytes>[\d.]+)\s+\d+\s+\d+\s*$", re.MULTILINE)


def bandwidths(sizes: tuple[int, ...], more: tuple[str, ...], run: Run) -> Figures:
    """GB/s by size, as the tool's client prints it; more: options of it. Raises RunFailed."""
    return {
        f"{direction}_{size}": bandwidth(test, size, more, run.deadline_s)
        for direction, test in TESTS.items()
        for size in sizes
    }


def bandwidth(test: str, size: int, more: tuple[str, ...], deadline_s: float) -> float:
    """Of about a second, after a tenth of that."""
    first = measured(test, size, FIRST_ITERATIONS, more, deadline_s)
    iterations = max(FIRST_ITERATIONS, int(first * 1e9 * SECONDS / size))
    return measured(test, size, iterations, more, deadline_s)


def measured(test: str, size: int, iterations: int, more: tuple[str, ...], deadline_s: float) -> float:
    with socket.socket() as probe:  # the tool takes a port and does not choose one
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "text": True}
    server = subprocess.Popen([TOOL, "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    numbers = {"-p": port, "-s": size, "-n": iterations, "-w": max(2, iterations // 10), "-O": UNDER_WAY}
    words = [str(word) for number in numbers.items() for word in number]
    command = [TOOL, "127.0.0.1", "-t", test, *words, "-f", *more]
    try:
        starting = time.monotonic() + STARTING_S
        while True:
            client = subprocess.run(command, capture_output=True, timeout=deadline_s, **options)
            if found := LINE.search(client.stdout):
                return float(found["megabytes"]) * (1 << 20) / 1e9
            if time.monotonic() > starting or server.poll() is not None:
                raise RunFailed(f"{TOOL} -t {test}: {(client.stderr or client.stdout).strip()[-500:]}")
            time.sleep(0.05)  # the server does not listen yet
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{TOOL} -t {test}: not done after {deadline_s:.0f} s") from None
    finally:
        server.kill()
        server.wait()
