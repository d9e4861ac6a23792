"""UCX's own performance tool, ucx_perftest, beside which Penstock's data plane `ucx` is measured."""

from __future__ import annotations

import re
import socket
import subprocess
import time

from .runner import RunFailed
from .studies import Figures, Run

TOOL = "ucx_perftest"
# With error handling, which Penstock needs, UCX 1.13 does not use shared memory.
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "errors": ("with error handling, as ours", ("-e",)),
    "plain": ("without", ()),
}
TESTS = {"pull": "ucp_get", "push": "ucp_am_bw"}
TOTAL_BYTES = 512 << 20  # moved for each figure
MOST_ITERATIONS = 2_000  # a small `ucp_get` over TCP takes a millisecond
STARTING_S = 10.0
# The last line with -f: iterations, three latencies, average and overall bandwidth, two rates.
LINE = re.compile(r"^\s*(?:Final:)?\s*\d+(?:\s+[\d.]+){4}\s+(?P<megabytes>[\d.]+)\s+\d+\s+\d+\s*$", re.MULTILINE)


def bandwidths(sizes: tuple[int, ...], more: tuple[str, ...], run: Run) -> Figures:
    """GB/s by size, as the tool's client prints it; more: options of it. Raises RunFailed."""
    return {
        f"{direction}_{size}": bandwidth(test, size, more, run.deadline_s)
        for direction, test in TESTS.items()
        for size in sizes
    }


def bandwidth(test: str, size: int, more: tuple[str, ...], deadline_s: float) -> float:
    with socket.socket() as probe:  # the tool takes a port and does not choose one
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    iterations = str(max(2, min(MOST_ITERATIONS, TOTAL_BYTES // size)))
    options = {"stdin": subprocess.DEVNULL, "text": True}
    server = subprocess.Popen([TOOL, "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    command = [TOOL, "127.0.0.1", "-p", port, "-t", test, "-s", str(size), "-n", iterations, "-w", "2", "-f", *more]
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
