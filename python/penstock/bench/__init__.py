"""`penstock bench streams`: Penstock beside the limits of the machine and beside its peers, interleaved in one run.

Each round runs every row once, so that drift of the machine meets all rows alike; figures are medians over the rounds.
The programs and the method (what is inside the clock) are in the folder bench/ of the source tree.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from . import report
from .cases import FAMILIES, WORKLOADS, Case, Programs, all_cases, counted_cases
from .claims import judge
from .programs import find_programs
from .runner import RunFailed, pair_figures, run_case
from .studies import GIVE_UP_AFTER, cores, print_claims, result_file, warn_if_busy, wide_console

__all__ = ["main"]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="penstock bench streams",
        description="Measures streams beside the limits of this machine and their peers.",
        epilog="Workloads: " + "; ".join(f"{name}: {text}" for name, text in WORKLOADS.items()) + ".",
    )
    parser.add_argument("--json", type=result_file, metavar="FILE", help="write all figures there")
    parser.add_argument("--plot", type=result_file, metavar="FILE", help="draw the medians there (PNG, PDF or SVG)")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="rounds (default 5)")
    parser.add_argument("--workload", default=",".join(WORKLOADS), metavar="W1,...", help="only these")
    parser.add_argument("--system", default="", metavar="NAME,...", help="only these of: " + ", ".join(FAMILIES))
    parser.add_argument("--programs", type=Path, metavar="FOLDER", help="the built benchmark programs")
    parser.add_argument(
        "--disk",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="FOLDER",
        help='where files go in the rows "on disk" (default: %(default)s)',
    )
    parser.add_argument("--deadline", type=float, default=120, metavar="SECONDS", help="of one run (default 120)")
    options = parser.parse_args(arguments)
    options.workloads = [name.strip().upper() for name in options.workload.split(",")]
    for name in options.workloads:
        if name not in WORKLOADS:
            parser.error(f"no workload {name}; there are {', '.join(WORKLOADS)}")
    options.systems = [name.strip() for name in options.system.split(",") if name.strip()]
    for name in options.systems:
        if not any(known.startswith(name) for known in FAMILIES):
            parser.error(f"no system {name}; there are {', '.join(FAMILIES)}")
    if options.repeat < 1:
        parser.error("--repeat must be at least 1")
    options.programs = options.programs or find_programs()
    if not options.programs or not (options.programs / "limit_streams").exists():
        parser.error("the benchmark programs are not built; build them (cmake --build build) or give --programs FOLDER")
    return options


class Measurement:
    """All runs of a benchmark, with the rows that had to be given up."""

    def __init__(self, options: argparse.Namespace, console: Console):
        self.options = options
        self.console = console
        self.runs: dict[tuple[str, str, str], list[dict[str, float]]] = {}
        self.failures: dict[tuple[str, str, str], list[str]] = {}
        self.steady: list[dict[str, Any]] = []

    def measure(self, cases: list[Case], counted: list[Case]) -> None:
        columns = (
            TextColumn("{task.description}", table_column=None),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        # Drawn between runs only: a refreshing thread would take time from them.
        with Progress(*columns, console=self.console, auto_refresh=False, transient=True) as progress:
            task = progress.add_task("", total=self.options.repeat * len(cases) + len(counted))
            for number in range(self.options.repeat):
                for case in cases:
                    self.step(progress, task, f"round {number + 1}: {case.workload} {case.system} {case.variant}")
                    figures = self.run(case)
                    if figures:
                        self.runs.setdefault(case.key, []).append(pair_figures(case, figures))
                    progress.advance(task)
            for case in counted:
                self.step(progress, task, f"counting: {case.workload} {case.variant}")
                figures = self.run(case)
                if figures:
                    self.steady.append(report.steady_row(case, figures))
                progress.advance(task)

    @staticmethod
    def step(progress: Progress, task: Any, text: str) -> None:
        progress.update(task, description=f"{text:<44}")
        progress.refresh()

    def run(self, case: Case) -> list[dict[str, Any]] | None:
        failures = self.failures.setdefault(case.key, [])
        if len(failures) >= GIVE_UP_AFTER:
            return None
        try:
            return run_case(case, self.options.disk, self.options.deadline)
        except RunFailed as failure:
            failures.append(str(failure))
            return None

    def rows(self, cases: list[Case]) -> dict[tuple[str, str, str], dict[str, Any]]:
        rows = {case.key: report.row_of(case, self.runs[case.key]) for case in cases if case.key in self.runs}
        report.add_ratios(rows)
        return rows

    def failed(self) -> list[str]:
        failures = [(" ".join(key), texts) for key, texts in self.failures.items() if texts]
        return [f"{name}: failed {len(texts)} times, first: {texts[0]}" for name, texts in failures]


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    console = wide_console()
    programs = Programs(options.programs)
    cases, left_out = all_cases(programs, options.workloads)
    if options.systems:
        cases = [case for case in cases if any(case.system.startswith(name) for name in options.systems)]
        left_out = [line for line in left_out if any(line.startswith(name) for name in options.systems)]
    counted = counted_cases(cases, programs)
    load = warn_if_busy(console)
    started = time.monotonic()
    measurement = Measurement(options, console)
    measurement.measure(cases, counted)
    rows = measurement.rows(cases)
    for workload in sorted({row["workload"] for row in rows.values()}):
        mine = [row for row in rows.values() if row["workload"] == workload]
        report.print_workload(console, workload, mine)
        report.print_startup(console, workload, mine)
    report.print_steady(console, measurement.steady)
    judged = [one for one in judge(rows) if one["claim"][:2] in options.workloads]
    print_claims(console, judged)
    for line in left_out:
        console.print(f"left out: {line}")
    for line in measurement.failed():
        console.print(f"[red]{line}[/]")
    seconds = time.monotonic() - started
    rounds = f"medians of {options.repeat} rounds on {cores()} cores"
    console.print(f"{rounds}, {seconds:.0f} s in all; what is measured: bench/README.md")
    if options.json:
        report.write_json(
            options.json,
            list(rows.values()),
            {
                "repeat": options.repeat,
                "load_before": load,
                "claims": judged,
                "steady_state": measurement.steady,
                "left_out": left_out,
                "failed": measurement.failed(),
            },
        )
    if options.plot:
        report.plot(options.plot, list(rows.values()))
    return 1 if measurement.failed() else 0
