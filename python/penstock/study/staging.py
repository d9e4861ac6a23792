"""`penstock study staging`: the experiments of SAND2021-10271 on this machine, and what becomes of its statements."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..bench.studies import cores, warn_if_busy
from .experiments import DEFAULT, EXPERIMENTS, QUICK, Runner, cases_of
from .statements import assess_all


def measure(experiments: list[str], quick: bool, repeat: int, disk: Path, console: Console) -> dict[str, Any]:
    """The raw figures. Throws RunFailed; whatever was started has ended then."""
    plan = QUICK if quick else DEFAULT
    cases, left_out = cases_of(plan, quick)
    cases = [case for case in cases if case.experiment in experiments]
    runner = Runner(plan, disk, deadline_s=300)
    raw: dict[str, Any] = {"plan": asdict(plan), "cores": cores(), "load_before": warn_if_busy(console)}
    raw |= {"left_out": left_out, "conversion_s": runner.calibrate(), "cases": {}}
    for number in range(repeat):
        for case in cases:
            begun = time.monotonic()
            raw["cases"].setdefault(case.key, []).append(runner.run(case))
            print(f"round {number + 1}: {case.key}: {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
    return raw


def run(experiments: list[str], quick: bool, repeat: int, disk: Path, output: Path, console: Console) -> None:
    raw = measure(experiments or list(EXPERIMENTS), quick, repeat, disk, console)
    verdicts = assess_all(raw)
    output.write_text(json.dumps(raw | {"verdicts": [asdict(one) for one in verdicts]}, indent=1) + "\n")
    table = Table("section", "the paper says", "measured here", "verdict", "why", title="SAND2021-10271")
    for one in verdicts:
        table.add_row(one.where, one.text, one.measured, one.verdict, one.why)
    console.print(table)
    for line in raw["left_out"]:
        console.print(f"left out: {line}")
