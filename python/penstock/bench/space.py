"""`penstock bench space`: arrays in a pool, put and got in either order, beside copies and a stream in the pool.

One server on this machine. Each row runs once a round, so that drift of the machine meets all of them; figures are
medians, and ratios medians of the ratios within a round. The conversions alone (layout_conversions) come after.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..workflow.servers import PoolServers
from ..workflow.study import PoolPlan
from .programs import find_programs

SHAPE = (256, 256, 128)  # float64: 64 MiB
COPY = "NumPy: copy"


def timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def movement(rounds: int, folder: Path) -> dict[str, list[float]]:
    """Seconds by row, one for each round but the first, which touches the memory."""
    import penstock

    source = np.random.default_rng(1).random(SHAPE)
    turned = np.asfortranarray(source)
    into, across = np.zeros(SHAPE), np.zeros(SHAPE, order="F")
    seconds: dict[str, list[float]] = {}
    context = penstock.Context(directory=str(folder / "streams"))
    with penstock.Space(context=context) as space, penstock.Pool(context=context) as pool:
        T = space.define("T", "float64", SHAPE)
        for number in range(rounds + 1):
            rows, columns = T[2 * number], T[2 * number + 1]
            with context.create(f"T{number}", engine="pool", rendezvous_readers=0) as writer, writer.step() as step:
                step.put("T", source)
            with context.open(f"T{number}", engine="pool") as reader, reader.step() as step:
                works = {
                    COPY: lambda: np.copyto(into, source),
                    "NumPy: rows to columns": lambda: np.copyto(across, source),
                    "put": lambda v=rows: v.put(source),
                    "put from columns": lambda v=columns: v.put(turned),
                    "pool: put an object": lambda n=number: pool.put("T", str(n), source),
                    "get": lambda v=rows: v.get(out=into),
                    "get in columns": lambda v=rows: v.get(out=across),
                    "get as float32": lambda v=rows: v.get(dtype="float32"),
                    "stream in the pool: read": lambda s=step: s["T"].read(out=into),
                }
                for name, work in works.items():
                    took = timed(work)
                    if number > 0:
                        seconds.setdefault(name, []).append(took)
            if not (np.array_equal(into, source) and np.array_equal(across, source)):
                raise RuntimeError("what was got is not what was put")
            for each in (rows, columns):
                each.drop()
            pool.drop("T", str(number))
            pool.drop_stream(f"T{number}")
    return seconds


def main(words: list[str] | None = None) -> int:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(prog="penstock bench space", description=__doc__)
    parser.add_argument("--repeat", type=int, default=9, help="rounds")
    parser.add_argument("--json", type=Path, help="writes the seconds to a file")
    given = parser.parse_args(words)
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = PoolPlan(servers=1, memory="1GiB", options={"listen": "127.0.0.1", "log": "warn"})
        with PoolServers(plan, logs=folder, folder=folder / "own") as servers:
            servers.wait_ready(60)
            os.environ |= servers.environment()
            seconds = movement(given.repeat, folder)
    table = Table("64 MiB", "ms", "GB/s", "of a copy", "of the stream's read")
    copy, read = np.array(seconds[COPY]), np.array(seconds["stream in the pool: read"])
    for what, each in seconds.items():
        took = float(np.median(each))
        ratios = (f"{np.median(np.array(each) / other):.2f}" for other in (copy, read))
        table.add_row(what, f"{1e3 * took:.1f}", f"{8 * np.prod(SHAPE) / took / 1e9:.2f}", *ratios)
    console.print(table)
    programs = find_programs("layout_conversions")
    if programs is None:
        console.print("left out: conversions alone; layout_conversions is not built (make build, in a source folder)")
    else:
        words = [str(programs / "layout_conversions"), "--repeat", str(given.repeat)]
        console.print(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    if given.json is not None:
        given.json.write_text(json.dumps(seconds, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
