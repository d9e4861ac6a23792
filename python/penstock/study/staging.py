"""`penstock study staging`: the experiments of SAND2021-10271 here, and a verdict on each of its statements."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..bench.runner import RunFailed
from ..bench.studies import cores, warn_if_busy
from .experiments import DEFAULT, EXPERIMENTS, QUICK, Runner, cases_of
from .report import QUICK_NOTE, page
from .statements import Verdict, assess_all


def measure(experiments: list[str], quick: bool, repeat: int, disk: Path, console: Console) -> dict[str, Any]:
    """The raw figures. Throws RunFailed; whatever was started has ended then."""
    plan = QUICK if quick else DEFAULT
    cases, left_out = cases_of(plan, quick)
    cases = [case for case in cases if case.experiment in experiments]
    runner = Runner(plan, disk, deadline_s=300)
    raw: dict[str, Any] = {
        "plan": asdict(plan),
        "quick": quick,
        "cores": cores(),
        "machine": f"{platform.machine()}, Linux {platform.release()}",
        "begun": datetime.now().astimezone().isoformat(timespec="minutes"),
        "load_before": warn_if_busy(console),
        "left_out": left_out,
        "conversion_s": runner.calibrate(),
        "cases": {},
        "failed": {},
    }
    columns = (TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = console.is_terminal
    # Drawn between runs only: a refreshing thread would take time from them. Where it cannot be drawn, lines tell.
    with Progress(*columns, console=console, auto_refresh=False, transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=repeat * len(cases))
        for _ in range(repeat):
            for case in cases:
                progress.update(task, description=case.key, refresh=True)
                try:
                    figures = runner.run(case)
                    raw["cases"].setdefault(case.key, []).append(figures)
                    if not shown:
                        console.print(f"{case.key}: {figures['elapsed_s']:.1f} s")
                except RunFailed as failure:
                    if case.experiment != "tight":  # whether it fails is what that one asks
                        raise
                    raw["failed"][case.key] = str(failure)
                progress.advance(task)
    raw["load_after"] = os.getloadavg()[0]
    return raw


def run(
    experiments: list[str], quick: bool, repeat: int, disk: Path, json_file: Path, html: Path, consoles: list[Console]
) -> None:
    """Prints the verdicts on the first console, the progress on the second."""
    raw = measure(experiments or list(EXPERIMENTS), quick, repeat, disk, consoles[1])
    verdicts = assess_all(raw)
    json_file.write_text(json.dumps(raw | {"verdicts": [asdict(one) for one in verdicts]}, indent=1) + "\n")
    html.write_text(page(raw, verdicts), encoding="utf-8")
    print_verdicts(consoles[0], verdicts)
    if quick:
        consoles[0].print(QUICK_NOTE)
    for line in raw["left_out"]:
        consoles[0].print(f"left out: {line}")
    consoles[0].print(f"report: {html}; figures: {json_file}")


def print_verdicts(console: Console, verdicts: list[Verdict]) -> None:
    table = Table(title="SAND2021-10271", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("section", "the paper says", "measured here", "verdict"):
        table.add_column(name, vertical="top")
    for one in verdicts:
        table.add_row(one.where, one.text, one.measured, one.verdict)
    console.print(table)
