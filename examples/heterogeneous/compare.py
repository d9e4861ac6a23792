"""Runs the workflow once for each place where layouts are converted, and prints where time and memory went.

    python examples/heterogeneous/compare.py --output output/heterogeneous

The statistics and the pictures of all four runs must be equal, byte for byte; else it exits with 1.
The programs are built where MPI and a Fortran compiler are; PENSTOCK_BIN names their folder.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from penstock.units import duration, size
from rich.console import Console
from rich.table import Table

PLACES = ("at_reader", "on_request", "in_advance", "automatic")
STUDY = Path(__file__).with_name("run.yaml")


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


# (label, key, how it is shown); no key: a heading.
ROWS: tuple[tuple[str, str | None, Callable[[Any], str]], ...] = (
    ("run", "elapsed_s", duration),
    ("all versions", None, str),
    ("simulation: put, C++", "simulation.put_s", milliseconds),
    ("analyses: get, Fortran", "analyses.transfer_s", milliseconds),
    ("analyses: put, Fortran", "analyses.put_s", milliseconds),
    ("pictures: get, Python", "pictures.transfer_s", milliseconds),
    ("servers: converting", "servers.conversion_s", milliseconds),
    ("median of a version", None, str),
    ("simulation: put", "simulation.put", milliseconds),
    ("one analysis: get", "analyses.get", milliseconds),
    ("pictures: get", "pictures.get", milliseconds),
    ("servers", None, str),
    ("conversions", "servers.conversions", "{:.0f}".format),
    ("converted", "servers.converted_bytes", size),
    ("given to readers", "servers.given_bytes", size),
    ("of which shared", "servers.shared_bytes", size),
    ("requests left to readers", "servers.left_to_readers", "{:.0f}".format),
    ("memory", None, str),
    ("replicas at most", "servers.replica_peak", size),
    ("servers at most", "memory", size),
)


def run(place: str, folder: Path, steps: int | None) -> None:
    words: list[object] = [sys.executable, "-m", "penstock.cli.main", "run", STUDY, "--output", folder, "--quiet"]
    words += ["--steps", steps] if steps else []
    done = subprocess.run(list(map(str, words)), env=os.environ | {"CONVERT": place}, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"compare: the run with CONVERT={place} failed; logs of programs that started: {folder}/logs")


def figures(folder: Path) -> dict[str, float]:
    """Of one run, by the keys of ROWS. Those of two servers or two analyses are summed."""
    summary = json.loads((folder / "summary.json").read_text())
    reports = {name: program["report"] for name, program in summary["programs"].items()}
    found = {"elapsed_s": summary["elapsed_s"]}
    found["memory"] = sum(server["memory"]["peak"] for server in summary["pool"]["servers"])
    for key in ("conversions", "conversion_s", "converted_bytes", "given_bytes", "shared_bytes", "left_to_readers",
                "replica_peak"):  # fmt: skip
        found[f"servers.{key}"] = sum(server[key] for server in json.loads((folder / "servers.json").read_text()))
    analyses = [reports["lower"], reports["upper"]]
    found["simulation.put_s"] = reports["simulation"]["put_s"]
    found["simulation.put"] = median(reports["simulation"]["puts_s"])
    for key in ("transfer_s", "put_s"):
        found[f"analyses.{key}"] = sum(report[key] for report in analyses)
    found["analyses.get"] = median(seconds for report in analyses for seconds in report["gets_s"])
    found["pictures.transfer_s"] = reports["pictures"]["transfer_s"]
    found["pictures.get"] = median(reports["pictures"]["gets_s"])
    return found


def results(folder: Path) -> dict[str, str]:
    """What must not depend on the place: a digest of each file of results."""
    files = [folder / "statistics.csv", *sorted((folder / "frames").glob("*.png"))]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def table_of(found: dict[str, list[dict[str, float]]], title: str) -> Table:
    table = Table(title=title, title_style="bold")
    table.add_column("")
    for place in PLACES:
        table.add_column(place, justify="right")
    for label, key, show in ROWS:
        if key is None:
            table.add_section()
            table.add_row(f"[bold]{label}")
        else:
            table.add_row(label, *(show(median(one[key] for one in found[place])) for place in PLACES))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("output/heterogeneous"), help="has a folder for each")
    parser.add_argument("--steps", type=int, help="versions, instead of what the study says")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each place; the table has medians")
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {place: [] for place in PLACES}
    first: dict[str, str] = {}
    different: set[str] = set()
    for number in range(given.repeat):
        for place in PLACES:
            print(f"compare: CONVERT={place}, run {number + 1} of {given.repeat}", file=sys.stderr, flush=True)
            folder = given.output / place
            run(place, folder, given.steps)
            found[place].append(figures(folder))
            digests = results(folder)
            first = first or digests
            different |= {f"{place}/{name}" for name, _ in digests.items() ^ first.items()}
    Console(width=90).print(table_of(found, "where layouts are converted"))
    if different:
        raise SystemExit(f"compare: not as with {PLACES[0]}: {', '.join(sorted(different))}")
    print(f"results: {len(first)} files, the same in all runs")


if __name__ == "__main__":
    main()
