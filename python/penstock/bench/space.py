"""`penstock bench space`: arrays in a pool, put and got in either order, beside copies and a stream in the pool.

One server on this machine. Each row runs once a round, so that drift of the machine meets all of them; figures are
medians, and ratios medians of the ratios within a round. Then some programs get each version in the other order at
once, for every place where that may be converted. The conversions alone (layout_conversions) come last.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..workflow.servers import PoolServers
from ..workflow.study import PoolPlan
from .programs import find_programs
from .studies import result_file

SHAPE = (256, 256, 128)  # float64: 64 MiB
COPY = "NumPy: copy"
SHARED_SHAPE = (128, 256, 128)  # float64: 32 MiB
PLACES = ("at_reader", "on_request", "in_advance", "automatic")
WARM_UP, MEASURED = 3, 5  # versions


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
                works: dict[str, Callable[[], Any]] = {
                    COPY: lambda: np.copyto(into, source),
                    "NumPy: rows to columns": lambda: np.copyto(across, source),
                    "put": partial(rows.put, source),
                    "put from columns": partial(columns.put, turned),
                    "pool: put an object": partial(pool.put, "T", str(number), source),
                    "get": partial(rows.get, out=into),
                    "get in columns": partial(rows.get, out=across),
                    "get as float32": partial(rows.get, dtype="float32"),
                    "stream in the pool: read": partial(step["T"].read, out=into),
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


def read_shared(name: str) -> None:
    """One of the programs that read: prints its seconds by place."""
    import penstock

    into = np.zeros(SHARED_SHAPE, order="F")
    seconds: dict[str, list[float]] = {place: [] for place in PLACES}
    with penstock.Space() as space:
        turns = space.wait("turns")
        for turn in range(len(PLACES) * (WARM_UP + MEASURED)):
            version, place = divmod(turn, len(PLACES))
            array = space.wait(PLACES[place])[version]
            array.wait()
            seconds[PLACES[place]].append(timed(partial(array.get, out=into)))
            if into[1, 2, 3] != version + 0.5 or into[-1, -1, -1] != version + 0.5:
                raise RuntimeError("what was got is not what was put")
            turns[turn].done(name)
    print(json.dumps(seconds))


def shared(readers: int) -> list[tuple[str, float, float, int, int]]:
    """By place: seconds of all gets of a version, of the put, and MB that servers converted and shared in all."""
    import penstock

    names = [str(number) for number in range(readers)]
    puts: dict[str, list[float]] = {place: [] for place in PLACES}
    counted: dict[str, tuple[int, ...]] = dict.fromkeys(PLACES, (0, 0))
    command = [sys.executable, "-c", "import sys; from penstock.bench import space; space.read_shared(sys.argv[1])"]
    programs = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in names]
    try:
        with penstock.Space() as space:
            for place in PLACES:
                layouts = [("float64", "F")] if place == "in_advance" else []
                space.define(place, "float64", SHARED_SHAPE, convert=place, layouts=layouts, keep=2)
            turns = space.define("turns", "int8", (1,), keep=1, readers=names)
            source = np.empty(SHARED_SHAPE)
            before: tuple[int, ...] = (0, 0)
            last: str | None = None
            for turn in range(len(PLACES) * (WARM_UP + MEASURED) + 1):
                if any(program.poll() for program in programs):
                    raise RuntimeError("a program that reads has failed")
                turns[turn].put(0, timeout=120)  # once all have read what came before
                status = space.status
                now = tuple(sum(one[name] for one in status) for name in ("converted_bytes", "shared_bytes"))
                if last is not None:
                    counted[last] = tuple(c + n - b for c, n, b in zip(counted[last], now, before, strict=True))
                before = now
                version, number = divmod(turn, len(PLACES))
                if version == WARM_UP + MEASURED:
                    break
                last = PLACES[number]
                source[...] = version + 0.5
                puts[last].append(timed(partial(space[last, version].put, source)))
        found = [json.loads(program.communicate(timeout=60)[0]) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.wait()
    rows = []
    for place in PLACES:
        gets = np.sum([one[place][WARM_UP:] for one in found], axis=0)
        converted, moved = counted[place]
        rows.append((place, float(np.median(gets)), float(np.median(puts[place][WARM_UP:])), converted, moved))
    return rows


def main(words: list[str] | None = None) -> int:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(prog="penstock bench space", description=__doc__)
    parser.add_argument("--repeat", type=int, default=9, help="rounds")
    parser.add_argument("--readers", type=int, default=8, help="programs that get the same at once (0: none)")
    parser.add_argument("--json", type=result_file, help="writes the seconds to a file")
    given = parser.parse_args(words)
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = PoolPlan(servers=1, memory="1GiB", options={"listen": "127.0.0.1", "log": "warn"})
        with PoolServers(plan, logs=folder, folder=folder / "own") as servers:
            servers.wait_ready(60)
            os.environ |= servers.environment()
            seconds = movement(given.repeat, folder)
            rows = shared(given.readers) if given.readers > 0 else []
    table = Table("64 MiB", "ms", "GB/s", "of a copy", "of the stream's read")
    copy, read = np.array(seconds[COPY]), np.array(seconds["stream in the pool: read"])
    for what, each in seconds.items():
        took = float(np.median(each))
        ratios = (f"{np.median(np.array(each) / other):.2f}" for other in (copy, read))
        table.add_row(what, f"{1e3 * took:.1f}", f"{8 * np.prod(SHAPE) / took / 1e9:.2f}", *ratios)
    console.print(table)
    if rows:
        table = Table(f"32 MiB to {given.readers} readers", "gets, ms in all", "of the best fixed", "put, ms",
                      "converted, MB", "shared, MB")  # fmt: skip
        best = min(gets for place, gets, *_ in rows if place != "automatic")
        for place, gets, put, converted, from_others in rows:
            table.add_row(
                place,
                f"{1e3 * gets:.0f}",
                f"{gets / best:.2f}",
                f"{1e3 * put:.1f}",
                f"{converted / 1e6:.0f}",
                f"{from_others / 1e6:.0f}",
            )
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
