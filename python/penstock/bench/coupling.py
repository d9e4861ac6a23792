"""Figures of a simulation and an analysis together. For `penstock bench analysis`."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

CYCLES = 400
CYCLE_S = 0.002
ANALYSED_WITHIN_S = 60


def compute(coprocessor: Any, cycle: int) -> None:
    """One cycle of the simulation."""
    time.sleep(CYCLE_S)
    if step := coprocessor.request(cycle, cycle * CYCLE_S):
        with step:
            step.put("T", np.full((32, 32, 32), float(cycle)), lend=True)


def coprocessor_of(name: str, **options: Any) -> Any:
    import penstock

    coprocessor = penstock.Coprocessor(name, rendezvous_readers=0, **options)
    coprocessor.mesh("grid", "uniform", shape=(32, 32, 32), axes="zyx")
    coprocessor.field("grid", "T")
    coprocessor.declare("seen", 0.0)
    return coprocessor


def run_script(text: str, folder: Path, name: str) -> tuple[threading.Thread, list[Any]]:
    """An analysis on a thread; the thread, and a list that will hold its report."""
    from ..analysis.run import Analysis

    path = folder / f"{name}.py"
    path.write_text(text)
    reports: list[Any] = []
    thread = threading.Thread(target=lambda: reports.append(Analysis([path], [name], folder / name).run()))
    thread.start()
    return thread, reports


def steering(folder: Path) -> dict[str, float]:
    """Cycles from the step that an analysis answers until the simulation has the value it has sent."""
    script = "def analyze(step):\n    step.steer(seen=float(step.cycle))\n"
    late = []
    with coprocessor_of("steered") as coprocessor:
        thread, _ = run_script(script, folder, "steered")
        seen = 0.0
        for cycle in range(CYCLES):
            compute(coprocessor, cycle)
            if (value := coprocessor.value("seen")) != seen:
                late.append(cycle - value)
                seen = value
    thread.join()
    return {"values": len(late), "median_cycles": float(np.median(late)), "worst_cycles": max(late)}


def waiting(folder: Path) -> dict[str, float]:
    """wait=automatic with an analysis that takes 25 cycles for a step: every cycle is analysed or counted."""
    script = f"import time\ndef analyze(step):\n    time.sleep({25 * CYCLE_S})\n"
    with coprocessor_of("automatic", wait="automatic") as coprocessor:
        thread, reports = run_script(script, folder, "automatic")
        begun = time.perf_counter()
        for cycle in range(CYCLES):
            compute(coprocessor, cycle)
        took = time.perf_counter() - begun
        counted = coprocessor.statistics
    thread.join()
    skipped = counted.skipped_not_ready + counted.skipped_trigger + counted.skipped_every + counted.skipped_dropped
    return {
        "cycles": counted.requests,
        "analysed": reports[0].frames,
        "skipped": skipped,
        "unaccounted": counted.requests - skipped - reports[0].frames,
        "stretch": took / (CYCLES * CYCLE_S),
    }


def restarts(folder: Path, rounds: int) -> dict[str, float]:
    """An analysis that is killed and started again: seconds from its start until it has analysed a step."""
    pipeline, table = folder / "restarts.yaml", folder / "restarted/t.csv"
    pipeline.write_text("extracts: {t: {type: csv, values: {top: max(T)}}}")
    command = [sys.executable, "-m", "penstock.cli.main", "analyze", "restarted", pipeline, "-o", table.parent, "-q"]
    took, over = [], threading.Event()

    def run() -> None:
        with coprocessor_of("restarted") as coprocessor:
            for cycle in range(1 << 30):
                if over.is_set():
                    return
                compute(coprocessor, cycle)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(rounds):
            rows = _rows(table)
            begun = time.perf_counter()
            analysis = subprocess.Popen([str(word) for word in command])
            try:
                while _rows(table) == rows:
                    if time.perf_counter() > begun + ANALYSED_WITHIN_S:
                        raise TimeoutError(f"the analysis wrote nothing within {ANALYSED_WITHIN_S} s")
                    time.sleep(0.005)
            finally:
                analysis.kill()
                analysis.wait()
            took.append(time.perf_counter() - begun)
    finally:
        over.set()
        thread.join()
    cycles = [int(line.split(",")[0]) for line in table.read_text().splitlines()[1:]]
    return {
        "restarts": rounds,
        "median_s": float(np.median(took)),
        "rows": len(cycles),
        "rows_twice": len(cycles) - len(set(cycles)),
    }


def _rows(table: Path) -> int:
    return table.read_bytes().count(b"\n") if table.exists() else 0


def partitioners() -> dict[str, float]:
    """The largest part over the mean, of 64³ cells over 6 ranks, and of 1,000 blocks of unequal size over 6."""
    from ..analysis import partition

    figures = {}
    sizes = np.random.default_rng(1).integers(1, 100, 1000)
    for method in partition.METHODS:
        cells = [int(np.prod(part.shape)) for part in partition.boxes((64, 64, 64), 6, method)]
        figures[f"boxes {method}"] = float(max(cells) / np.mean(cells))
        loads = [int(sizes[list(part.domains)].sum()) for part in partition.domains(sizes.tolist(), 6, method)]
        figures[f"domains {method}"] = float(max(loads) / np.mean(loads))
    return figures
